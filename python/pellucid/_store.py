"""Programs on disk: the program in one file, its constants as safetensors beside it."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import torch

from pellucid import _native
from pellucid._errors import CorruptFile, InvalidArgument
from pellucid._recorder import dtype_name

_SAFETENSORS_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class StoredProgram:
    """A program and the constants that it names."""

    def __init__(self, program: _native.Program, constants: list[torch.Tensor]) -> None:
        self._native = program
        self.constants = constants

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the program: JSON for a name that ends in .json, else binary. Prompts are left out.

        Constants go to NAME.constants.safetensors beside it, named by their content.
        `pellucid trace MODEL FILE --prompt "..." --constants NAME.constants.safetensors` runs it.
        """
        path = Path(file)
        stored = self._native.without_tokens()
        hashes = [_content_hash(tensor) for tensor in self.constants]
        stored.set_hashes(hashes)
        data = stored.to_json().encode() if path.suffix == ".json" else stored.serialise()
        if self.constants:
            write_safetensors(constants_path(path), dict(zip(hashes, self.constants, strict=True)))
        path.write_bytes(data)

    @staticmethod
    def load(file: str | os.PathLike[str]) -> StoredProgram:
        """Reads what save() wrote."""
        path = Path(file)
        data = path.read_bytes()
        if path.suffix == ".json":
            program = _native.Program.from_json(data.decode())
        else:
            program = _native.Program.parse(data)
        constants: list[torch.Tensor] = []
        if program.num_constants:
            held = read_safetensors(constants_path(path))
            for digest in program.hashes:
                if digest not in held:
                    raise CorruptFile(f"{constants_path(path)} lacks the constant {digest}")
                constants.append(held[digest])
        return StoredProgram(program, constants)

    @property
    def nodes(self) -> list[_native.Node]:
        """What the program does, line by line."""
        nodes: list[_native.Node] = self._native.nodes
        return nodes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredProgram) and bool(self._native == other._native)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<program of {len(self.nodes)} nodes, {len(self.constants)} constants>"


def constants_path(program: Path) -> Path:
    return program.with_name(f"{program.name}.constants.safetensors")


def _bytes_of(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().cpu().contiguous()
    if plain.numel() == 0:
        return b""
    return plain.view(-1).view(torch.uint8).numpy().tobytes()


def _content_hash(tensor: torch.Tensor) -> str:
    return _native.constant_hash(dtype_name(tensor.dtype), list(tensor.shape), _bytes_of(tensor))


def write_safetensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    header: dict[str, object] = {}
    chunks: list[bytes] = []
    offset = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _SAFETENSORS_DTYPES:
            raise InvalidArgument(f"a constant of {dtype_name(tensor.dtype)} cannot be stored")
        data = _bytes_of(tensor)
        header[name] = {
            "dtype": _SAFETENSORS_DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    if not path.exists():
        raise CorruptFile(f"{path} is missing", "it belongs to the program beside it")
    data = path.read_bytes()
    names = {name: dtype for dtype, name in _SAFETENSORS_DTYPES.items()}
    try:
        (size,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + size])
        body = data[8 + size :]
        found = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            raw = (
                torch.frombuffer(bytearray(body[begin:end]), dtype=torch.uint8)
                if end > begin
                else (torch.empty(0, dtype=torch.uint8))
            )
            found[name] = raw.view(names[entry["dtype"]]).view(entry["shape"])
        return found
    except (struct.error, ValueError, KeyError, TypeError, RuntimeError) as failure:
        raise CorruptFile(f"{path} is no safetensors file: {failure}") from None
