"""The C++ readers of model files against the libraries that wrote the files: gguf and safetensors."""

import hashlib
import json
import os
import random
import struct
import subprocess
from pathlib import Path

import gguf
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PELLUCID_BUILD", ROOT / "build" / "dev"))
FILES_DUMP = BUILD / "tests" / "parity" / "files_dump"
MODELS = Path(os.environ.get("PELLUCID_MODELS", Path.home() / ".cache" / "pellucid" / "models"))
SEED = int(os.environ.get("PELLUCID_TEST_SEED", "1"))

Q = gguf.GGMLQuantizationType
BLOCK_TYPES = [Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K]
# Where a block holds its float16 scales: random bytes there would mostly be NaN, infinite or huge.
SCALES = {
    Q.Q4_0: [0],
    Q.Q4_1: [0, 2],
    Q.Q5_0: [0],
    Q.Q5_1: [0, 2],
    Q.Q8_0: [0],
    Q.Q2_K: [80, 82],
    Q.Q3_K: [108],
    Q.Q4_K: [0, 2],
    Q.Q5_K: [0, 2],
    Q.Q6_K: [208],
}


def dump(command: str, *arguments: str | Path) -> bytes:
    done = subprocess.run([FILES_DUMP, command, *arguments], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def describe(*paths: Path) -> list[dict]:
    """What the reader says of each file: metadata and tensors, or an error."""
    lines = dump("json", *paths).decode().splitlines()
    assert len(lines) == len(paths)
    return [json.loads(line) for line in lines]


def numbers(path: Path, *names: str) -> np.ndarray:
    return np.frombuffer(dump("numbers", path, *names), np.float32)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Bit for bit, -0 and infinities included; a NaN equals a NaN whatever its payload."""
    a, b = np.ascontiguousarray(a).ravel(), np.ascontiguousarray(b).ravel()
    nan = np.isnan(a)
    return (
        a.shape == b.shape
        and bool((nan == np.isnan(b)).all())
        and bool((a.view(np.uint32)[~nan] == b.view(np.uint32)[~nan]).all())
    )


def write_tensor(path: Path, data: np.ndarray, dtype: Q) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("t", data, raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- numbers


@pytest.mark.parametrize("kind", ["usual scales", "any bytes"])
@pytest.mark.parametrize("dtype", BLOCK_TYPES, ids=lambda t: t.name)
def test_dequantised_blocks_equal_the_gguf_package_bit_for_bit(tmp_path, dtype, kind):
    elements, block_bytes = GGML_QUANT_SIZES[dtype]
    random_numbers = np.random.default_rng(SEED)
    blocks = random_numbers.integers(0, 256, (24, 8, block_bytes), np.uint8)
    if kind == "usual scales":
        for at in SCALES[dtype]:
            scales = random_numbers.normal(0, 0.1, (24, 8)).astype(np.float16)
            blocks[:, :, at : at + 2] = scales[:, :, None].view(np.uint8)
    data = blocks.reshape(24, 8 * block_bytes)
    write_tensor(tmp_path / "m.gguf", data, dtype)
    with np.errstate(all="ignore"):
        expected = dequantize(data, dtype)
    got = numbers(tmp_path / "m.gguf", "t")
    assert got.size == 24 * 8 * elements
    assert same_bits(got, expected)


@pytest.mark.parametrize("dtype", [Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0], ids=lambda t: t.name)
def test_what_the_gguf_package_quantises_comes_back(tmp_path, dtype):
    data = np.random.default_rng(SEED).normal(size=(4, 64)).astype(np.float32)
    write_tensor(tmp_path / "m.gguf", quantize(data, dtype), dtype)
    got = numbers(tmp_path / "m.gguf", "t").reshape(4, 64)
    assert same_bits(got, dequantize(quantize(data, dtype), dtype))
    assert np.corrcoef(got.ravel(), data.ravel())[0, 1] > 0.99


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F32", "F64", "I8", "I16", "I32", "I64"])
def test_plain_numbers_equal_numpy_bit_for_bit(tmp_path, dtype):
    random_numbers = np.random.default_rng(SEED)
    if dtype in ("F16", "BF16"):  # every pattern of bits
        bits = np.arange(65536, dtype=np.uint16).reshape(256, 256)
        if dtype == "F16":
            data, expected = bits.view(np.float16), bits.view(np.float16).astype(np.float32)
        else:
            data = bits.view(np.uint8)
            expected = (bits.astype(np.uint32) << 16).view(np.float32)
    else:
        kind = {"F": "f", "I": "i"}[dtype[0]] + str(int(dtype[1:]) // 8)
        raw = random_numbers.integers(0, 256, (16, 32 * np.dtype(kind).itemsize), np.uint8)
        data = raw.view(kind)
        with np.errstate(all="ignore"):
            expected = data.astype(np.float32)
    write_tensor(tmp_path / "m.gguf", data, Q[dtype])
    assert same_bits(numbers(tmp_path / "m.gguf", "t"), expected)


def test_block_sizes_equal_the_gguf_package(tmp_path):
    """The list in ggml_type.cpp, through files that hold one block of each type, or a byte less."""
    for dtype, (elements, block_bytes) in GGML_QUANT_SIZES.items():
        header = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)
        header += struct.pack("<Q", 1) + b"t" + struct.pack("<IQIQ", 1, elements, int(dtype), 0)
        header += b"\0" * (-len(header) % 32)
        (tmp_path / f"{dtype.name}.gguf").write_bytes(header + b"\0" * block_bytes)
        (tmp_path / f"{dtype.name}-short.gguf").write_bytes(header + b"\0" * (block_bytes - 1))
    whole = describe(*(tmp_path / f"{dtype.name}.gguf" for dtype in GGML_QUANT_SIZES))
    short = describe(*(tmp_path / f"{dtype.name}-short.gguf" for dtype in GGML_QUANT_SIZES))
    for dtype, described, refused in zip(GGML_QUANT_SIZES, whole, short, strict=True):
        tensor = described["tensors"]["t"]
        assert (tensor["dtype"], tensor["bytes"]) == (dtype.name, GGML_QUANT_SIZES[dtype][1])
        assert "ends beyond the file" in refused["error"]


# ---- GGUF metadata

V = gguf.GGUFValueType
VALUES = {
    "u8": (255, V.UINT8),
    "i8": (-128, V.INT8),
    "u16": (65535, V.UINT16),
    "i16": (-32768, V.INT16),
    "u32": (2**32 - 1, V.UINT32),
    "i32": (-(2**31), V.INT32),
    "u64": (2**64 - 1, V.UINT64),
    "i64": (-(2**63), V.INT64),
    "f32": (float(np.float32(0.1)), V.FLOAT32),
    "f64": (0.1, V.FLOAT64),
    "bool": (True, V.BOOL),
    "string": ("café 語 \U0001f600", V.STRING),
}
ARRAYS = {
    "strings": ["a", "", "語", "x" * 1000],
    "ints": [1, -2, 3],
    "floats": [0.5, -2.0],
    "bools": [True, False],
}


def write_metadata(path: Path, version: int) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    for key, (value, kind) in VALUES.items():
        writer.add_key_value(key, value, kind)
    for key, values in ARRAYS.items():
        writer.add_array(key, values)
    writer.add_tensor("a.weight", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("b.weight", np.arange(4, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if version != 3:  # the same layout, another number
        data = bytearray(path.read_bytes())
        data[4:8] = struct.pack("<I", version)
        path.write_bytes(data)


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_that_the_gguf_package_writes_arrives(tmp_path, version):
    write_metadata(tmp_path / "m.gguf", version)
    got = describe(tmp_path / "m.gguf")[0]
    assert got["version"] == version
    for key, (value, kind) in VALUES.items():
        names = {V.FLOAT32: "f32", V.FLOAT64: "f64", V.BOOL: "bool", V.STRING: "string"}
        name = names.get(kind, kind.name.replace("UINT", "u").replace("INT", "i"))
        assert got["metadata"][key] == {"type": name, "value": value}
    for key, values in ARRAYS.items():
        assert got["metadata"][key]["value"]["values"] == values
    assert got["tensors"]["a.weight"]["shape"] == [2, 3]
    assert got["tensors"]["b.weight"]["dtype"] == "F16"
    assert list(numbers(tmp_path / "m.gguf", "a.weight")) == [0, 1, 2, 3, 4, 5]


def test_a_gguf_file_cut_anywhere_is_a_sentence(tmp_path):
    write_metadata(tmp_path / "m.gguf", 3)
    whole = (tmp_path / "m.gguf").read_bytes()
    end = whole.rindex(struct.pack("<e", 3.0)) + 2  # the last number; padding follows it
    sizes = [*range(1, 40), *random.Random(SEED).sample(range(40, end), 200)]
    paths = [tmp_path / f"{size}.gguf" for size in sizes]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(whole[:size])
    for size, described in zip(sizes, describe(*paths), strict=True):
        assert described["error"].startswith("corrupt_file: "), size


# ---- safetensors

TORCH_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def test_every_dtype_that_the_safetensors_package_writes_arrives(tmp_path):
    generator = torch.Generator().manual_seed(SEED)
    tensors = {
        name: (torch.randn(3, 5, generator=generator) * 10).to(dtype)
        for name, dtype in TORCH_DTYPES.items()
    }
    tensors["scalar"] = torch.tensor(2.5)
    tensors["none"] = torch.zeros(0, 4)
    safetensors.torch.save_file(tensors, tmp_path / "m.safetensors", {"format": "pt", "é": "\n"})
    got = describe(tmp_path / "m.safetensors")[0]
    assert got["metadata"] == {"format": "pt", "é": "\n"}
    assert got["tensors"].keys() == tensors.keys()
    for name, tensor in tensors.items():
        raw = (
            tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            if tensor.numel()
            else b""
        )
        assert got["tensors"][name]["shape"] == list(tensor.shape)
        assert got["tensors"][name]["sha256"] == hashlib.sha256(raw).hexdigest()
    every = torch.cat([tensor.float().view(-1) for tensor in tensors.values()])
    assert same_bits(numbers(tmp_path / "m.safetensors", *tensors), every.numpy())


def test_a_sharded_model_opens_as_one(tmp_path):
    first, second = {"a": np.ones(2, np.float32)}, {"b": np.zeros(3, np.float16)}
    safetensors.numpy.save_file(first, tmp_path / "model-00001-of-00002.safetensors")
    safetensors.numpy.save_file(second, tmp_path / "model-00002-of-00002.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index.write_text(json.dumps({"metadata": {"total_size": 14}, "weight_map": names}))
    assert describe(index)[0]["tensors"].keys() == {"a", "b"}
    assert list(numbers(index, "b")) == [0, 0, 0]


# ---- the real model


def test_all_tensors_of_smollm2_equal_the_gguf_package_bit_for_bit():
    path = MODELS / "smollm2-135m-q4_1.gguf"
    if not path.exists():
        pytest.skip(f"no {path}: ./dev setup fetches it")
    got = dict(reversed(line.split(" ", 1)) for line in dump("hashes", path).decode().splitlines())
    reader = gguf.GGUFReader(path)
    assert len(reader.tensors) == len(got) == 272
    for tensor in reader.tensors:
        expected = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        assert got[tensor.name] == hashlib.sha256(expected).hexdigest(), tensor.name
