"""One process; each model is made or opened once for all tests."""

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

PROMPT = "The capital of France is"
LLAMA_VOCABULARY = 300


def models_folder() -> Path:
    return Path(os.environ.get("PELLUCID_MODELS", Path.home() / ".cache/pellucid/models"))


@pytest.fixture(scope="session")
def smol():
    """SmolLM2-135M in float32."""
    import pellucid

    if not any(models_folder().glob("smollm2*")):
        pytest.skip(f"no SmolLM2 in {models_folder()}: ./dev setup fetches it")
    return pellucid.load("smollm2")


@pytest.fixture(scope="session")
def smol_reference():
    """The same model in transformers, float32, explicit attention."""
    transformers = pytest.importorskip("transformers")
    folder = models_folder() / "smollm2-135m-f32"
    if not folder.is_dir():
        pytest.skip(f"no {folder}: tools/make_reference_model.py makes it")
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def save_tiny_tokenizer(folder: Path, size: int) -> None:
    """A byte-level tokenizer of `size` tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    words = [
        "the",
        "cat",
        "sat",
        "on",
        "mat",
        "dog",
        "ran",
        "to",
        "house",
        "bird",
        "sang",
        "river",
        "under",
        "mountain",
    ]
    texts = [" ".join(words[i:] + words[:i]) + ", " + " ".join(words[::-1]) for i in range(14)]
    tokenizer.train_from_iterator(texts, trainer)
    assert tokenizer.get_vocab_size() == size
    tokenizer.save(str(folder / "tokenizer.json"))


class Tiny:
    """A tiny float64 model: ours (`lm`) and Hugging Face's (`reference`)."""

    def __init__(self, make, folder, **overrides):
        import pellucid

        self.reference = make(folder, vocab_size=LLAMA_VOCABULARY, **overrides)
        save_tiny_tokenizer(folder, LLAMA_VOCABULARY)
        self.folder = folder
        self.lm = pellucid.load(str(folder), dtype=torch.float64)

    def sites(self, ids, edits=None):
        """Every site, computed by transformers with forward hooks."""
        from reference import TrueFloat64, reference_sites

        with TrueFloat64():
            return reference_sites(self.reference, ids, edits)


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    from reference import tiny_llama

    return Tiny(tiny_llama, tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory):
    from reference import tiny_gpt2

    return Tiny(tiny_gpt2, tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="session", params=["llama", "gpt2"])
def tiny(request):
    return request.getfixturevalue(request.param)
