"""A trace: the lines of a with-block become a program, which runs when the block ends."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from pellucid import _native, _prompt
from pellucid._context import current
from pellucid._errors import InvalidArgument, PellucidWarning, ShapeMismatch
from pellucid._group import Group, StepIndex, negative_log_likelihood, site_shapes
from pellucid._recorder import Recorder, Scope, dtype_name
from pellucid._store import StoredProgram
from pellucid._surface import SavedNames, checked_call, require_tensors
from pellucid._tree import map_tensors
from pellucid._value import Value
from pellucid._where import stack_level, user_line

if TYPE_CHECKING:
    from pellucid._lm import LM


class Trace:
    """What `with lm.trace(...) as t` gives. See LM.trace."""

    def __init__(self, lm: LM) -> None:
        self.lm = lm
        self._recorder = Recorder()
        self._recorder.trace = weakref.ref(self)
        self._groups: list[Group] = []
        self._group: Group | None = None  # the innermost open one
        self._reads: dict[tuple[Any, ...], Value] = {}
        self._saved: dict[str, Value] = {}
        self._saved_ids: set[int] = set()  # of objects, which _saved keeps
        self._names = SavedNames()
        self._calls: dict[str, Callable[..., torch.Tensor]] = {}
        self._tokens: list[Token[Any]] = []
        self._own_group: Group | None = None
        self._program: StoredProgram | None = None
        self.seconds: float | None = None
        """After the block: how long it ran."""

    # -- the block ------------------------------------------------------------------------------

    def __enter__(self) -> Trace:
        if self._recorder.state != "recording" or self._tokens:
            raise InvalidArgument("a trace is entered once", "call lm.trace again", user_line())
        self._tokens.append(current.set(self))
        if self._own_group is not None:
            self._enter_group(self._own_group)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end_recording()
        if kind is not None:
            self._recorder.close("failed")
            return
        try:
            result = self.lm._run([self._job()])[0]
        except BaseException:
            self._recorder.close("failed")
            raise
        self._take(result)

    def _end_recording(self) -> None:
        self._group, self._recorder.scope = None, Scope()
        current.reset(self._tokens.pop())

    def _job(self) -> _native.Job:
        self._recorder.check_constants()
        self._program = StoredProgram(self._recorder.program, self._recorder.constants)
        return _native.Job(
            self._recorder.program, list(self._recorder.constants), self._call_back, None
        )

    def _call_back(self, key: str, values: list[torch.Tensor]) -> torch.Tensor:
        return self._calls[key](*values)

    def _take(self, result: Any) -> None:
        self.seconds = result.seconds
        for group, outcome in zip(self._groups, result.groups, strict=True):
            group._result = outcome
        for warning in result.warnings:
            warnings.warn(warning, PellucidWarning, stacklevel=stack_level())
        for name, tensor, missing, _ in result.saved:
            value = self._saved[name]
            if missing:
                value._missing = (
                    "its step did not happen: every row had ended before, see t.steps_run"
                )
            else:
                value._become(tensor)
        self._recorder.close("done")
        self._reads.clear()
        self._calls.clear()

    # -- groups and steps -------------------------------------------------------------------------

    def prompt(
        self,
        prompt: _prompt.Prompt,
        *,
        max_new_tokens: int = 0,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        stop: str | list[str] | tuple[str, ...] = (),
        stop_at_eos: bool = True,
        bos: bool | None = None,
    ) -> Group:
        """Opens a group of rows of equal length: `with t.prompt("...") as c: ...`.

        Lines inside read and write the group's own values; values of other groups may be used.

        >>> with lm.trace() as t:
        ...     with t.prompt("The capital of Italy is"):
        ...         rome = lm.blocks[10].resid_pre[:, 3]
        ...     with t.prompt("The capital of France is"):
        ...         lm.blocks[10].resid_pre[:, 3] = rome
        ...         top = lm.logits[:, -1].argmax(-1).save()    # LongTensor[1]
        """
        self._recorder.check_open("prompt")
        if max_new_tokens < 0:
            raise InvalidArgument(f"max_new_tokens={max_new_tokens}", "at least 0", user_line())
        rows = _prompt.parse(self.lm.tokenizer, prompt, bos)
        _prompt.require_equal_lengths(rows)
        index = self._recorder.program.add_group(
            rows.tokens,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
            stop=[stop] if isinstance(stop, str) else list(stop),
            stop_at_eos=stop_at_eos,
            where=user_line(),
        )
        group = Group(self, index, rows.tokens, rows.single, max_new_tokens, seed)
        self._groups.append(group)
        return group

    def _enter_group(self, group: Group, scope: Scope | None = None) -> tuple[Group | None, Scope]:
        outer = self._group, self._recorder.scope
        self._group = group
        self._recorder.scope = scope or Scope(group._index)
        return outer

    def _leave_group(self, outer: tuple[Group | None, Scope]) -> None:
        self._group, self._recorder.scope = outer

    def _current_group(self, what: str) -> Group:
        if self._group is None:
            raise InvalidArgument(
                f"{what}: no prompt is open",
                "with lm.trace(prompt), or inside it: with t.prompt(prompt): ...",
                user_line(),
            )
        return self._group

    # -- sites ------------------------------------------------------------------------------------

    def _read(self, site: str, flatten: bool) -> Value:
        group, scope = self._current_group(f"lm.{site}"), self._recorder.scope
        scope.used = True
        key = (scope.key(), site)
        value = self._reads.get(key)
        if value is None:
            shape, other = site_shapes(self.lm, site, group, scope)
            value = self._recorder.add_source(
                "read", site, shape, self.lm._site_dtype(site), other_shape=other
            )
            self._reads[key] = value
        if not flatten:
            return value
        flat = self._reads.get((*key, "flat"))
        if flat is None:
            flat = self._reads[(*key, "flat")] = value.flatten(2)
        return flat

    def _write(self, site: str, value: Any, flatten: bool) -> None:
        group, scope = self._current_group(f"lm.{site}"), self._recorder.scope
        scope.used = True
        key = (scope.key(), site)
        if value is self._reads.get((*key, "flat") if flatten else key):
            return  # h += v: the sum is already there
        shape, other = site_shapes(self.lm, site, group, scope)
        if not isinstance(value, torch.Tensor):
            raise InvalidArgument(
                f"{site} takes a tensor of shape {list(shape)}, not {type(value).__name__}",
                f"lm.{site}[:] = x fills it with a number",
                user_line(),
            )
        self._check_fits(site, value, shape, other, flatten)
        if value.dtype != self.lm._site_dtype(site):
            value = value.to(self.lm._site_dtype(site))
        if flatten:
            value = value.unflatten(2, shape[2:])
        self._recorder.write(site, value)
        self._reads.pop(key, None)
        self._reads.pop((*key, "flat"), None)

    def _check_fits(
        self,
        site: str,
        value: torch.Tensor,
        shape: tuple[int, ...],
        other: tuple[int, ...] | None,
        flatten: bool,
    ) -> None:
        def flat(sizes: tuple[int, ...] | None) -> tuple[int, ...] | None:
            if sizes is None or not flatten:
                return sizes
            return (*sizes[:2], sizes[2] * sizes[3])

        given: list[tuple[int, ...] | None]
        if isinstance(value, Value):
            given = [tuple(value._twin.shape)]
            given.append(tuple(value._other.shape) if value._other is not None else None)
        else:
            given = [tuple(value.shape), None]
        wanted = [flat(shape), flat(other)]
        if given != wanted:
            want, have = (wanted[0], given[0]) if given[0] != wanted[0] else (wanted[1], given[1])
            detail = "" if given[0] != wanted[0] else " at later steps"
            raise ShapeMismatch(
                f"{site} is {list(want or wanted[0] or ())}{detail} here and cannot take "
                f"{list(have or given[0] or ())}",
                f"lm.{site}[...] = x writes into a part of it",
                user_line(),
            )
        site_dtype = self.lm._site_dtype(site)
        if value.dtype.is_floating_point != site_dtype.is_floating_point:
            raise InvalidArgument(
                f"{site} holds {dtype_name(site_dtype)} and cannot take {dtype_name(value.dtype)}",
                f"cast it: x.to(torch.{dtype_name(site_dtype)})",
                user_line(),
            )

    def _part(self, name: str, x: torch.Tensor, width: int) -> Value:
        twin = self._recorder.twin(x)
        other = x._other if isinstance(x, Value) else None
        return self._recorder.add_source(
            "part",
            name,
            (*twin.shape[:-1], width),
            self.lm.dtype,
            args=[twin],
            other_shape=None if other is None else (*other.shape[:-1], width),
        )

    def _weight(self, name: str, shape: tuple[int, ...]) -> Value:
        return self._recorder.add_source("weight", name, shape, self.lm.dtype)

    # -- saving, calling, printing ------------------------------------------------------------------

    def save(
        self,
        value: Any,
        name: str | None = None,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Any:
        """Keeps values as they are at this line; lists, dicts and struct results may be nested.

        After the block each saved value is an ordinary detached tensor: the same object. Saving one
        value a second time gives a second object, with what it is at that line.
        dtype: cast before the copy. device: no effect while models run on the CPU.
        """
        self._recorder.check_open("save")

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            if not isinstance(tensor, Value):
                return tensor.detach().clone()
            self._recorder.twin(tensor)  # refuses values of other traces
            if dtype is not None and tensor._twin.dtype != dtype:
                tensor = tensor.to(dtype)
            kept = tensor
            if id(kept) in self._saved_ids:
                kept = self._recorder.another(tensor)
            unique = self._names.take(name, nested)
            self._recorder.save(kept, unique)
            self._saved[unique] = kept
            self._saved_ids.add(id(kept))
            return kept

        require_tensors(value)
        nested = not isinstance(value, torch.Tensor)
        return map_tensors(keep, value)

    def call(
        self, function: Callable[..., torch.Tensor], *values: torch.Tensor, like: torch.Tensor
    ) -> Value:
        """Calls local Python when the pass is there: function(*real tensors) -> a tensor like `like`.

        >>> near = t.call(lambda a: index.search(a), h[:, -1], like=torch.empty(1, 4))
        """
        key, twins = self._add_call(checked_call(function, like), values)
        shape, dtype = tuple(like.shape), like.dtype
        return self._recorder.add_source(
            "call",
            key,
            shape,
            dtype,
            args=twins,
            kwargs={"shape": list(shape), "dtype": dtype},
            label=getattr(function, "__name__", "call"),
        )

    def print(self, *values: Any) -> None:
        """Prints values when the pass is there; text and numbers among them are printed as they are."""
        where = user_line()
        traced = [value for value in values if isinstance(value, torch.Tensor)]
        if not traced:
            print(*values)
            return

        def show(*real: torch.Tensor) -> torch.Tensor:
            left = iter(real)
            print(f"{where}:", *(next(left) if isinstance(v, torch.Tensor) else v for v in values))
            return torch.zeros(())

        key, twins = self._add_call(show, traced)
        self._recorder.add_node("call", key, twins, where=where)

    def _add_call(
        self, function: Callable[..., torch.Tensor], values: Any
    ) -> tuple[str, list[torch.Tensor]]:
        self._recorder.check_open("call")
        key = f"call_{len(self._calls)}"
        self._calls[key] = function
        return key, [self._recorder.twin(value) for value in values]

    def nll(self) -> torch.Tensor:
        """[batch, seq - 1]: negative log-likelihood of each token after the first."""
        self._current_group("t.nll()")
        logits = self._read("logits", False)
        return negative_log_likelihood(logits, self._read("tokens", False))

    # -- of the trace's own prompt, or of the innermost open one ---------------------------------------

    def _one_group(self, what: str) -> Group:
        group = self._group or self._own_group
        if group is None and len(self._groups) == 1:
            group = self._groups[0]
        if group is None:
            raise InvalidArgument(
                f"t.{what}: this trace has {len(self._groups)} prompts",
                "with t.prompt(...) as c: and c has it too",
                user_line(),
            )
        return group

    @property
    def tokens(self) -> list[Any]:
        """See Group.tokens."""
        return self._one_group("tokens").tokens

    @property
    def text(self) -> Any:
        """See Group.text."""
        return self._one_group("text").text

    @property
    def ended(self) -> Any:
        """See Group.ended."""
        return self._one_group("ended").ended

    @property
    def steps(self) -> StepIndex:
        """See StepIndex."""
        return self._one_group("steps").steps

    @property
    def steps_run(self) -> int:
        """See Group.steps_run."""
        return self._one_group("steps_run").steps_run

    def at(self, text: str, nth: int | None = None) -> int:
        """See Group.at."""
        return self._one_group("at").at(text, nth)

    def span(self, text: str, nth: int | None = None) -> slice:
        """See Group.span."""
        return self._one_group("span").span(text, nth)

    @property
    def saved(self) -> dict[str, torch.Tensor]:
        """Saved values by name."""
        return dict(self._saved)

    @property
    def program(self) -> StoredProgram:
        """The recorded program: t.program.save("file.json"), for `pellucid trace`."""
        return self._program or StoredProgram(self._recorder.program, self._recorder.constants)

    @property
    def info(self) -> dict[str, Any]:
        """What a result depends on: model hash, dtype, numeric path, seeds, versions."""
        return {**self.lm.info, "seed": [group.seed for group in self._groups]}
