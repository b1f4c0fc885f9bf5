"""The models that case files may name: tiny random ones, made here by transformers, and real ones from the cache."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = ("tiny_llama", "tiny_llama_mha", "tiny_llama_mqa", "tiny_gpt2", "smollm2")
VOCAB = 300
END = "<|end|>"


def is_real(name: str) -> bool:
    return not name.startswith("tiny_")


@dataclass(frozen=True)
class ModelFiles:
    """`path` is what the engine loads, `reference` the Hugging Face folder with the same weights."""

    path: Path
    reference: Path


def real_model() -> ModelFiles | None:
    """None: not on this machine."""
    folder = Path(os.environ.get("PELLUCID_MODELS", Path.home() / ".cache/pellucid/models"))
    files = ModelFiles(folder / "smollm2-135m-q4_1.gguf", folder / "smollm2-135m-f32")
    return files if files.path.exists() and files.reference.exists() else None


def make_tiny(name: str, folder: Path) -> ModelFiles:
    from reference import tiny_gpt2, tiny_llama

    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "bos_token_id": VOCAB - 1,
        "eos_token_id": VOCAB - 1,
    }
    if name == "tiny_gpt2":
        tiny_gpt2(folder, n_embd=36, n_layer=4, n_head=4, n_inner=80, n_positions=256, **sizes)
    else:
        kv_heads = {"tiny_llama": 3, "tiny_llama_mha": 9, "tiny_llama_mqa": 1}[
            name
        ]  # ratios 3, 1, 9
        tiny_llama(
            folder,
            hidden_size=36,
            num_hidden_layers=4,
            num_attention_heads=9,
            num_key_value_heads=kv_heads,
            intermediate_size=80,
            max_position_embeddings=256,
            tie_word_embeddings=name == "tiny_llama_mqa",
            **sizes,
        )
    make_tokenizer().save(str(folder / "tokenizer.json"))
    return ModelFiles(folder, folder)


def make_tokenizer() -> Any:
    """Bytes, a few merges and an end of text."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [
        ("t", "h"),
        ("th", "e"),
        ("Ġ", "c"),
        ("Ġc", "a"),
        ("Ġ", "s"),
        ("Ġs", "a"),
        ("Ġsa", "t"),
    ]
    merges += [("Ġ", "d"), ("Ġd", "o")]
    vocab = {letter: i for i, letter in enumerate(letters)}
    for left, right in merges:
        vocab[left + right] = len(vocab)
    while len(vocab) < VOCAB - 1:
        vocab[f"<unused{len(vocab)}>"] = len(vocab)
    vocab[END] = VOCAB - 1
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END, special=True)])
    return tokenizer
