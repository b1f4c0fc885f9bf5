"""pellucid.show_lens: what each layer would say at each position."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pellucid import _prompt
from pellucid._errors import InvalidArgument
from pellucid._where import user_line

if TYPE_CHECKING:
    from pellucid._lm import LM

_CELL_WIDTH = 10
_STYLE = """
.pellucid-lens{border-collapse:collapse;font:12px/1.3 ui-monospace,monospace;color:#111}
.pellucid-lens td,.pellucid-lens th{padding:2px 6px;border:1px solid #fff;text-align:center;
white-space:pre}
.pellucid-lens th{background:#eee;font-weight:600}
"""


@dataclass
class Lens:
    """The logit lens of a prompt: a picture in notebooks, a table in terminals."""

    tokens: list[str]
    """The prompt, token by token."""
    words: list[list[str]]
    """[layers][positions]: the token that the lens ranks first after each block."""
    probability: torch.Tensor
    """[layers, positions]: its probability."""

    def __str__(self) -> str:
        rows = [" " * 5 + "".join(_fit(token) for token in self.tokens)]
        for layer in range(len(self.words) - 1, -1, -1):
            cells = "".join(
                _coloured(_fit(word), float(p))
                for word, p in zip(self.words[layer], self.probability[layer], strict=True)
            )
            rows.append(f"{layer:>4} {cells}")
        return "\n".join(rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(_visible(token))}</th>" for token in self.tokens)
        body = []
        for layer in range(len(self.words) - 1, -1, -1):
            cells = "".join(
                f'<td style="background:{_rgb(float(p))}" title="layer {layer}, p={float(p):.4f}">'
                f"{html.escape(_visible(word))}</td>"
                for word, p in zip(self.words[layer], self.probability[layer], strict=True)
            )
            body.append(f"<tr><th>{layer}</th>{cells}</tr>")
        return (
            f"<style>{_STYLE}</style><table class='pellucid-lens'><tr><th></th>{head}</tr>"
            f"{''.join(body)}</table>"
        )

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes a self-contained HTML page."""
        page = (
            "<!doctype html><meta charset='utf-8'><title>Logit lens</title>"
            f"<body>{self._repr_html_()}</body>\n"
        )
        Path(file).write_text(page, encoding="utf-8")


def show_lens(lm: LM, prompt: _prompt.Prompt) -> Lens:
    """The logit lens of one prompt: last norm and unembedding applied after every block.

    >>> pellucid.show_lens(lm, "The capital of France is")
    """
    rows = _prompt.parse(lm.tokenizer, prompt)
    if len(rows.tokens) != 1:
        raise InvalidArgument(
            "show_lens shows one prompt", "show_lens(lm, prompts[0])", user_line()
        )
    with lm.trace(rows.tokens) as t:
        best = [t.save(lm.lens(block.resid_post)[0].softmax(-1).max(-1)) for block in lm.blocks]
    probability = torch.stack([top.values for top in best])
    words = [[lm.tokenizer.decode(int(i)) for i in top.indices] for top in best]
    return Lens([lm.tokenizer.decode(i) for i in rows.tokens[0]], words, probability)


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _fit(text: str) -> str:
    text = _visible(text)
    return (text if len(text) < _CELL_WIDTH else text[: _CELL_WIDTH - 2] + "…").ljust(_CELL_WIDTH)


def _rgb(p: float) -> str:
    return f"rgb({int(255 - 150 * p)},{int(255 - 80 * p)},{int(255 - 10 * p)})"


def _coloured(text: str, p: float) -> str:
    colours = (252, 153, 117, 75, 33)  # of 256-colour terminals, grey to blue
    return f"\x1b[48;5;{colours[min(int(p * 5), 4)]}m\x1b[38;5;16m{text}\x1b[0m"
