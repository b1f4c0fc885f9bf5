#!/usr/bin/env python3
"""Makes the golden values with transformers and PyTorch hooks; golden/README.md says when.

Run it with PYTHONPATH=tests from the root of the repository.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from case_runner import models
from reference import TrueFloat64
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

LAST_MLP = {"tiny_llama": "model.layers.3.mlp", "tiny_gpt2": "transformer.h.3.mlp"}


def logits(name: str, text: str, hook: Any, path: str) -> torch.Tensor:
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), TrueFloat64():
        files = models.make_tiny(name, Path(folder))
        model = AutoModelForCausalLM.from_pretrained(
            files.reference, dtype=torch.float64, attn_implementation="eager"
        ).eval()
        model.get_submodule(path).register_forward_hook(hook)
        ids = models.make_tokenizer().encode(text).ids
        out: torch.Tensor = model(torch.tensor([ids])).logits
    return out.contiguous()


def main() -> None:
    def double(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
        return output * 2

    values = {name: logits(name, "The cat", double, path) for name, path in LAST_MLP.items()}
    save_file(values, Path(__file__).parent / "double_mlp.safetensors")


if __name__ == "__main__":
    main()
