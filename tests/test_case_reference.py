"""The reference that case files are held to is itself equal to transformers: every site, plain and edited."""

from pathlib import Path

import pytest
import torch
from case_runner import models
from case_runner.reference_model import Cache, load_reference
from reference import TrueFloat64, reference_sites
from torch import Tensor

TINY = [name for name in models.NAMES if not models.is_real(name)]
TOKENS = torch.tensor([[84, 7, 299, 31, 5, 60], [1, 2, 3, 4, 5, 6]])
EDITED = (
    "blocks.1.attn.pattern",
    "blocks.1.ln2.scale",
    "blocks.2.attn.q_resid",
    "blocks.2.attn.result",
)


def load(name: str, folder: Path) -> tuple[torch.nn.Module, object]:
    from transformers import AutoModelForCausalLM

    files = models.make_tiny(name, folder)
    with TrueFloat64():  # rotary frequencies are made with the model
        model = AutoModelForCausalLM.from_pretrained(
            files.reference, dtype=torch.float64, attn_implementation="eager"
        )
    return model.eval(), load_reference(files.reference)


def far(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> list[str]:
    assert ours.keys() == theirs.keys()
    return [
        site
        for site, value in theirs.items()
        if not torch.allclose(ours[site], value.to(ours[site].dtype), rtol=1e-11, atol=1e-11)
    ]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", TINY)
def test_every_site_in_prefill_and_cached_decoding(name: str, tmp_path: Path) -> None:
    from transformers import DynamicCache

    model, reference = load(name, tmp_path)
    theirs_cache, cache = DynamicCache(), Cache()
    for part in (TOKENS[:, :4], TOKENS[:, 4:5], TOKENS[:, 5:]):
        ours: dict[str, Tensor] = {}
        reference.forward(part, cache, lambda site, x, to=ours: to.setdefault(site, x))  # type: ignore[attr-defined]
        with TrueFloat64():
            theirs = reference_sites(model, part, cache=theirs_cache)
        assert far(ours, theirs) == []


@pytest.mark.parametrize("site", EDITED)
@pytest.mark.parametrize("name", TINY)
def test_an_edit_where_transformers_has_no_module(name: str, site: str, tmp_path: Path) -> None:
    model, reference = load(name, tmp_path)
    ours: dict[str, Tensor] = {}

    def edit(x: Tensor) -> Tensor:
        return x * torch.linspace(0.5, 1.5, x.numel(), dtype=torch.float64).view(x.shape)

    def tap(at: str, x: Tensor) -> Tensor:
        ours[at] = x
        return edit(x) if at == site else x

    reference.forward(TOKENS, Cache(), tap)  # type: ignore[attr-defined]
    with TrueFloat64():
        theirs = reference_sites(model, TOKENS, {site: edit})
    assert far(ours, theirs) == []
