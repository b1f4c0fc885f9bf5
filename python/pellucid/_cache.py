"""lm.cache: values of sites on many prompts, in memory."""

from __future__ import annotations

import fnmatch
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from pellucid import _prompt
from pellucid._errors import InvalidArgument, NotFound
from pellucid._where import user_line

if TYPE_CHECKING:
    from pellucid._lm import LM

# Prompts of one length share a group; more rows than this are another group, so that the engine can
# cut its passes.
_ROWS_MAX = 64


class Cache(Mapping[str, torch.Tensor]):
    """Values by canonical site name, each [prompts, ...] in the order of the prompts."""

    def __init__(self, values: dict[str, torch.Tensor]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._values:
            raise NotFound(
                f"the cache does not hold {name!r}",
                f"it holds {', '.join(self._values)}",
                user_line(),
            )
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def stack(self, name: str) -> torch.Tensor:
        """All blocks of one site, e.g. stack("attn.z"): [layers held, prompts, ...]."""
        names = fnmatch.filter(self._values, f"blocks.*.{name}")
        if not names:
            raise NotFound(
                f"the cache holds no block's {name!r}",
                f"it holds {', '.join(self._values)}",
                user_line(),
            )
        return torch.stack([self._values[one] for one in names])

    def __repr__(self) -> str:
        return f"<cache of {', '.join(f'{k} {list(v.shape)}' for k, v in self._values.items())}>"


def collect(
    lm: LM,
    prompts: _prompt.Prompt,
    sites: str | Sequence[str],
    at: int | slice | Sequence[int] | str | None,
    dtype: torch.dtype | None,
) -> torch.Tensor | Cache:
    """One name without a glob gives its tensor; globs and lists give a Cache.

    at: positions to keep. None: all, [prompts, seq, ...]; an int or "last": that one, [prompts, ...];
    a slice or a list: those, [prompts, positions, ...]. Prompts of unequal lengths need an `at` that
    selects equally many positions of each. Positions are those of the dimension that follows batch
    (`seq`), for scores and patterns the query's.
    """
    globs = [sites] if isinstance(sites, str) else list(sites)
    names: list[str] = []
    for glob in globs:
        if any(c in glob for c in "*?["):
            names.extend(n for n in lm._native.match(glob) if n not in names)
        else:
            name = lm._resolve(glob)[0]
            if name not in names:
                names.append(name)
    if not names:
        raise InvalidArgument(
            "no site to cache", "lm.cache(prompts, 'blocks.*.attn.z')", user_line()
        )
    rows = _prompt.parse(lm.tokenizer, prompts).tokens
    if any(not row for row in rows):
        raise InvalidArgument("an empty prompt has no position to look at", "", user_line())
    _check_positions(rows, names, at)
    _check_reach(lm, rows, at)
    values = _run(lm, rows, names, -1 if at == "last" else at, dtype)
    if isinstance(sites, str) and not any(c in sites for c in "*?["):
        return values[names[0]]
    return Cache(values)


def _check_positions(rows: list[list[int]], names: list[str], at: Any) -> None:
    if isinstance(at, str) and at != "last":
        raise InvalidArgument(
            f"at={at!r}", 'an int, a slice, a list of ints or "last"', user_line()
        )
    lengths = sorted({len(row) for row in rows})
    if len(lengths) == 1:
        return
    keyed = [name for name in names if name.endswith((".scores", ".pattern"))]
    if keyed:
        raise InvalidArgument(
            f"{keyed[0]} has a size for every key, and these prompts have {lengths[0]} and "
            f"{lengths[-1]} tokens",
            "cache prompts of equal length",
            user_line(),
        )
    if isinstance(at, slice):
        counts = {len(range(n)[at]) for n in lengths}
    else:
        counts = {1} if at is not None else set(lengths)
    if len(counts) > 1:
        raise InvalidArgument(
            f"these prompts have {lengths[0]} and {lengths[-1]} tokens, so the values do not fit into "
            "one tensor",
            'choose positions that all have: at="last", at=-1, at=slice(-4, None)',
            user_line(),
        )


def _check_reach(lm: LM, rows: list[list[int]], at: Any) -> None:
    """Each position of `at` must be one of every prompt's."""
    if at is None or isinstance(at, (str, slice)):
        return
    for position in [at] if isinstance(at, int) else at:
        for index, row in enumerate(rows):
            if not -len(row) <= position < len(row):
                text = textwrap.shorten(lm.tokenizer.decode(row), 40, placeholder="...")
                raise InvalidArgument(
                    f"at={position}: prompt {index}, {text!r}, has {len(row)} "
                    f"token{'s' * (len(row) != 1)}",
                    "count from the end (at=-1), or leave the prompt out",
                    user_line(),
                )


def _run(
    lm: LM, rows: list[list[int]], names: list[str], at: Any, dtype: torch.dtype | None
) -> dict[str, torch.Tensor]:
    by_length: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        by_length.setdefault(len(row), []).append(index)
    parts: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    order: list[int] = []
    with lm.trace() as t:
        for indices in by_length.values():
            for first in range(0, len(indices), _ROWS_MAX):
                some = indices[first : first + _ROWS_MAX]
                order.extend(some)
                with t.prompt([rows[i] for i in some]):
                    for name in names:
                        value = lm[name]
                        if at is not None:
                            dim = 2 if name.endswith((".scores", ".pattern")) else 1
                            value = value[(slice(None),) * dim + (at,)]
                        parts[name].append(t.save(value, dtype=dtype))
    back = torch.tensor(order).argsort()
    return {
        name: pieces[0] if len(pieces) == 1 and order == sorted(order) else torch.cat(pieces)[back]
        for name, pieces in parts.items()
    }
