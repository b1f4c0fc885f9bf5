"""Every operation that a program may use, recorded, stored, loaded and replayed on torch's own samples."""

import functools
import itertools
import json
import math
import os
import re
import subprocess
import warnings
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch.testing._internal.common_methods_invocations import op_db

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PELLUCID_BUILD", ROOT / "build" / "dev"))
REPLAY = BUILD / "tests" / "parity" / "program_replay"
DTYPES = (torch.float32, torch.float64, torch.int64)
SAMPLES = 4  # of each overload and dtype
SAMPLES_TRIED = 24
ELEMENTS_MAX = 100_000

# Refused on purpose, with a sentence of its own.
REFUSED = re.compile(
    r"needs num_classes|random|training|wants an int, not constant|wants a list, not constant"
    r"|wants a number, not constant|memory format"
)


def listed() -> list[str]:
    source = (ROOT / "src" / "program" / "op_list.cpp").read_text()
    table = source.split("kAllowed[] = {")[1].split("};")[0]
    return re.findall(r'"([\w.]+)"', table)


def overload(name: str):
    base, _, rest = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), rest or "default")


# ---- a program from a call


class Recorder:
    """Turns one call into a program whose constants are the call's tensors."""

    def __init__(self):
        self.constants = []

    def arg(self, value, *, clone_into=None):
        if isinstance(value, torch.Tensor):
            for index, known in enumerate(self.constants):
                if known is value:
                    return {"constant": index}
            self.constants.append(value)
            return {"constant": len(self.constants) - 1}
        if value is None:
            return {"none": True}
        if isinstance(value, bool):
            return {"boolean": value}
        if isinstance(value, int):
            return {"integer": value}
        if isinstance(value, float):
            if math.isnan(value):
                return {"number": "NaN"}
            return {
                "number": value
                if math.isfinite(value)
                else "Infinity"
                if value > 0
                else "-Infinity"
            }
        if isinstance(value, str):
            return {"text": value}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.memory_format):
            return {"text": str(value).removeprefix("torch.")}
        if isinstance(value, list | tuple):
            return {"list": {"items": [self.arg(one) for one in value]}}
        raise TypeError(type(value).__name__)


def program(name: str, args, kwargs, num_outputs: int, in_place: bool):
    recorder = Recorder()
    wire_args = [recorder.arg(a) for a in args]
    wire_kwargs = [{"name": k, "arg": recorder.arg(v)} for k, v in kwargs.items()]
    nodes = []
    if in_place:  # constants are never written to
        nodes.append({"kind": "OP", "name": "aten::clone", "args": [wire_args[0]]})
        wire_args[0] = {"node": {}}
    op = len(nodes)
    nodes.append({"kind": "OP", "name": f"aten::{name}", "args": wire_args, "kwargs": wire_kwargs})
    for k in range(num_outputs):
        nodes.append(
            {"kind": "SAVE", "name": f"o{k}", "args": [{"node": {"node": op, "output": k}}]}
        )
    constants = [
        {"dtype": str(c.dtype).removeprefix("torch."), "shape": list(c.shape)}
        for c in recorder.constants
    ]
    return {"version": 1, "nodes": nodes, "constants": constants}, recorder.constants


def flat(value) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for item in value for one in flat(item)]


def replay(folder: Path, cases: list) -> list:
    """[(program, constants)] -> [{name: tensor} or {"error": ...}], in one process."""
    tensors = {
        f"{i}.{k}": constant.detach().clone(memory_format=torch.contiguous_format)
        for i, (_, constants) in enumerate(cases)
        for k, constant in enumerate(constants)
    }
    safetensors.torch.save_file(tensors, folder / "constants.safetensors")
    (folder / "programs.jsonl").write_text("".join(json.dumps(p) + "\n" for p, _ in cases))
    done = subprocess.run(
        [
            REPLAY,
            folder / "constants.safetensors",
            folder / "programs.jsonl",
            folder / "results.safetensors",
        ],
        capture_output=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr.decode()
    results = safetensors.torch.load_file(folder / "results.safetensors")
    answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert len(answers) == len(cases)
    return [
        a if "error" in a else {name: results[f"{i}.{name}"] for name in a["saved"]}
        for i, a in enumerate(answers)
    ]


# ---- samples


def infos_by_name() -> dict:
    out = {}
    for index, info in enumerate(op_db):
        names = {info.name, info.name.split(".")[-1], info.name.replace(".", "_"), info.aten_name}
        names |= {alias.name for alias in info.aliases or ()}
        names |= {alias.name.replace(".", "_") for alias in info.aliases or ()}
        for name in names:
            out.setdefault(name, []).append(index)
    return out


# Operations that OpInfo knows by another name, or not at all.
SAME_SAMPLES = {
    "alias": "clone",
    "detach": "clone",
    "type_as": "add",
    "linalg_matmul": "matmul",
    "linalg_matrix_exp": "matrix_exp",
    "numpy_T": "t",
    "nll_loss_nd": "nll_loss",
    "cross_entropy_loss": "cross_entropy",
}


def make(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(shape) + 1)
    if dtype.is_floating_point:
        return torch.randn(*shape, generator=generator, dtype=dtype)
    return torch.randint(-5, 6, shape, generator=generator, dtype=dtype)


def by_hand(name: str, dtype) -> list:
    """(args, kwargs) for overloads that no sample of OpInfo calls."""
    x, y = make(3, 4, dtype=dtype), make(3, 4, dtype=dtype)
    mask = make(3, 4) > 0
    rows = torch.tensor([2, 0])
    cases = {
        "index.Tensor": [
            ((x, [rows]), {}),
            ((x, [None, torch.tensor([[0, 3], [1, 1]])]), {}),
            ((x, [mask]), {}),
            ((x, [torch.tensor([True, False, True])]), {}),
            ((make(2, 3, 4, dtype=dtype), [rows.clamp(max=1), None, rows]), {}),
            ((x, [rows[:, None], rows]), {}),
        ],
        "index_put": [((x, [mask], torch.tensor(3, dtype=dtype)), {}), ((x, [rows], y[:2]), {})],
        "copy_": [((x, y), {}), ((x, y[0]), {}), ((x, y.to(torch.float64)), {})],
        "fill_diagonal_": [((x, 2), {})],
        "to.other": [((x, y.to(torch.float64)), {})],
        "to.dtype": [
            ((x, torch.float64), {}),
            ((x, x.dtype), {}),
            ((x, torch.int64), {}),
            ((x, torch.bool), {}),
        ],
        "to.dtype_layout": [((x,), {"dtype": torch.float64}), ((x,), {})],
        "where.Scalar": [((mask, 1, 2), {}), ((mask, 1.5, 0), {})],
        "where.ScalarOther": [((mask, x, 2), {}), ((mask, x, 2.5), {})],
        "where.ScalarSelf": [((mask, 2, x), {})],
        "arange": [((5,), {}), ((5.5,), {}), ((5,), {"dtype": torch.float32})],
        "arange.start": [((2, 7), {})],
        "arange.start_step": [((2, 9, 3), {})],
        "zeros": [(([2, 3],), {}), (([2, 3],), {"dtype": torch.int64})],
        "ones": [(([2, 3],), {})],
        "full": [(([2, 3], 7), {}), (([2], 0.5), {}), (([2], True), {})],
        "eye": [((3,), {})],
        "eye.m": [((3, 4), {})],
        "linspace": [((0.0, 1.0, 5), {})],
        "logspace": [((0.0, 1.0, 5), {})],
        "scalar_tensor": [((2.5,), {})],
        "tril_indices": [((3, 4), {})],
        "triu_indices": [((3, 4, 1), {})],
        "add.Scalar": [((x, 2), {}), ((x, 2.5), {})],
        "add_.Scalar": [((x, 2), {})],
        "sub.Scalar": [((x, 2), {})],
        "sub_.Scalar": [((x, 2), {})],
        "div.Tensor": [((x, y), {}), ((x, 3), {})],
        "mul.Tensor": [((x, 2), {}), ((x, 0.5), {}), ((x, True), {}), ((mask, x), {})],
        "cross_entropy_loss": [((make(5, 7), torch.tensor([1, 2, 3, 4, 6])), {})],
        "scaled_dot_product_attention": [
            ((make(1, 2, 5, 8), make(1, 2, 5, 8), make(1, 2, 5, 8)), {"is_causal": True}),
            ((make(1, 4, 5, 8), make(1, 2, 5, 8), make(1, 2, 5, 8)), {"enable_gqa": True}),
        ],
        "batch_norm": [
            (
                (make(2, 3, 4), None, None, torch.zeros(3), torch.ones(3), False, 0.1, 1e-5, False),
                {},
            )
        ],
        "dropout": [((x, 0.5, False), {})],
        "one_hot": [((torch.tensor([[0, 2], [1, 3]]), 5), {})],
        "embedding": [((make(9, 4), torch.tensor([[1, 8], [0, 3]])), {})],
        "einsum": [(("ij,jk->ik", [make(3, 4), make(4, 5)]), {}), (("ij->ji", [make(3, 4)]), {})],
        "masked_fill.Scalar": [((x, mask, 2), {})],
        "masked_fill_.Scalar": [((x, mask, 2), {})],
        "pad": [((make(2, 3), [1, 2]), {})],
        "flatten.using_ints": [((make(2, 3, 4),), {}), ((make(2, 3, 4), 1), {})],
        "split.Tensor": [((make(7, 2), 3), {})],
        "max_pool1d": [((make(1, 2, 8), [2]), {})],
        "where.self": [((mask, x, y), {}), ((mask, x, y[0]), {}), ((mask, x, make(3, 4)), {})],
        "clamp": [((x, -1, 1), {}), ((x, None, 0), {}), ((x,), {"min": 0.5})],
        "clip": [((x, -1, 1), {})],
        "clip_": [((x, -1, 1), {})],
        "fill_.Tensor": [((x, torch.tensor(2, dtype=dtype)), {})],
        "norm.ScalarOpt_dim_dtype": [((x, 2, [1], False), {"dtype": torch.float64})],
        "norm.ScalarOpt_dtype": [((x, 2), {"dtype": torch.float64})],
        "quantile": [
            ((make(3, 4), torch.tensor([0.25, 0.5]), 1), {}),
            ((make(3, 4), torch.tensor(0.5)), {}),
        ],
        "nanquantile": [((make(3, 4), torch.tensor([0.25, 0.5]), 1), {})],
        "tensordot": [((make(3, 4), make(4, 5), [1], [0]), {})],
        "cdist": [((make(3, 4), make(5, 4)), {}), ((make(3, 4), make(5, 4), 1.0), {})],
        "linalg_norm.ord_str": [((make(3, 4), "fro"), {}), ((make(3, 4), "nuc"), {})],
        "linalg_pinv": [((make(3, 4), 1e-4), {})],
        "huber_loss": [
            ((make(3, 4), make(3, 4) + 1), {}),
            ((make(3, 4), make(3, 4) + 1, 0, 0.5), {}),
        ],
        "nll_loss": [((make(5, 7), torch.tensor([1, 2, 3, 4, 6])), {})],
        "nll_loss_nd": [
            ((make(5, 7), torch.tensor([1, 2, 3, 4, 6])), {}),
            ((make(2, 7, 3), torch.ones(2, 3).long()), {}),
        ],
        "kl_div": [
            ((make(3, 4), make(3, 4), r), {"log_target": t})
            for r in (0, 1, 2)
            for t in (False, True)
        ],
        "cosine_embedding_loss": [((make(3, 4), make(3, 4) + 1, torch.tensor([1.0, -1, 1])), {})],
        "margin_ranking_loss": [((make(4), make(4) + 1, torch.tensor([1.0, -1, 1, 1])), {})],
        "poisson_nll_loss": [((make(3, 4), make(3, 4).abs(), True, False, 1e-8, 1), {})],
        "nonzero": [((x,), {}), ((mask,), {}), ((torch.zeros(3, 4, dtype=dtype),), {})],
        "searchsorted.Scalar": [((torch.arange(5, dtype=dtype), 2.5), {})],
        "bucketize.Scalar": [((2.5, torch.arange(5, dtype=dtype)), {})],
        "broadcast_tensors": [(([x, y[0]],), {}), (([x[:, :1], y[:1]],), {})],
        "movedim.int": [((make(2, 3, 4), 0, 2), {})],
        "moveaxis.int": [((make(2, 3, 4), 0, -1), {})],
        "meshgrid": [(([make(3), make(4)],), {})],
        "meshgrid.indexing": [(([make(3), make(4)],), {"indexing": "xy"})],
        "cartesian_prod": [(([make(3), make(4)],), {}), (([make(3)],), {})],
        "block_diag": [(([make(3, 2), make(4)],), {})],
    }
    if name in cases:
        return cases[name]
    # Overloads with numbers: whatever the schema takes of these.
    numbers = [((x, 2), {}), ((x, 0.5), {}), ((2, x), {}), ((1.5, x), {}), ((x, True), {})]
    modes = [((x, 2), {"rounding_mode": mode}) for mode in ("floor", "trunc", None)]
    return (
        modes
        if name.endswith("_mode")
        else numbers
        if "scalar" in name.lower() or "clamp_" in name
        else []
    )


@functools.cache
def of_info(index: int, dtype) -> list:
    torch.manual_seed(0)
    some = itertools.islice(op_db[index].sample_inputs("cpu", dtype), SAMPLES_TRIED)
    return [((one.input, *one.args), dict(one.kwargs)) for one in some]


def samples(name: str, infos: dict) -> list:
    base = name.split(".")[0]
    functional = base.removesuffix("_")
    found = []
    for dtype in DTYPES:
        found += by_hand(name, dtype)
        wanted = (
            infos.get(base)
            or infos.get(functional)
            or infos.get(functional.removeprefix("special_"))
        )
        wanted = wanted or infos.get(SAME_SAMPLES.get(base, SAME_SAMPLES.get(functional, "")))
        for index in wanted or ():
            if dtype not in op_db[index].supported_dtypes("cpu"):
                continue
            found += of_info(index, dtype)
    return found


def simple(value) -> bool:
    if isinstance(value, torch.Tensor):
        return (
            value.layout == torch.strided
            and value.numel() <= ELEMENTS_MAX
            and value.dtype
            in (
                torch.float32,
                torch.float64,
                torch.float16,
                torch.bfloat16,
                torch.int64,
                torch.int32,
                torch.int16,
                torch.int8,
                torch.uint8,
                torch.bool,
            )
        )
    if isinstance(value, list | tuple):
        return all(simple(one) for one in value)
    if isinstance(value, complex | torch.device | torch.Generator | torch.layout):
        return False
    return True


def detached(value):
    if isinstance(value, torch.Tensor):
        return value.detach().clone(memory_format=torch.contiguous_format)
    if isinstance(value, list | tuple):
        return [detached(one) for one in value]
    return value


def calls(name: str, infos: dict) -> list:
    """The calls of this very overload among the samples, with what torch answers."""
    op = overload(name)
    in_place = name.split(".")[0].endswith("_")
    kept, kinds = [], {}
    for args, kwargs in samples(name, infos):
        kwargs = {k: v for k, v in kwargs.items() if k not in ("device", "layout", "pin_memory")}
        if not simple(args) or not all(simple(v) for v in kwargs.values()):
            continue
        if name.split(".")[0] == "einsum" and isinstance(args[0], list | tuple):
            args = (args[1], list(args[0]))  # OpInfo has them the other way round
        first = args[0].dtype if isinstance(args[0], torch.Tensor) else None
        if kinds.get(first, 0) >= SAMPLES:
            continue
        args, kwargs = tuple(detached(args)), detached_kwargs(kwargs)
        work = detached(args)
        try:
            want = op(*work, **kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue  # a sample of another overload
        want = [w.detach().clone(memory_format=torch.contiguous_format) for w in flat(want)]
        if any(w.is_complex() or w.numel() > ELEMENTS_MAX for w in want):
            continue
        kinds[first] = kinds.get(first, 0) + 1
        kept.append((program(name, args, kwargs, len(want), in_place), want, (args, kwargs)))
    return kept


def detached_kwargs(kwargs):
    return {k: detached(v) for k, v in kwargs.items()}


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return (
        a.contiguous().flatten().view(torch.uint8).equal(b.contiguous().flatten().view(torch.uint8))
    )


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    warnings.simplefilter("ignore")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    infos = infos_by_name()
    with torch.no_grad():
        by_op = {name: calls(name, infos) for name in listed()}
    cases = [case for kept in by_op.values() for case, _, _ in kept]
    answers = iter(replay(tmp_path_factory.mktemp("ops"), cases))
    torch.set_num_threads(threads)
    return {
        name: [(next(answers), want, call) for _, want, call in kept]
        for name, kept in by_op.items()
    }


def test_every_listed_operation_has_samples(replayed):
    assert [name for name, got in replayed.items() if not got] == []


def test_replaying_a_stored_program_gives_the_bits_that_torch_gives(replayed):
    wrong = []
    for name, results in replayed.items():
        for got, want, (args, kwargs) in results:
            if "error" in got:
                if not REFUSED.search(got["error"] + got["hint"]):
                    wrong.append(f"{name}: {got['code']}: {got['error']}")
            elif len(got) != len(want) or not all(
                same_bits(got[f"o{k}"], one) for k, one in enumerate(want)
            ):
                wrong.append(f"{name}: other bits for {args} {kwargs}"[:300])
    assert wrong == []


def test_every_listed_operation_is_replayed_at_least_once(replayed):
    assert [
        name for name, results in replayed.items() if all("error" in got for got, _, _ in results)
    ] == []
