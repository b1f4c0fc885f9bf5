"""What a torch function does when a traced value is among its arguments.

Most are recorded. Metadata is answered at once; what asks for numbers is refused; moves between
devices do nothing; gradients are refused until they are there.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

from pellucid import _indexing
from pellucid._buffers import describe
from pellucid._errors import InvalidArgument, PellucidWarning, Unsupported
from pellucid._tree import tensors_of
from pellucid._value import SizesOfUnknown, Value, number_not_known
from pellucid._where import stack_level, user_line

_T = torch.Tensor
Handler = Callable[[Callable[..., Any], Any, dict[str, Any]], Any]


def dispatch(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    handler = _HANDLERS.get(func)
    if handler is not None:
        return handler(func, args, kwargs)
    value = _value_of(args, kwargs)
    if value._recorder.state != "recording":
        raise value._not_saved()
    return value._recorder.call(func, args, kwargs)


def _value_of(args: Any, kwargs: Any) -> Value:
    for tensor in tensors_of((args, kwargs)):
        if isinstance(tensor, Value):
            return tensor
    raise Unsupported(
        "a traced value inside an object that is no list, tuple or dict", "", user_line()
    )


def _metadata(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    twins = [a._twin if isinstance(a, Value) else a for a in args]
    return func(*twins, **kwargs)


def _shape(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    return SizesOfUnknown.of(args[0])


def _size(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    sizes = SizesOfUnknown.of(args[0])
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    return sizes if dim is None else sizes[dim]


def _numel(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    if args[0]._other is not None:
        SizesOfUnknown.of(args[0]).numel()  # refuses
    return args[0]._twin.numel()


def _len(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> int:
    if args[0]._twin.dim() == 0:
        raise TypeError("len() of a 0-d tensor")
    size: int = SizesOfUnknown.of(args[0])[0]
    return size


def _iterate(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    value = args[0]
    if value._twin.dim() == 0:
        raise TypeError("iteration over a 0-d tensor")
    _len(func, args, kwargs)
    return iter(value.unbind(0))


def _refuse_number(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    raise _value_of(args, kwargs)._refuse_number()


def _refuse_gradient(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    value = _value_of(args, kwargs)
    if value._recorder.state != "recording":
        raise value._not_saved()
    raise Unsupported(
        "gradients inside a trace are not there yet in this version",
        "save the activations and differentiate what follows them in plain torch",
        user_line(),
    )


def _to(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Casts; where a value lies is no part of a program."""
    value, rest = args[0], args[1:]
    if not isinstance(value, Value):  # ordinary.to(traced): only its dtype
        return value.to(rest[0].dtype)
    if rest and isinstance(rest[0], _T) or "other" in kwargs:
        dtype = (rest[0] if rest else kwargs["other"]).dtype
    else:
        _, dtype, _, _ = torch._C._nn._parse_to(
            *rest, **{key: given for key, given in kwargs.items() if key != "copy"}
        )
    if kwargs.get("copy"):
        value = value.clone()
    if dtype is None or dtype == value._twin.dtype:
        return value
    return value._recorder.call(_T.to, (value, dtype), {})


def _same_place(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    return args[0]


def _type(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and not kwargs:
        return f"torch.{torch.tensor([], dtype=args[0]._twin.dtype).type().split('.')[-1]}"
    return args[0]._recorder.call(func, args, kwargs)


def _new_tensor(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    data = args[1] if len(args) > 1 else kwargs["data"]
    return torch.tensor(data, dtype=kwargs.get("dtype") or args[0]._twin.dtype)


def _deepcopy(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    return args[0].clone()


def _set_data(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    raise InvalidArgument(
        "the .data of a traced value cannot be set", "write into it: h[:] = x", user_line()
    )


def _getitem(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    value = _value_of(args, kwargs)
    if value._recorder.state != "recording":
        raise value._not_saved()
    if value._tuple_of_old and args[0] is value and args[1] == 0 and type(args[1]) is int:
        _warn_of_tuples(value)
    return _indexing.get(value._recorder, args[0], args[1])


@functools.cache  # once
def _warn_once(message: str) -> None:
    warnings.warn(message, PellucidWarning, stacklevel=stack_level())


def _warn_of_tuples(value: Value) -> None:
    if value.dim() == 3:
        _warn_once(
            ".output[0] of a block is batch row 0 here; in old transformers code it was the first item "
            "of a tuple: leave the [0] out if you meant that"
        )


def _setitem(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    value = _value_of(args, kwargs)
    if value._recorder.state != "recording":
        raise value._not_saved()
    if not isinstance(args[0], Value):
        raise number_not_known(
            f"{describe(args[0])} would take {value._describe()}",
            user_line(),
            "collect traced values with torch.stack or torch.cat, or write into "
            "torch.zeros_like(a traced value)",
        )
    _indexing.set(value._recorder, args[0], args[1], args[2])
    return None


def _attributes(*names: str) -> list[Any]:
    """The methods and property getters of these names that torch has."""
    found = []
    for name in names:
        attribute = getattr(_T, name, None)
        if attribute is None:
            continue
        found.append(attribute if callable(attribute) else attribute.__get__)
    return found


_GROUPS: list[tuple[Handler, list[Any]]] = [
    (
        _metadata,
        _attributes(
            "dtype",
            "layout",
            "ndim",
            "itemsize",
            "nbytes",
            "is_sparse",
            "is_quantized",
            "is_nested",
            "is_mkldnn",
            "is_leaf",
            "requires_grad",
            "names",
            "output_nr",
            "is_sparse_csr",
            "dim",
            "ndimension",
            "is_floating_point",
            "is_complex",
            "is_signed",
            "is_contiguous",
            "stride",
            "storage_offset",
            "element_size",
            "is_inference",
            "is_conj",
            "is_neg",
            "is_same_size",
            "has_names",
            "_is_view",
            "is_coalesced",
            "volatile",
        )
        + [torch.is_floating_point, torch.is_complex, torch.is_conj, torch.is_neg]
        + [torch.is_same_size, torch.result_type],
    ),
    (_shape, _attributes("shape")),
    (_size, _attributes("size")),
    (_numel, _attributes("numel", "nelement") + [torch.numel]),
    (_len, [_T.__len__]),
    (_iterate, [_T.__iter__]),
    (lambda func, args, kwargs: torch.device("cpu"), _attributes("device")),
    (lambda func, args, kwargs: -1, _attributes("get_device")),
    (
        lambda func, args, kwargs: False,
        _attributes("is_cuda", "is_meta", "is_cpu", "is_xpu", "is_mps", "is_ipu", "is_xla"),
    ),
    (_same_place, _attributes("cpu", "cuda", "xpu", "pin_memory")),
    (_to, [_T.to]),
    (_type, [_T.type]),
    (_new_tensor, [_T.new_tensor]),
    (_deepcopy, [_T.__deepcopy__]),
    (_set_data, [_T.data.__set__]),
    (_getitem, [_T.__getitem__]),
    (_setitem, [_T.__setitem__]),
    (
        _refuse_number,
        _attributes(
            "item",
            "tolist",
            "numpy",
            "__bool__",
            "__float__",
            "__int__",
            "__index__",
            "__long__",
            "__complex__",
            "__array__",
            "__format__",
            "__dlpack__",
            "__contains__",
            "__reduce_ex__",
            "is_nonzero",
            "equal",
            "allclose",
            "data_ptr",
            "storage",
            "untyped_storage",
            "__array_wrap__",
            "__repr__",
            "share_memory_",
            "apply_",
            "map_",
            "module_load",
        )
        + [torch.equal, torch.allclose, torch.is_nonzero],
    ),
    (
        _refuse_gradient,
        _attributes("backward", "register_hook", "retain_grad", "requires_grad_", "grad", "grad_fn")
        + [_T.grad.__set__, _T.requires_grad.__set__, _T.register_post_accumulate_grad_hook]
        + [torch.autograd.grad, torch.autograd.backward],
    ),
]
_HANDLERS: dict[Any, Handler] = {func: handler for handler, group in _GROUPS for func in group}
