#!/usr/bin/env python3
"""Write SmolLM2's GGUF weights as Hugging Face folders, which the tests run with transformers as the reference.

Reads smollm2-135m-q4_1.gguf in the folder of models (see fetch_model.py) and writes beside it

    smollm2-135m       bfloat16
    smollm2-135m-f32   float32: exactly the dequantised weights

Deterministic: the same GGUF gives the same bytes, and the checksums below are verified.
"""

import json
import shutil
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from fetch_model import FILE_NAME, models_folder, sha256_of
from gguf import GGUFReader
from gguf.quants import dequantize

FOLDERS = {"smollm2-135m": "BF16", "smollm2-135m-f32": "F32"}
SHA256 = {
    "smollm2-135m": "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
    "smollm2-135m-f32": "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd",
}
TORCH_DTYPES = {"BF16": "bfloat16", "F32": "float32"}
CONTROL_TOKEN = 3  # GGUF's type of special tokens

NAMES_OUTSIDE = {
    "token_embd": "model.embed_tokens.weight",
    "output_norm": "model.norm.weight",
}
NAMES_IN_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hugging_face_name(gguf_name: str) -> str:
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight"""
    parts = gguf_name.removesuffix(".weight").split(".")
    if len(parts) == 1:
        return NAMES_OUTSIDE[parts[0]]
    _, layer, part = parts
    return f"model.layers.{layer}.{NAMES_IN_BLOCK[part]}.weight"


def split_rotary_halves(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """GGUF's llama rows of q and k alternate between the halves of a head's rotary pairs; Hugging Face's q and k hold
    the first halves, then the second ones."""
    by_pair = weight.reshape(num_heads, -1, 2, weight.shape[-1])
    return np.concatenate([by_pair[:, :, 0], by_pair[:, :, 1]], axis=1).reshape(weight.shape)


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """Rounds float32 to the nearest bfloat16, ties to even; returned as its 16 bits. (Weights hold no NaN.)"""
    bits = values.view(np.uint32)
    lowest_kept_bit = (bits >> 16) & 1
    return ((bits + np.uint32(0x7FFF) + lowest_kept_bit) >> 16).astype(np.uint16)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], dtype: str) -> None:
    """tensors: float32, converted to `dtype` as they are written."""
    width = {"F32": 4, "BF16": 2}[dtype]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in sorted(tensors.items()):
        begin, end = end, end + tensor.size * width
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust((len(text) + 7) // 8 * 8)
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)))
        out.write(text)
        for _, tensor in sorted(tensors.items()):
            values = np.ascontiguousarray(tensor, dtype="<f4")
            out.write((bfloat16_bits(values) if dtype == "BF16" else values).tobytes())


class Source:
    """The GGUF, in the terms of Hugging Face's files."""

    def __init__(self, path: Path):
        self.reader = GGUFReader(path)

    def get(self, key: str) -> Any:
        field = self.reader.get_field(key)
        if field is None:
            sys.exit(f"make_reference_model: the GGUF has no {key}; delete it and run ./dev setup")
        return field.contents()

    def tensors(self) -> dict[str, np.ndarray]:
        num_heads = {
            "attn_q": self.get("llama.attention.head_count"),
            "attn_k": self.get("llama.attention.head_count_kv"),
        }
        out = {}
        for tensor in self.reader.tensors:
            weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            part = tensor.name.removesuffix(".weight").split(".")[-1]
            if part in num_heads:
                weight = split_rotary_halves(weight, num_heads[part])
            out[hugging_face_name(tensor.name)] = weight
        return out

    def special_ids(self) -> dict[str, int]:
        return {
            "bos_token_id": self.get("tokenizer.ggml.bos_token_id"),
            "eos_token_id": self.get("tokenizer.ggml.eos_token_id"),
            "pad_token_id": self.get("tokenizer.ggml.padding_token_id"),
        }

    def config(self, dtype: str) -> dict[str, Any]:
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": self.get("llama.embedding_length"),
            "intermediate_size": self.get("llama.feed_forward_length"),
            "num_hidden_layers": self.get("llama.block_count"),
            "num_attention_heads": self.get("llama.attention.head_count"),
            "num_key_value_heads": self.get("llama.attention.head_count_kv"),
            "head_dim": self.get("llama.rope.dimension_count"),
            "max_position_embeddings": self.get("llama.context_length"),
            "rms_norm_eps": 1e-5,  # as published; the GGUF holds the float32 nearest to it
            "rope_theta": self.get("llama.rope.freq_base"),
            "rope_scaling": None,
            "vocab_size": self.get("llama.vocab_size"),
            "attention_bias": False,
            "mlp_bias": False,
            "attention_dropout": 0.0,
            "tie_word_embeddings": True,
            "initializer_range": 1 / 24,
            "use_cache": True,
            **self.special_ids(),
            "torch_dtype": TORCH_DTYPES[dtype],
        }

    def tokenizer(self) -> dict[str, Any]:
        tokens = self.get("tokenizer.ggml.tokens")
        kinds = self.get("tokenizer.ggml.token_type")
        special = [
            {
                "id": token_id,
                "content": tokens[token_id],
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token_id, kind in enumerate(kinds)
            if kind == CONTROL_TOKEN
        ]
        bytes_as_letters = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        }
        each_digit = {"type": "Digits", "individual_digits": True}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": special,
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [each_digit, bytes_as_letters]},
            "post_processor": None,
            "decoder": bytes_as_letters,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {token: token_id for token_id, token in enumerate(tokens)},
                "merges": [merge.split(" ") for merge in self.get("tokenizer.ggml.merges")],
            },
        }

    def tokenizer_config(self) -> dict[str, Any]:
        tokens = self.get("tokenizer.ggml.tokens")
        ids = self.special_ids()
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": self.get("llama.context_length"),
            "bos_token": tokens[ids["bos_token_id"]],
            "eos_token": tokens[ids["eos_token_id"]],
            "unk_token": tokens[self.get("tokenizer.ggml.unknown_token_id")],
            "pad_token": tokens[ids["pad_token_id"]],
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "chat_template": self.get("tokenizer.chat_template"),
        }


def write_folder(source: Source, tensors: dict[str, np.ndarray], target: Path, dtype: str) -> str:
    """Writes one Hugging Face folder, which appears whole or not at all; returns the weights' checksum."""
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    try:
        write_safetensors(scratch / "model.safetensors", tensors, dtype)
        documents = {
            "config.json": source.config(dtype),
            "generation_config.json": source.special_ids(),
            "tokenizer.json": source.tokenizer(),
            "tokenizer_config.json": source.tokenizer_config(),
        }
        for name, document in documents.items():
            text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
            (scratch / name).write_text(text, encoding="utf-8")
        digest = sha256_of(scratch / "model.safetensors")
        if digest != SHA256[target.name]:
            sys.exit(
                f"make_reference_model: {target.name} got sha256 {digest}, expected {SHA256[target.name]}: "
                "has the version of gguf or numpy changed? (tools/requirements.txt)"
            )
        scratch.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        scratch.rename(target)
        return digest
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main() -> None:
    models = models_folder()
    if not (models / FILE_NAME).exists():
        sys.exit(
            f"make_reference_model: {models / FILE_NAME} is missing; run tools/fetch_model.py first"
        )
    source = Source(models / FILE_NAME)
    tensors = source.tensors()
    for folder, dtype in FOLDERS.items():
        print(
            f"{write_folder(source, tensors, models / folder, dtype)}  {models / folder}/model.safetensors"
        )


if __name__ == "__main__":
    main()
