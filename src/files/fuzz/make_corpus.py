#!/usr/bin/env python3
"""Writes the fuzz targets' first inputs, small right and nearly right files, into corpus/<target>/.

python3 src/files/fuzz/make_corpus.py      (needs nothing but Python; the same bytes every time)
"""

import json
import struct
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def array(kind: int, *elements: bytes) -> bytes:
    return struct.pack("<IQ", kind, len(elements)) + b"".join(elements)


def gguf(version: int, pairs: list[tuple[str, int, bytes]], tensors: list[tuple]) -> bytes:
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    for key, kind, value in pairs:
        out += text(key) + struct.pack("<I", kind) + value
    data = b""
    for name, shape, kind, bytes_ in tensors:
        data += b"\0" * (-len(data) % 32)
        out += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        out += struct.pack("<IQ", kind, len(data))
        data += bytes_
    return out + b"\0" * (-len(out) % 32) + data


def safetensors(header: dict, data: bytes) -> bytes:
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded + data


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


NUMBERS = [
    ("u8", U8, b"\xff"),
    ("i8", I8, b"\x80"),
    ("u16", U16, b"\1\2"),
    ("i16", I16, b"\1\2"),
    ("u32", U32, b"\1\0\0\0"),
    ("i32", I32, b"\xff" * 4),
    ("f32", F32, struct.pack("<f", 1.5)),
    ("bool", BOOL, b"\1"),
    ("u64", U64, b"\xff" * 8),
    ("i64", I64, b"\xff" * 8),
    ("f64", F64, struct.pack("<d", 0.1)),
]
ARRAYS = [
    ("general.architecture", STRING, text("llama")),
    ("general.alignment", U32, struct.pack("<I", 32)),
    ("tokens", ARRAY, array(STRING, text("a"), text(""), text("語"))),
    ("types", ARRAY, array(I32, b"\1\0\0\0", b"\2\0\0\0")),
    ("flags", ARRAY, array(BOOL, b"\0", b"\1")),
    ("deep", ARRAY, array(ARRAY, array(ARRAY, array(U8, b"x")), array(STRING, text("y")))),
    ("none", ARRAY, array(F64)),
]
TENSORS = [
    ("plain", (3, 2), 0, b"x" * 24),
    ("q4_1", (32, 1), 3, b"y" * 20),
    ("q6_k", (256,), 14, b"z" * 210),
    ("scalar", (), 0, b"1234"),
    ("none", (0, 4), 0, b""),
]
SAFE = {
    "__metadata__": {"format": "pt"},
    "a": entry("F32", [2, 1], 0, 8),
    "b": entry("U8", [3], 8, 11),
    "s": entry("BF16", [], 11, 13),
    "none": entry("I64", [0, 7], 13, 13),
}

INPUTS = {
    "gguf_fuzz/empty": gguf(3, [], []),
    "gguf_fuzz/numbers_v2": gguf(2, NUMBERS, []),
    "gguf_fuzz/arrays": gguf(3, ARRAYS, []),
    "gguf_fuzz/tensors": gguf(3, [], TENSORS),
    "gguf_fuzz/small_model": gguf(3, ARRAYS[:3], TENSORS[:2]),
    "gguf_fuzz/huge_counts": b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**62),
    "gguf_fuzz/overflowing_shape": gguf(3, [], [("t", (2**40, 2**40), 0, b"x" * 4)]),
    "safetensors_fuzz/empty": safetensors({}, b""),
    "safetensors_fuzz/small": safetensors(SAFE, b"AAAABBBBCCCDD"),
    "safetensors_fuzz/escapes": safetensors({'a"\\é\u2028': entry("U8", [1], 0, 1)}, b"A"),
    "safetensors_fuzz/overlap": safetensors(
        {"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, b"AAA"
    ),
    "safetensors_fuzz/overflow": safetensors({"a": entry("F64", [2**32, 2**32], 0, 8)}, b"A" * 8),
    "safetensors_fuzz/nested": struct.pack("<Q", 64) + b'{"a":{"shape":' + b"[" * 50,
}


def main() -> None:
    for name, content in INPUTS.items():
        path = CORPUS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    print(f"{len(INPUTS)} inputs in {CORPUS}")


if __name__ == "__main__":
    main()
