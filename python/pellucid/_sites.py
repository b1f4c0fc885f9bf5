"""lm.blocks[3].attn.z, lm.model.layers[3].self_attn.o_proj.input: names as attributes.

Sites are read when the last name is reached and written when it is assigned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pellucid._errors import Error, InvalidArgument, NotFound
from pellucid._where import user_line

if TYPE_CHECKING:
    import torch

    from pellucid._lm import LM

_LAYER = "{i}"
_SITE = ""  # marks the end of a whole name


class Names:
    """All dotted names of one model's sites: a tree in which {i} stands for a layer."""

    def __init__(self, templates: list[str], num_layers: int) -> None:
        self.num_layers = num_layers
        self._root: dict[str, Any] = {}
        for template in templates:
            node = self._root
            for part in template.split("."):
                node = node.setdefault(part, {})
            node[_SITE] = True

    def find(self, path: str) -> dict[str, Any] | None:
        """What may follow `path`; None: there is no such name."""
        node: dict[str, Any] | None = self._root
        for part in path.split("."):
            assert node is not None
            node = node.get(_LAYER if part.lstrip("-").isdigit() else part)
            if node is None:
                return None
        return node

    def is_site(self, path: str) -> bool:
        node = self.find(path)
        return node is not None and _SITE in node

    def is_list(self, path: str) -> bool:
        node = self.find(path)
        return node is not None and _LAYER in node

    def following(self, path: str) -> list[str]:
        node = self.find(path) or {}
        return [part for part in node if part not in (_SITE, _LAYER)]


class SiteNode:
    """Part of a name. `lm.blocks[3].attn`; the next name may be a site."""

    __slots__ = ("_lm", "_path")
    _lm: LM
    _path: str

    def __init__(self, lm: LM, path: str) -> None:
        object.__setattr__(self, "_lm", lm)
        object.__setattr__(self, "_path", path)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._lm._get(f"{self._path}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        self._lm._set(f"{self._path}.{name}", value)

    def __getitem__(self, index: Any) -> Any:
        length = len(self)
        if isinstance(index, slice):
            return [self[i] for i in range(length)[index]]
        if not isinstance(index, int):
            raise InvalidArgument(
                f"lm.{self._path} is indexed by whole numbers, not {type(index).__name__}",
                "",
                user_line(),
            )
        if not -length <= index < length:
            raise LayerIndexError(
                f"lm.{self._path}[{index}]: the model has {length} blocks, 0 to {length - 1}",
                "",
                user_line(),
            )
        return self._lm._get(f"{self._path}.{index % length}")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise InvalidArgument(
            f"lm.{self._path}[{index!r}] is not a site",
            "assign to a site of the block",
            user_line(),
        )

    def __len__(self) -> int:
        if not self._lm._names.is_list(self._path):
            raise TypeError(f"lm.{self._path} is no list")
        return self._lm._names.num_layers

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return True

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._path != "ln_final":
            raise TypeError(
                f"lm.{self._path} cannot be called; lm.ln_final, lm.unembed and lm.lens can"
            )
        return self._lm._apply_part("ln_final", x)

    def __dir__(self) -> list[str]:
        return self._lm._names.following(self._path)

    def __repr__(self) -> str:
        return f"<lm.{self._path}: {', '.join(self._lm._names.following(self._path)) or 'blocks'}>"


class LayerIndexError(Error, IndexError):
    """No such block."""

    code = "invalid_argument"


def unknown(failure: NotFound) -> NotFound:
    """The engine's error for an unknown name, at the user's line."""
    return NotFound(failure.what, failure.hint, user_line())
