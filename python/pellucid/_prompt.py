"""Prompts: text, a list of texts, token ids or chat messages become rows of ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from pellucid._errors import InvalidArgument
from pellucid._where import user_line

if TYPE_CHECKING:
    from pellucid._tokenizer import Tokenizer

Prompt: TypeAlias = str | Sequence[Any] | torch.Tensor

_KINDS = "text, a list of texts, token ids (a list or a tensor) or chat messages"


@dataclass
class Rows:
    """Prompts as token ids. `single`: one prompt was given, not a list of them."""

    tokens: list[list[int]]
    single: bool


def parse(tokenizer: Tokenizer, prompt: Any, bos: bool | None = None) -> Rows:
    """Rows of ids; their lengths may differ."""
    if isinstance(prompt, str):
        return Rows([tokenizer.encode(prompt, bos=bos)], single=True)
    if isinstance(prompt, torch.Tensor) or type(prompt).__module__ == "numpy":
        return _from_tensor(torch.as_tensor(prompt))
    if not isinstance(prompt, Sequence):
        raise InvalidArgument(f"a prompt is {_KINDS}, not {type(prompt).__name__}", "", user_line())
    if len(prompt) == 0:
        raise InvalidArgument("the list of prompts is empty", f"give {_KINDS}", user_line())
    kinds = {_kind(item) for item in prompt}
    if len(kinds) > 1:
        raise InvalidArgument(
            f"a list of prompts mixes {' and '.join(sorted(kinds))}", "one kind a list", user_line()
        )
    kind = kinds.pop()
    if kind == "token ids":
        return Rows([[int(i) for i in prompt]], single=True)
    if kind == "messages":
        return Rows([tokenizer.apply_chat_template(list(prompt))], single=True)
    return Rows(
        [_row(tokenizer, index, item, bos) for index, item in enumerate(prompt)], single=False
    )


def _row(tokenizer: Tokenizer, index: int, item: Any, bos: bool | None) -> list[int]:
    """One prompt of a list of them."""
    if not isinstance(item, str) and len(item) == 0:
        raise InvalidArgument(
            f"prompt {index} of the list is empty",
            "an empty prompt has no position to look at",
            user_line(),
        )
    rows = parse(tokenizer, item, bos)
    if not rows.single:
        raise InvalidArgument(
            f"prompt {index} of the list is a list of prompts itself", "one list", user_line()
        )
    return rows.tokens[0]


def _kind(item: Any) -> str:
    if isinstance(item, str):
        return "texts"
    if isinstance(item, dict):
        return "messages"
    if isinstance(item, bool):
        return "True or False"
    if isinstance(item, int) or type(item).__module__ == "numpy" and getattr(item, "ndim", 1) == 0:
        return "token ids"
    if isinstance(item, torch.Tensor) and item.dim() == 0:
        return "token ids"
    if isinstance(item, (Sequence, torch.Tensor)) or type(item).__module__ == "numpy":
        return "lists"
    raise InvalidArgument(f"a prompt is {_KINDS}, not {type(item).__name__}", "", user_line())


def _from_tensor(ids: torch.Tensor) -> Rows:
    from pellucid._value import Value

    if isinstance(ids, Value):
        raise InvalidArgument(
            "a traced value cannot be a prompt", "write it to lm.tokens instead", user_line()
        )
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise InvalidArgument(
            f"token ids are integers, not {str(ids.dtype).removeprefix('torch.')}", "", user_line()
        )
    if ids.dim() not in (1, 2):
        raise InvalidArgument(
            f"a tensor of token ids is [seq] or [batch, seq], not {list(ids.shape)}",
            "",
            user_line(),
        )
    if ids.dim() == 2 and ids.size(0) == 0:
        raise InvalidArgument(
            f"a tensor of token ids of shape {list(ids.shape)} has no rows",
            "give one row for each prompt",
            user_line(),
        )
    rows = ids.tolist()
    return Rows([rows], single=True) if ids.dim() == 1 else Rows(rows, single=False)


def require_equal_lengths(rows: Rows) -> None:
    lengths = sorted({len(row) for row in rows.tokens})
    if lengths and lengths[0] == 0:
        raise InvalidArgument("an empty prompt has no position to look at", "", user_line())
    if len(lengths) > 1:
        raise InvalidArgument(
            f"prompts of one group have equal lengths; these have {lengths[0]} and {lengths[-1]} "
            "tokens",
            "open one t.prompt(...) for each, or map a program over them: lm.map(program, prompts)",
            user_line(),
        )
