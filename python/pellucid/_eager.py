"""Eager traces: the pass waits at each site, so values are real and any Python may look at them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from pellucid import _native, _prompt
from pellucid._context import current
from pellucid._errors import Error, InvalidArgument, OutOfOrder, ShapeMismatch, Unsupported
from pellucid._group import Group, StepIndex, negative_log_likelihood, site_shapes
from pellucid._recorder import Scope, dtype_name
from pellucid._surface import SavedNames, checked_call, require_tensors
from pellucid._tree import map_tensors
from pellucid._where import user_line

if TYPE_CHECKING:
    from pellucid._lm import LM


class EagerTrace:
    """What `with lm.trace(prompt, eager=True) as t` gives.

    >>> with lm.trace("The capital of France is", eager=True) as t:
    ...     for block in lm.blocks:
    ...         if block.resid_post.norm().item() > 600:
    ...             break
    """

    def __init__(self, lm: LM, prompt: Any, options: dict[str, Any]) -> None:
        if prompt is None:
            raise InvalidArgument(
                "an eager trace runs one prompt", "lm.trace(prompt, eager=True)", user_line()
            )
        self.lm = lm
        bos = options.pop("bos")
        stop = options["stop"]
        options["stop"] = [stop] if isinstance(stop, str) else list(stop)
        rows = _prompt.parse(lm.tokenizer, prompt, bos)
        _prompt.require_equal_lengths(rows)
        self._program = _native.Program()
        self._program.add_group(rows.tokens, where=user_line(), **options)
        self._own_group = Group(
            self, 0, rows.tokens, rows.single, options["max_new_tokens"], options["seed"]
        )
        self._group: Group | None = self._own_group
        self._scope = Scope(0)
        self._native: _native.EagerTrace | None = None
        self._values: dict[tuple[int, str], torch.Tensor] = {}  # of the site where the pass stands
        # Handed out before it: tensor, its version when the pass went on, name.
        self._passed: list[tuple[weakref.ref[torch.Tensor], int, str]] = []
        self._names = SavedNames()
        self._saved: dict[str, torch.Tensor] = {}
        self._token: Token[Any] | None = None
        self._over = False

    def __enter__(self) -> EagerTrace:
        if self._token is not None or self._over:
            raise InvalidArgument("a trace is entered once", "call lm.trace again", user_line())
        self.lm._check_free()
        self._native = self.lm._native.eager(self._program)
        self.lm._eager[threading.get_ident()] = weakref.ref(self)
        self._token = current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._token is not None
        current.reset(self._token)
        self._over = True
        self.lm._eager.pop(threading.get_ident(), None)
        native, self._native = self._native, None
        self._values.clear()
        try:
            if kind is None and native is not None:
                self._check_passed()
                self._own_group._result = native.finish()
        finally:
            native = None  # a traceback holds this frame, and must not hold the pass and the engine

    # -- sites ------------------------------------------------------------------------------------

    def _open(self) -> _native.EagerTrace:
        if self._native is None:
            raise InvalidArgument("the block of this trace is over", "", user_line())
        return self._native

    def _read(self, site: str, flatten: bool) -> torch.Tensor:
        step, self._scope.used = self._scope.first, True
        self._check_passed()
        try:
            value: torch.Tensor = self._open().read(step, site)
        except Error as failure:
            raise type(failure)(failure.what, failure.hint, user_line(), failure.code) from None
        known = self._values.get((step, site))
        if known is None or known.data_ptr() != value.data_ptr():
            self._move_on()
            known = self._values[step, site] = value
        if flatten:
            flat = self._values.get((step, f"{site} flat"))
            if flat is None:
                flat = self._values[step, f"{site} flat"] = known.flatten(2)
            return flat
        return known

    def _move_on(self) -> None:
        """The pass has gone on: sites handed out before cannot be written any more."""
        for (step, site), tensor in self._values.items():
            name = site.removesuffix(" flat") + (f" at step {step}" if step else "")
            self._passed.append((weakref.ref(tensor), tensor._version, name))
        self._values.clear()

    def _check_passed(self) -> None:
        held, self._passed = self._passed, []
        for reference, version, name in held:
            tensor = reference()
            if tensor is None:
                continue  # and no view of it is left
            if tensor._version != version:
                raise OutOfOrder(
                    f"{name} was written into after the pass had gone on from it, so the model did "
                    "not see it",
                    "write before reading a later site; value.clone() is a copy to change freely",
                    user_line(),
                )
            self._passed.append((reference, version, name))

    def _write(self, site: str, value: Any, flatten: bool) -> None:
        step, self._scope.used = self._scope.first, True
        self._check_passed()
        if any(value is known for (s, _), known in self._values.items() if s == step):
            held = self._values.get((step, f"{site} flat" if flatten else site))
            if value is held:
                return  # h += v: the sum is already there
        shape, _ = site_shapes(self.lm, site, self._own_group, Scope(0, step, step + 1))
        wanted = (*shape[:2], shape[2] * shape[3]) if flatten else shape
        if not isinstance(value, torch.Tensor):
            raise InvalidArgument(
                f"{site} takes a tensor of shape {list(wanted)}, not {type(value).__name__}",
                f"lm.{site}[:] = x fills it with a number",
                user_line(),
            )
        if tuple(value.shape) != tuple(wanted):
            raise ShapeMismatch(
                f"{site} is {list(wanted)} here and cannot take {list(value.shape)}",
                f"lm.{site}[...] = x writes into a part of it",
                user_line(),
            )
        dtype = self.lm._site_dtype(site)
        if value.dtype.is_floating_point != dtype.is_floating_point:
            raise InvalidArgument(
                f"{site} holds {dtype_name(dtype)} and cannot take {dtype_name(value.dtype)}",
                f"cast it: x.to(torch.{dtype_name(dtype)})",
                user_line(),
            )
        try:
            self._open().write(step, site, value.detach().to(dtype).reshape(shape))
        except Error as failure:
            raise type(failure)(failure.what, failure.hint, user_line(), failure.code) from None
        self._values.pop((step, site), None)
        self._values.pop((step, f"{site} flat"), None)
        self._move_on()  # what is left is of earlier sites

    def _real_part(self, name: str, x: torch.Tensor) -> torch.Tensor:
        part: torch.Tensor = self._open().part(name, x.detach())
        return part

    # -- the same surface as Trace --------------------------------------------------------------------

    def save(
        self,
        value: Any,
        name: str | None = None,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Any:
        """A copy of the value as it is at this line; lists, dicts and struct results as in Trace.save."""
        self._open()
        require_tensors(value)
        nested = not isinstance(value, torch.Tensor)

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            kept = tensor.detach().to(dtype or tensor.dtype, copy=True)
            self._saved[self._names.take(name, nested)] = kept
            return kept

        return map_tensors(keep, value)

    @property
    def saved(self) -> dict[str, torch.Tensor]:
        """Saved values by name."""
        return dict(self._saved)

    def call(
        self, function: Callable[..., torch.Tensor], *values: torch.Tensor, like: torch.Tensor
    ) -> torch.Tensor:
        """See Trace.call."""
        self._open()
        return checked_call(function, like)(*values)

    def print(self, *values: Any) -> None:
        print(f"{user_line()}:", *values)

    def nll(self) -> torch.Tensor:
        """[batch, seq - 1]: negative log-likelihood of each token after the first."""
        tokens = torch.tensor(self._own_group._prompt)
        return negative_log_likelihood(self._read("logits", False), tokens)

    def prompt(self, *args: Any, **options: Any) -> Group:
        raise Unsupported(
            "an eager trace has one prompt: the one it was opened with",
            "trace without eager=True, or open one eager trace after another",
            user_line(),
        )

    def _enter_group(self, group: Group, scope: Scope | None = None) -> Any:
        if scope is not None and scope.per_step:
            raise Unsupported(
                "in an eager trace a body is not recorded",
                "for k in t.steps[a:b]: ...",
                user_line(),
            )
        outer, self._scope = self._scope, scope or Scope(0)
        return outer

    def _leave_group(self, outer: Any) -> None:
        self._scope = outer

    @property
    def steps(self) -> StepIndex:
        """Steps of generation; loop over them."""
        return self._own_group.steps

    @property
    def tokens(self) -> list[Any]:
        """See Group.tokens."""
        return self._own_group.tokens

    @property
    def text(self) -> Any:
        """See Group.text."""
        return self._own_group.text

    @property
    def ended(self) -> Any:
        """See Group.ended."""
        return self._own_group.ended

    @property
    def steps_run(self) -> int:
        """See Group.steps_run."""
        return self._own_group.steps_run

    def at(self, text: str, nth: int | None = None) -> int:
        """See Group.at."""
        return self._own_group.at(text, nth)

    def span(self, text: str, nth: int | None = None) -> slice:
        """See Group.span."""
        return self._own_group.span(text, nth)

    @property
    def info(self) -> dict[str, Any]:
        """What a result depends on."""
        return {**self.lm.info, "seed": [self._own_group.seed]}
