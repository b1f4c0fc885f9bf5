"""Text to token ids and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pellucid import _native

Messages = Sequence[dict[str, Any]]


class Tokenizer:
    """The model's tokenizer, equal to the `tokenizers` library on the same files."""

    def __init__(self, native: _native.Tokenizer) -> None:
        self._native = native

    def encode(
        self, text: str, *, bos: bool | None = None, parse_special: bool = True
    ) -> list[int]:
        """Ids of `text`.

        bos: a begin-of-text token in front; None: as the tokenizer says; never twice.
        parse_special: False: the text of special tokens is plain text, as for untrusted input.

        >>> lm.tokenizer.encode("The capital of France is")
        [504, 3575, 282, 4649, 314]
        """
        ids: list[int] = self._native.encode(text, bos, parse_special)[0]
        return ids

    def offsets(self, text: str, *, bos: bool | None = None) -> list[tuple[int, int]]:
        """Where each token of encode(text) comes from: characters [begin, end) of `text`.

        A token that holds part of a character covers the whole character; a token that the text
        does not hold (begin-of-text) covers nothing.
        """
        data = text.encode()
        found = []
        for begin, end in self._native.encode(text, bos, True)[1]:
            while begin > 0 and begin < len(data) and data[begin] & 0xC0 == 0x80:
                begin -= 1
            while end < len(data) and data[end] & 0xC0 == 0x80:
                end += 1
            found.append((len(data[:begin].decode()), len(data[:end].decode())))
        return found

    def decode(self, ids: Sequence[int] | torch.Tensor | int, *, skip_special: bool = False) -> str:
        """Text of ids; bytes that are not UTF-8 become U+FFFD."""
        if isinstance(ids, torch.Tensor):
            ids = ids.tolist()
        if isinstance(ids, int):
            ids = [ids]
        text: str = self._native.decode(list(ids), skip_special)
        return text

    def bytes_of(self, id: int) -> bytes:
        """The bytes that a token stands for; may be part of a character."""
        data: bytes = self._native.token_bytes(id)
        return data

    def id(self, text: str) -> int:
        """The only token of `text`; an error that names the tokens when there are several."""
        found: int = self._native.id_of(text)
        return found

    def tokens(self, text: str, *, bos: bool | None = None) -> list[str]:
        """The text of each token, for a look."""
        return [self.decode(i) for i in self.encode(text, bos=bos)]

    def apply_chat_template(
        self, messages: Messages, *, add_generation_prompt: bool = True, tokenize: bool = True
    ) -> Any:
        """Messages ({"role": ..., "content": ...}) in the model's chat form: ids, or text."""
        pairs = [_message(message) for message in messages]
        text: str = self._native.render_chat(pairs, add_generation_prompt)
        if not tokenize:
            return text
        ids: list[int] = self._native.encode(text, None, True)[0]
        return ids

    @property
    def vocab_size(self) -> int:
        size: int = self._native.vocab_size
        return size

    @property
    def bos_id(self) -> int | None:
        found: int | None = self._native.bos
        return found

    @property
    def eos_id(self) -> int | None:
        found: int | None = self._native.eos
        return found

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"<Tokenizer of {self.vocab_size} tokens>"


def _message(message: dict[str, Any]) -> tuple[str, str]:
    from pellucid._errors import InvalidArgument
    from pellucid._where import user_line

    if set(message) != {"role", "content"} or not isinstance(message["content"], str):
        raise InvalidArgument(
            f"a chat message has a role and a content of text, not {sorted(message)}",
            '{"role": "user", "content": "Hello"}',
            user_line(),
        )
    return str(message["role"]), message["content"]
