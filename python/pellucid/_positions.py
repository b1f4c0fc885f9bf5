"""Finding text in a prompt: positions of tokens by what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid._errors import InvalidArgument, NotFound
from pellucid._where import user_line

if TYPE_CHECKING:
    from pellucid._tokenizer import Tokenizer


def span(tokenizer: Tokenizer, row: list[int], text: str, nth: int | None) -> tuple[int, int]:
    """Tokens [first, end) that hold `text`; nth: which occurrence, None: the only one."""
    pieces = [tokenizer.bytes_of(i) for i in row]
    data, wanted = b"".join(pieces), text.encode()
    if not wanted:
        raise InvalidArgument("an empty text is everywhere", "", user_line())
    starts, at = [], data.find(wanted)
    while at >= 0:
        starts.append(at)
        at = data.find(wanted, at + 1)
    if not starts:
        raise NotFound(
            f"{text!r} does not occur in the prompt {data.decode(errors='replace')!r}",
            "mind leading spaces and case",
            user_line(),
        )
    if nth is None and len(starts) > 1:
        raise InvalidArgument(
            f"{text!r} occurs {len(starts)} times in the prompt", "choose with nth=", user_line()
        )
    if nth is not None and not -len(starts) <= nth < len(starts):
        raise NotFound(
            f"{text!r} occurs {len(starts)} times in the prompt, so nth={nth} does not exist",
            "",
            user_line(),
        )
    begin = starts[nth or 0]
    end = begin + len(wanted)
    first, last, offset = None, 0, 0
    for position, piece in enumerate(pieces):
        if first is None and offset + len(piece) > begin:
            first = position
        offset += len(piece)
        if offset >= end:
            last = position
            break
    assert first is not None
    return first, last + 1
