"""Runs a recorded program in plain torch, given the values of its reads: the recorder without an engine."""

import torch
from pellucid import _native
from pellucid._recorder import Recorder
from pellucid._tree import tensors_of

SHAPES = {"x": (2, 5, 8), "y": (2, 5, 8), "ids": (2, 2)}


def inputs():
    generator = torch.Generator().manual_seed(0)
    return {
        "x": torch.randn(2, 5, 8, generator=generator),
        "y": torch.randn(2, 5, 8, generator=generator),
        "ids": torch.tensor([[3, 1], [0, 2]]),
    }


def record(function):
    """The recorder and what `function(x, y, ids)` returned for traced values."""
    recorder = Recorder()
    values = [
        recorder.add_source("read", name, shape, torch.int64 if name == "ids" else torch.float32)
        for name, shape in SHAPES.items()
    ]
    return recorder, function(*values)


def replay(recorder, reads):
    """Value of each node."""
    done = []

    def real(argument):
        if isinstance(argument, _native.ValueRef):
            value = done[argument.node]
            return value[argument.output] if isinstance(value, (tuple, list)) else value
        if isinstance(argument, _native.ConstantRef):
            return recorder.constants[argument.index]
        if isinstance(argument, _native.DtypeArg):
            return getattr(torch, argument.name)
        if isinstance(argument, list):
            return [real(item) for item in argument]
        return argument

    for node in recorder.program.nodes:
        if node.kind == "read":
            done.append(reads[node.name])
        elif node.kind == "save":
            done.append(real(node.args[0]).clone())
        else:
            packet, _, overload = node.name.removeprefix("aten::").partition(".")
            operation = getattr(getattr(torch.ops.aten, packet), overload or "default")
            kwargs = {key: real(value) for key, value in node.kwargs.items()}
            done.append(operation(*[real(a) for a in node.args], **kwargs))
    return done


def replayed(function):
    """What the recorded function gives on real inputs, as a flat list; and the recorder."""
    recorder, out = record(function)
    refs = [recorder._wire(value._twin) for value in tensors_of(out)]
    done = replay(recorder, inputs())
    values = []
    for ref in refs:
        value = done[ref.node]
        values.append(value[ref.output] if isinstance(value, (tuple, list)) else value)
    return values, recorder, tensors_of(out)


def operations(recorder):
    return [node.name for node in recorder.program.nodes if node.kind == "op"]
