"""Text: generate, score, chat."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pellucid import _native, _prompt
from pellucid._errors import InvalidArgument
from pellucid._where import user_line

if TYPE_CHECKING:
    from pellucid._lm import LM


class Generated(str):
    """Generated text. `tokens`: its ids, the ending one included; `ended`: "length", "eos", "stop"."""

    tokens: list[int]
    ended: str

    @staticmethod
    def of(row: Any) -> Generated:
        text = Generated(row.text)
        text.tokens, text.ended = row.tokens, row.ended
        return text


def _program(rows: list[list[int]], options: dict[str, Any]) -> _native.Program:
    """One group a prompt: lengths may differ."""
    if options["max_new_tokens"] < 1:
        raise InvalidArgument(
            f"max_new_tokens={options['max_new_tokens']}", "at least 1", user_line()
        )
    program = _native.Program()
    for row in rows:
        program.add_group([row], where=user_line(), **options)
    return program


def run(lm: LM, prompt: _prompt.Prompt, bos: bool | None, options: dict[str, Any]) -> Any:
    rows = _prompt.parse(lm.tokenizer, prompt, bos)
    job = _native.Job(_program(rows.tokens, options), [], None, None)
    result = lm._run([job])[0]
    texts = [Generated.of(group.rows[0]) for group in result.groups]
    return texts[0] if rows.single else texts


class _End:
    def __init__(self, failure: BaseException | None) -> None:
        self.failure = failure


def stream(
    lm: LM, prompt: _prompt.Prompt, bos: bool | None, options: dict[str, Any]
) -> Iterator[str]:
    """Checks now; runs when the first piece is asked for."""
    rows = _prompt.parse(lm.tokenizer, prompt, bos)
    if not rows.single:
        raise InvalidArgument(
            "stream=True takes one prompt", "generate them without stream", user_line()
        )
    return _pieces(lm, _program(rows.tokens, options))


def _pieces(lm: LM, program: _native.Program) -> Iterator[str]:
    lm._check_free()  # the worker below is another thread and would not know
    pieces: queue.SimpleQueue[str | _End] = queue.SimpleQueue()
    cancel = _native.Cancel()

    def work() -> None:
        failure: BaseException | None = None
        try:
            job = _native.Job(program, [], None, lambda event: pieces.put(event[3]), cancel)
            lm._run([job])
        except BaseException as raised:
            failure = raised
        pieces.put(_End(failure))

    worker = threading.Thread(target=work, name="pellucid-stream", daemon=True)
    worker.start()
    try:
        while True:
            # A timeout, so that Ctrl-C is heard while waiting.
            try:
                piece = pieces.get(timeout=0.05)
            except queue.Empty:
                continue
            if isinstance(piece, _End):
                if piece.failure is not None:
                    raise piece.failure
                return
            if piece:
                yield piece
    finally:
        cancel.set()


@dataclass
class Score:
    """Log-probabilities of a text."""

    ids: list[int]
    tokens: torch.Tensor
    """[len(ids) - 1]: of each token after the first, given those before it."""

    @property
    def total(self) -> float:
        """Of the whole text, given its first token."""
        return float(self.tokens.sum())

    @property
    def mean(self) -> float:
        return float(self.tokens.mean())

    @property
    def perplexity(self) -> float:
        return float((-self.tokens.mean()).exp())


def score(lm: LM, texts: str | Sequence[str]) -> Any:
    rows = _prompt.parse(lm.tokenizer, texts)
    values = []
    for row in rows.tokens:
        if len(row) < 2:
            raise InvalidArgument(
                f"a text of {len(row)} token{'s' * (len(row) != 1)} has nothing to score",
                "a score needs a token and one before it",
                user_line(),
            )
    with lm.trace() as t:
        for row in rows.tokens:
            with t.prompt([row]):
                values.append(t.save(-t.nll()[0]))
    scores = [Score(row, value) for row, value in zip(rows.tokens, values, strict=True)]
    return scores[0] if rows.single else scores


class Chat:
    """A conversation. Calling it says something and returns the answer.

    >>> chat = lm.chat(system="You are brief.")
    >>> chat("How are you?")
    """

    def __init__(self, lm: LM, system: str | None, options: dict[str, Any]) -> None:
        self._lm = lm
        self._options = options
        self.messages: list[dict[str, str]] = []
        if system is not None:
            self.messages.append({"role": "system", "content": system})

    def __call__(self, text: str, **options: Any) -> Generated:
        """Says `text`; options as for generate, this time only."""
        messages = [*self.messages, {"role": "user", "content": text}]
        answer: Generated = self._lm.generate(messages, **{**self._options, **options})
        self.messages = [*messages, {"role": "assistant", "content": str(answer)}]
        return answer

    def stream(self, text: str, **options: Any) -> Iterator[str]:
        """The same, piece by piece; the turn counts when the answer has ended."""
        messages = [*self.messages, {"role": "user", "content": text}]
        pieces = []
        for piece in self._lm.generate(messages, stream=True, **{**self._options, **options}):
            pieces.append(piece)
            yield piece
        self.messages = [*messages, {"role": "assistant", "content": "".join(pieces)}]

    def reset(self) -> None:
        """Forgets all but the system message."""
        self.messages = [m for m in self.messages if m["role"] == "system"]
