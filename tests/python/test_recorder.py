"""Torch code on traced values becomes a program that computes what torch computes."""

import copy

import einops
import numpy as np
import pellucid
import pytest
import torch
import torch.nn.functional as F
from pellucid._tree import tensors_of
from replay import inputs, operations, record, replayed
from torch import nn

torch.manual_seed(0)
LINEAR = nn.Linear(8, 8).eval()
MLP = nn.Sequential(
    nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(16), nn.Linear(16, 8)
).eval()
ATTENTION = nn.MultiheadAttention(8, 2, batch_first=True).eval()
ENCODER = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
CONVOLUTION = nn.Conv1d(5, 5, 3).eval()
NORM = nn.BatchNorm1d(5).eval()


def edit(lines):
    """A function that runs `lines` (an edit of x) and returns x."""

    def function(x, y, ids):
        names = {"x": x, "y": y, "ids": ids, "torch": torch}
        exec(lines, names)  # in-place statements need names to assign to
        return names["x"]

    return function


EXPRESSIONS = {
    "linear": lambda x, y, i: LINEAR(x),
    "mlp with dropout off": lambda x, y, i: MLP(x),
    "attention module": lambda x, y, i: ATTENTION(x, y, y)[0],
    "encoder layer": lambda x, y, i: ENCODER(x),
    "convolution": lambda x, y, i: CONVOLUTION(x),
    "batch norm in eval": lambda x, y, i: NORM(x),
    "indexing": lambda x, y, i: (
        x[:, -1],
        x[..., 2:],
        x[0],
        x[:, None],
        x[1, 2, 3],
        x[-1, :, ::2],
        x[:, 1:][:, :2],
    ),
    "lists of positions": lambda x, y, i: (
        x[:, [0, 2]],
        x[[0, 1], [1, 2]],
        x[:, torch.tensor([1])],
        x[:, np.array([1, 3])],
        x[:, range(2)],
    ),
    "a list after an int": lambda x, y, i: x[0, [1, 2]],
    "two lists with a slice between": lambda x, y, i: x[[0, 1], :, [1, 2]],
    "masks": lambda x, y, i: (x[x > 0], x[x[:, :, 0] > 0], (x[x > 0] * 2).sum()),
    "nonzero, masked_select": lambda x, y, i: ((x > 0).nonzero(), x.masked_select(x > 0) * 2),
    "a mask and an int": lambda x, y, i: x[x[:, :, 0] > 0, 3],
    "traced integers": lambda x, y, i: (x[:, i[0, 0]], x[i[0, 1]], y[:, :, i[0, 0]]),
    "traced positions": lambda x, y, i: x[:, i],
    "topk": lambda x, y, i: x.topk(2),
    "max": lambda x, y, i: x.max(-1),
    "iteration": lambda x, y, i: [row * 2 for row in x],
    "unbind": lambda x, y, i: x.unbind(1)[2],
    "chunk, split": lambda x, y, i: (x.chunk(2, -1)[1], x.split([2, 3], 1)[1], x.split(2, 1)[2]),
    "einsum": lambda x, y, i: torch.einsum("bsd,bsd->bs", x, y),
    "einops": lambda x, y, i: (
        einops.rearrange(x, "b s (h d) -> b h s d", h=2),
        einops.reduce(x, "b s d -> b d", "mean"),
        einops.einsum(x, y, "b s d, b t d -> b s t"),
    ),
    "cross entropy": lambda x, y, i: F.cross_entropy(x[:, -1], i[:, 0]),
    "numbers on the left": lambda x, y, i: (1 - x, 2 / (x * x + 1), 2**x, 3 > x, abs(-x), 2 * x),
    "arithmetic": lambda x, y, i: (x**2, x // 1, x % 2, x == y, x / 3, x @ y.mT, ~(x > 0)),
    "stack, cat": lambda x, y, i: (torch.stack([x, y]), torch.cat([x, y], 1)),
    "stack with an ordinary tensor": lambda x, y, i: torch.stack([x, torch.ones(2, 5, 8)]),
    "where": lambda x, y, i: torch.where(x > 0, x, 0.0),
    "ordinary tensors": lambda x, y, i: (x + torch.ones(8), torch.ones(8) + x, torch.eye(8) @ x.mT),
    "gather": lambda x, y, i: x.gather(1, torch.tensor([[[1] * 8], [[2] * 8]])),
    "embedding": lambda x, y, i: F.embedding(i, torch.arange(40.0).view(5, 8)),
    "dtypes": lambda x, y, i: (
        x.double(),
        x.to(torch.float16),
        x.to("cpu"),
        x.to(y),
        x.type(torch.int32),
    ),
    "ordinary to the dtype of a traced one": lambda x, y, i: torch.ones(8).to(x) * x,
    "norms": lambda x, y, i: (x.std(-1), x.var(-1, unbiased=False), x.norm(), x.norm(dim=-1)),
    "linalg": lambda x, y, i: (torch.linalg.norm(x, dim=-1), torch.linalg.svdvals(x[0])),
    "attention": lambda x, y, i: F.scaled_dot_product_attention(x, y, y, is_causal=True),
    "zeros_like": lambda x, y, i: torch.zeros_like(x, device="cpu") + x,
    "new_tensor": lambda x, y, i: x + x.new_tensor([1.0] * 8),
    "kl_div": lambda x, y, i: F.kl_div(
        x.log_softmax(-1), y.log_softmax(-1), log_target=True, reduction="batchmean"
    ),
    "sort": lambda x, y, i: x.sort(-1),
    "one_hot": lambda x, y, i: F.one_hot(i, 5),
    "shapes": lambda x, y, i: (
        x.permute(2, 0, 1).contiguous().view(8, -1),
        x.reshape(10, -1),
        x[0].T,
        x[:, :1].expand_as(x),
        x.repeat(1, 2, 1),
        x.flatten(1),
        x.unflatten(-1, (2, 4)),
        x.view(*x.shape[:-1], 2, 4),
    ),
    "a float64 scalar tensor": lambda x, y, i: x * torch.tensor(2.0, dtype=torch.float64),
    "detach, data, deepcopy": lambda x, y, i: (x.detach() * 2, x.data + 1, copy.deepcopy(x)),
    "builtin sum": lambda x, y, i: sum([x, y]),
    "scatter": lambda x, y, i: torch.zeros_like(x).scatter(-1, i[:, :, None].expand(2, 2, 1), 1.0),
    "python sizes": lambda x, y, i: x * len(x) * x.size(1) * x.numel() * x.dim() * x.shape[-1],
    "tril": lambda x, y, i: (x @ x.mT).tril(),
    "logsumexp, cumsum, flip": lambda x, y, i: (x.logsumexp(-1), x.cumsum(1).flip(1), x.roll(1, 1)),
    "no numbers lost with in-place numbers": lambda x, y, i: x.clone().fill_(3).mul_(2.5),
}
EDITS = [
    "x[:, -1] += 4 * y[:, 0]",
    "x[:] = y * 2",
    "x[:] *= 2",
    "h = x[:]; h += 1; h[:, 0] = 3; x[...] -= 1",
    "x[:, 1:3] = 0.0",
    "x[:, 1:3] = 2",
    "x[x > 0] = 0.0",
    "x[x > 0] *= 3",
    "x[x.sum(-1) > 0] *= 2",
    "x[:, [0, 2]] = y[:, [1, 3]]",
    "x[:, torch.tensor([0, 2]), 3] += 1",
    "x[0] = torch.ones(5, 8)",
    "x[:, :, None][:, :, 0] = 3",
    "x[:, ids[0, 0]] = 5.0",
    "a, b = x.chunk(2, -1); a += 1; b *= 2",
    "r = x.unbind(1); r[2].mul_(3)",
    "x += y; x *= 2; x[..., 0] = y[..., 1]; x -= 1; x /= 3",
    "x[..., :4] = y[..., 4:].double()",
    "x[:, 0] = y[:, :1, :].transpose(0, 1)",
    "h = x[:, 1:]; h[:, 0] = 7; x[:, 0] = h[:, 0]",
    "x.copy_(y); x.clamp_(min=0)",
    "x[:, :2], x[:, 2:4] = y[:, 2:4], y[:, :2]",
    "x[1, 2, 3] = 9",
    "x[:, ::2] -= y[:, ::2]",
]


def check(function):
    values, recorder, traced = replayed(function)
    expected = tensors_of(function(*inputs().values()))
    assert len(values) == len(expected)
    for value, want, seen in zip(values, expected, traced, strict=True):
        assert torch.equal(value, want)
        assert value.dtype == want.dtype
        if seen._other is None:
            assert seen.shape == want.shape
            assert seen.dtype == want.dtype
    return recorder


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_computes_what_torch_computes(name):
    check(EXPRESSIONS[name])


@pytest.mark.parametrize("lines", EDITS)
def test_an_edit_in_place_means_what_it_means_in_torch(lines):
    check(edit(lines))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_program_survives_being_written_and_read_back(name):
    recorder, _ = record(EXPRESSIONS[name])
    program = recorder.program
    assert pellucid._native.Program.parse(program.serialise()) == program
    assert pellucid._native.Program.from_json(program.to_json()) == program


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x, y, i: LINEAR(x), ["aten::linear"]),
        (lambda x, y, i: F.layer_norm(x, (8,)), ["aten::layer_norm"]),
        (lambda x, y, i: torch.einsum("bsd,btd->bst", x, y), ["aten::einsum"]),
        (
            lambda x, y, i: F.scaled_dot_product_attention(x, y, y),
            ["aten::scaled_dot_product_attention"],
        ),
        (
            lambda x, y, i: F.cross_entropy(x[:, 0], i[:, 0]),
            ["aten::select.int"] * 2 + ["aten::cross_entropy_loss"],
        ),
        (lambda x, y, i: x.softmax(-1), ["aten::softmax.int"]),
    ],
)
def test_composite_operations_stay_whole(function, names):
    recorder, _ = record(function)
    assert operations(recorder) == names


def test_an_edit_through_a_view_is_a_view_and_one_operation():
    recorder, _ = record(edit("x[:, -1] += 1"))
    assert operations(recorder) == ["aten::select.int", "aten::add_.Tensor"]


def test_numbers_stay_numbers():
    recorder, _ = record(lambda x, y, i: x * 2.0)
    assert recorder.program.nodes[-1].args[1] == 2.0
    assert recorder.program.num_constants == 0


def test_nothing_is_recorded_for_ordinary_tensors():
    def function(x, y, ids):
        plain = torch.ones(3).cumsum(0) * 2
        assert type(plain) is torch.Tensor
        assert plain.tolist() == [2, 4, 6]
        return x

    recorder, _ = record(function)
    assert operations(recorder) == []


def test_a_constant_is_used_by_reference_and_once():
    weight = torch.ones(8)
    recorder, _ = record(lambda x, y, i: (x * weight, y * weight))
    assert len(recorder.constants) == 1
    assert recorder.constants[0] is weight


def test_unused_pieces_leave_no_trace():
    recorder, _ = record(lambda x, y, i: x.unbind(1)[3] * 2)
    assert operations(recorder) == ["aten::select.int", "aten::mul.Tensor"]


def test_no_grad_is_part_of_the_program():
    def function(x, y, ids):
        with torch.no_grad():
            error = x - y
        return x + error

    recorder, _ = record(function)
    assert [n.grad_enabled for n in recorder.program.nodes if n.kind == "op"] == [False, True]


def test_nodes_carry_the_users_line():
    def function(x, y, ids):
        return x + y  # this line

    recorder, _ = record(function)
    line = function.__code__.co_firstlineno + 1
    assert recorder.program.nodes[-1].where == f"test_recorder.py:{line}"


def test_moves_between_devices_do_nothing():
    recorder, out = record(
        lambda x, y, i: (x.cuda(), x.cpu(), x.to("cuda:1"), x.to("cpu", copy=False))
    )
    assert all(value is out[0] for value in out)
    assert operations(recorder) == []
    assert out[0].device.type == "cpu"


def test_in_place_operations_return_the_same_object():
    def function(x, y, ids):
        before = x
        x += y
        assert x is before
        assert x.mul_(2) is before
        return x

    record(function)


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: bool((x > 0).any()),
        lambda x: x.sum().item(),
        lambda x: float(x.sum()),
        lambda x: int(x.sum()),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: np.asarray(x),
        lambda x: f"{x}",
        lambda x: f"{x.sum():.3f}",
        lambda x: print(x),
        lambda x: str(x),
        lambda x: 1 if x.sum() > 0 else 2,
        lambda x: x.sum() in [1, 2],
        lambda x: max(x.sum(), x.mean()),
        lambda x: [1, 2, 3][x.argmax()],
        lambda x: torch.equal(x, x),
        lambda x: torch.allclose(x, x),
        lambda x: torch.tensor(x),
        lambda x: torch.tensor([x.sum()]),
        lambda x: torch.full((2,), x.sum()),
        lambda x: torch.add(torch.ones(2), 1, alpha=x.sum()),
        lambda x: x.as_subclass(torch.Tensor),
        lambda x: round(x.sum()),
        lambda x: torch.zeros(2, 5, 8).copy_(x),
        lambda x: torch.zeros(2, 5, 8).add_(x),
        lambda x: torch.zeros(2, 5, 8).__setitem__(0, x[0]),
        lambda x: torch.add(x, 1, out=torch.zeros(2, 5, 8)),
        lambda x: x.data_ptr(),
        lambda x: torch.save(x, "/dev/null"),
        lambda x: x[x > 0].shape[0],
        lambda x: len(x[x > 0]),
    ],
)
@pytest.mark.filterwarnings("ignore:To copy construct")
def test_asking_for_numbers_is_the_one_error(ask):
    with pytest.raises((pellucid.NumberNotKnown, RuntimeError)) as caught:
        record(lambda x, y, i: ask(x))
    if isinstance(caught.value, pellucid.NumberNotKnown):
        assert str(caught.value).startswith("inside a trace there are no numbers yet: ")
        assert caught.value.where.startswith("test_recorder.py:")


def test_the_error_names_the_value_and_the_ways_out():
    with pytest.raises(pellucid.NumberNotKnown) as caught:
        record(lambda x, y, i: x.norm().item())
    message = str(caught.value)
    assert "a value [] float32, made at test_recorder.py:" in message
    for way in ("save it", "torch.where", "t.print", "t.call", "eager=True"):
        assert way in message


def test_the_error_names_the_site():
    with pytest.raises(pellucid.NumberNotKnown, match=r"x \[2, 5, 8\] float32"):
        record(lambda x, y, i: bool(x))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: F.dropout(x, 0.5), "dropout draws random numbers"),
        (lambda x: nn.Dropout(0.1)(x), "dropout draws random numbers"),
        (lambda x: torch.rand_like(x), "rand_like draws random numbers"),
        (lambda x: torch.bernoulli(x), "bernoulli draws random numbers"),
        (lambda x: x.clone().normal_(), "normal_ draws random numbers"),
        (lambda x: torch.multinomial(x[0].softmax(-1), 1), "multinomial draws random numbers"),
        (lambda x: nn.BatchNorm1d(5)(x), "batch_norm in training mode changes"),
        (lambda x: x.sum().backward(), "gradients inside a trace are not there yet"),
        (lambda x: x.grad, "gradients inside a trace are not there yet"),
        (lambda x: x.requires_grad_(), "gradients inside a trace are not there yet"),
        (lambda x: torch.autograd.grad(x.sum(), x), "gradients inside a trace are not there yet"),
        (lambda x: x[: x.argmax()], "a traced integer as the bound of a slice"),
    ],
)
def test_what_cannot_be_recorded_is_refused_by_name(function, message):
    with pytest.raises(pellucid.Unsupported, match=message):
        record(lambda x, y, i: function(x))


def test_a_custom_function_is_refused_by_name():
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x > 0).float()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    with pytest.raises(pellucid.Unsupported, match="Straight is a custom autograd.Function"):
        record(lambda x, y, i: Straight.apply(x))


def test_shape_errors_are_torchs_own_at_the_users_line():
    with pytest.raises(RuntimeError, match="broadcast a dimension of length 7") as caught:
        record(lambda x, y, i: x + torch.ones(7))
    assert any("torch.ones(7)" in str(entry) for entry in caught.traceback)


def test_an_index_out_of_range_is_torchs_own_error():
    with pytest.raises(IndexError, match="index 5 is out of"):
        record(lambda x, y, i: x[:, 5])


def test_values_of_a_failed_block_say_that_nothing_ran():
    recorder, out = record(lambda x, y, i: x * 2)
    recorder.close("failed")
    with pytest.raises(pellucid.NotSaved, match="ended with an error, so nothing ran"):
        out + 1


def test_values_of_a_closed_block_say_that_they_were_not_saved():
    recorder, out = record(lambda x, y, i: x * 2)
    recorder.close("done")
    for use in (lambda: out + 1, lambda: float(out.sum()), lambda: str(out), lambda: out[0]):
        with pytest.raises(
            pellucid.NotSaved, match=r"not saved: the value of test_recorder.py:\d+"
        ):
            use()
    assert "not saved" in repr(out)


def counter_class():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.zeros(8))
            self.inner = nn.Identity()
            self.inner.register_buffer("m", torch.zeros(8))

    return Counter


@pytest.mark.parametrize("register", [False, True])
def test_a_buffer_that_is_bound_to_a_traced_value_is_refused_by_name(register):
    class Running(counter_class()):
        def forward(self, x):
            if register:
                self.register_buffer("n", x.sum((0, 1)))
            else:
                self.n = self.n * 0.9 + x.sum((0, 1))
            return x - self.n

    module = Running()
    with pytest.raises(pellucid.Unsupported, match=r"the buffer Running\.n would take") as caught:
        record(lambda x, y, i: module(x))
    assert caught.value.where.startswith("test_recorder.py:")
    if not register:
        assert torch.equal(module.n, torch.zeros(8))
    module.n = torch.ones(8)  # an ordinary tensor, as ever
    assert torch.equal(module.n, torch.ones(8))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda m, x: m.n.add_(x.sum((0, 1))), r"Counting\.n"),
        (lambda m, x: m.n.__setitem__(slice(None), x.sum((0, 1))), r"Counting\.n"),
        (lambda m, x: m.n.__setitem__(0, x.sum()), r"Counting\.n"),
        (lambda m, x: m.n[:4].copy_(x[0, 0, :4]), r"Counting\.n"),
        (lambda m, x: m.inner.m.mul_(x.sum()), r"Counting\.inner\.m"),
    ],
)
def test_a_buffer_that_takes_a_traced_value_in_place_is_refused_by_name(change, name):
    class Counting(counter_class()):
        def forward(self, x):
            change(self, x)
            return x

    module = Counting()
    with pytest.raises(pellucid.NumberNotKnown, match=rf"the buffer {name} of shape"):
        record(lambda x, y, i: module(x))
    assert torch.equal(module.n, torch.zeros(8))


def test_a_slice_that_goes_backwards_is_refused_with_the_way_out():
    for index, dim in (
        ((slice(None), slice(None, None, -1)), 1),
        ((Ellipsis, slice(None, None, -2)), 2),
        ((0, slice(None, None, -1)), 1),
        ((None, slice(None, None, -1)), 0),
    ):
        with pytest.raises(pellucid.InvalidArgument, match=rf"use \.flip\({dim}\)"):
            record(lambda x, y, i, index=index: x[index])
    with pytest.raises(pellucid.InvalidArgument, match=r"use \.flip\(1\)"):
        record(lambda x, y, i: x.__setitem__((slice(None), slice(None, None, -1)), 0))
