"""A loaded language model."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import torch

from pellucid import _cache, _generate, _native
from pellucid._context import current, open_trace
from pellucid._errors import Error, InvalidArgument, NotFound, ShapeMismatch
from pellucid._prompt import Prompt
from pellucid._recorder import dtype_name
from pellucid._sites import Names, SiteNode, unknown
from pellucid._tokenizer import Tokenizer
from pellucid._value import Value
from pellucid._where import user_line

if TYPE_CHECKING:
    from pellucid._eager import EagerTrace
    from pellucid._function import Program
    from pellucid._trace import Trace


class LM:
    """A model whose forward pass can be read and edited. Made by pellucid.load.

    Sites have one name in every architecture: `lm.blocks[5].attn.z`, `lm.logits`; Hugging Face paths
    (`lm.model.layers[5].self_attn.o_proj.input`) and TransformerLens names
    (`lm["blocks.5.hook_resid_post"]`) mean the same sites. They exist inside a trace:

    >>> lm = pellucid.load("smollm2")
    >>> with lm.trace("The capital of France is") as t:
    ...     h = lm.blocks[12].resid_post       # [1, 5, d_model]
    ...     h[:, -1] += 4 * v                  # goes on through the model
    ...     top = t.save(lm.logits[:, -1].topk(5))
    >>> top.indices                            # LongTensor[1, 5]
    """

    def __init__(self, native: _native.Model) -> None:
        self.__dict__["_native"] = native
        info = native.info
        self.__dict__["_info"] = info
        self.__dict__["_dead"] = False
        self.__dict__["_eager"] = {}  # thread -> weak reference to its open EagerTrace
        names = [name for name in native.sites() if not name.startswith("blocks.")]
        names += [
            "blocks.{i}." + name.split(".", 2)[2]
            for name in native.sites()
            if name.startswith("blocks.0.")
        ]
        self.__dict__["_names"] = Names(names + native.aliases(), info["num_layers"])
        self.__dict__["_resolved"] = {}
        self.__dict__["tokenizer"] = Tokenizer(native.tokenizer)
        _models.add(self)

    # -- facts ------------------------------------------------------------------------------------

    tokenizer: Tokenizer
    """The tokenizer: encode, decode, offsets, id, apply_chat_template."""

    @property
    def dtype(self) -> torch.dtype:
        """Of weights, of the residual stream and of floating sites."""
        dtype: torch.dtype = getattr(torch, self._info["dtype"])
        return dtype

    @property
    def num_layers(self) -> int:
        return int(self._info["num_layers"])

    @property
    def d_model(self) -> int:
        return int(self._info["d_model"])

    @property
    def vocab_size(self) -> int:
        return int(self._info["vocab"])

    @property
    def context_length(self) -> int:
        """Most positions that the model was made for."""
        return int(self._info["context_length"])

    @property
    def info(self) -> dict[str, Any]:
        """Family, sizes, dtype, numeric path, hash of the files, versions."""
        return {
            **self._info,
            "path": "exact",
            "versions": {"pellucid": _native.version(), "torch": torch.__version__},
        }

    @property
    def sites(self) -> list[str]:
        """Canonical names of all sites, in the order of the forward pass."""
        names: list[str] = self._native.sites()
        return names

    def __repr__(self) -> str:
        return (
            f"<{self._info['family']} of {self.num_layers} blocks, d_model {self.d_model}, "
            f"{dtype_name(self.dtype)}>"
        )

    # -- sites ------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            self.__dict__[name] = value
        else:
            self._set(name, value)

    def __getitem__(self, name: str) -> Any:
        site, flatten = self._resolve(name)
        return open_trace(self, f"lm[{name!r}]")._read(site, flatten)

    def __setitem__(self, name: str, value: Any) -> None:
        site, flatten = self._resolve(name)
        open_trace(self, f"lm[{name!r}]")._write(site, value, flatten)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name in self._names._root)]

    def _get(self, path: str) -> Any:
        if self._names.is_site(path):
            site, flatten = self._resolve(path)
            trace = open_trace(self, f"lm.{path}")
            value = trace._read(site, flatten)
            if (
                path.endswith(".output")
                and isinstance(value, Value)
                and site.endswith("resid_post")
            ):
                value._tuple_of_old = True
            return value
        if self._names.find(path) is not None:
            return SiteNode(self, path)
        self._resolve(path)  # TransformerLens's names; raises with the nearest names
        return open_trace(self, f"lm.{path}")._read(*self._resolve(path))

    def _set(self, path: str, value: Any) -> None:
        site, flatten = self._resolve(path)
        open_trace(self, f"lm.{path}")._write(site, value, flatten)

    def _resolve(self, name: Any) -> tuple[str, bool]:
        found: tuple[str, bool] | None = self._resolved.get(name)
        if found is None:
            if not isinstance(name, str):
                raise InvalidArgument(
                    f"a site has a name, not a {type(name).__name__}",
                    "lm.sites lists them",
                    user_line(),
                )
            try:
                found = self._native.resolve(name)
            except NotFound as failure:
                raise unknown(failure) from None
            except InvalidArgument as failure:
                raise InvalidArgument(failure.what, failure.hint, user_line()) from None
            self._resolved[name] = found
        return found

    def _site_dtype(self, site: str) -> torch.dtype:
        if site == "tokens":
            return torch.int64
        if site.endswith(".scale") and self.dtype != torch.float64:
            return torch.float32  # what a norm divides by is never rounded
        return self.dtype

    # -- parts and weights --------------------------------------------------------------------------

    def unembed(self, x: torch.Tensor) -> torch.Tensor:
        """Logits [..., vocab] of any normed [..., d_model], traced or not, soft cap included."""
        return self._apply_part("unembed", x)

    def lens(self, x: torch.Tensor) -> torch.Tensor:
        """Logit lens: logits [..., vocab] of any residual [..., d_model]: last norm, then unembed."""
        return self.unembed(self._apply_part("ln_final", x))

    def _apply_part(self, name: str, x: torch.Tensor) -> torch.Tensor:
        if not isinstance(x, torch.Tensor):
            raise InvalidArgument(
                f"lm.{name} takes a tensor [..., {self.d_model}], not {type(x).__name__}",
                "",
                user_line(),
            )
        shape = x._twin.shape if isinstance(x, Value) else x.shape
        if not shape or shape[-1] != self.d_model:
            raise ShapeMismatch(
                f"lm.{name} takes [..., {self.d_model}], not {list(shape)}", "", user_line()
            )
        if x.dtype != self.dtype:
            x = x.to(self.dtype)
        if isinstance(x, Value):
            width = self.vocab_size if name == "unembed" else self.d_model
            part: torch.Tensor = open_trace(self, f"lm.{name}")._part(name, x, width)
            return part
        eager = self._eager_here()
        if eager is not None:
            result: torch.Tensor = eager._real_part(name, x)
            return result
        self._check_alive()
        real: torch.Tensor = self._native.part(name, x.detach())
        return real

    def weight(self, name: str) -> torch.Tensor:
        """A weight by canonical name, dequantised: q, k, v [heads, head_width, d_model], ...

        Outside a trace a tensor of your own; inside one a traced value. lm.weights lists the names.
        """
        shapes = dict(self._native.weights())
        trace = current.get()
        if name in shapes and trace is not None and trace.lm is self and hasattr(trace, "_weight"):
            traced: torch.Tensor = trace._weight(name, tuple(shapes[name]))
            return traced
        try:
            weight: torch.Tensor = self._native.weight(name)
        except NotFound as failure:
            raise unknown(failure) from None
        return weight.clone()

    @property
    def weights(self) -> dict[str, list[int]]:
        """Canonical names of weights and their shapes."""
        return dict(self._native.weights())

    @overload
    def id(self, text: str) -> int: ...
    @overload
    def id(self, text: Sequence[str]) -> torch.Tensor: ...
    def id(self, text: str | Sequence[str]) -> int | torch.Tensor:
        """The id of a text that is one token; of a list: a LongTensor.

        >>> lm.id(" Paris")
        7042
        """
        if isinstance(text, str):
            return self.tokenizer.id(text)
        return torch.tensor([self.tokenizer.id(one) for one in text], dtype=torch.long)

    # -- running ------------------------------------------------------------------------------------

    def trace(
        self,
        prompt: Prompt | None = None,
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
        eager: bool = False,
    ) -> Trace:
        """Opens a trace: the lines of the block become a program that runs when the block ends.

        prompt: text, a list of texts of equal length in tokens, token ids (list or tensor) or chat
        messages; None: open prompts inside with t.prompt.
        max_new_tokens: generate; n new tokens are n passes (steps), the prompt's own included.
        temperature (0: greedy), top_k, top_p, min_p, repetition_penalty, seed: how tokens are drawn.
        stop: strings that end a row. bos: begin-of-text token (None: as the tokenizer says).
        eager: values are real as the pass reaches them; any Python code may look at them.
        """
        from pellucid._eager import EagerTrace
        from pellucid._trace import Trace

        self._check_alive()
        self._check_free()
        options: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
            "seed": seed,
            "stop": stop,
            "stop_at_eos": stop_at_eos,
            "bos": bos,
        }
        if eager:
            return EagerTrace(self, prompt, options)  # type: ignore[return-value]  # same surface
        trace = Trace(self)
        if prompt is not None:
            trace._own_group = trace.prompt(prompt, **options)
        elif max_new_tokens:
            raise InvalidArgument(
                "max_new_tokens belongs to a prompt", "t.prompt(..., max_new_tokens=n)", user_line()
            )
        return trace

    def map(
        self, program: Program, prompts: Sequence[Any], *inputs: Any, batch_tokens: int = 8192
    ) -> list[Any]:
        """program(lm, t, *inputs) on each prompt alone; results in the order of the prompts.

        batch_tokens: about how many tokens run together; no bit of a result depends on it.
        """
        from pellucid import _function

        return _function.run_map(self, program, prompts, inputs, batch_tokens)

    def cache(
        self,
        prompts: Prompt,
        sites: str | Sequence[str],
        *,
        at: int | slice | Sequence[int] | Literal["last"] | None = None,
        dtype: torch.dtype | None = None,
    ) -> Any:
        """Values of sites on many prompts, in memory. See _cache.collect for shapes.

        >>> v = lm.cache(happy, "blocks.14.resid_post", at=-1).mean(0)            # [d_model]
        >>> c = lm.cache(prompts, "blocks.*.attn.z", at=slice(-4, None))
        >>> c["blocks.3.attn.z"]            # [len(prompts), 4, heads, head_width]
        >>> c.stack("attn.z")               # [layers, len(prompts), 4, heads, head_width]
        """
        return _cache.collect(self, prompts, sites, at, dtype)

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        stop: str | list[str] | tuple[str, ...] = (),
        stop_at_eos: bool = True,
        bos: bool | None = None,
        stream: bool = False,
    ) -> Any:
        """Continues text, ids or chat messages; a list of prompts may have unequal lengths.

        Returns the new text (a str with .tokens and .ended), a list of them, or with stream=True an
        iterator of pieces of text; closing the iterator stops the engine.

        >>> lm.generate("The capital of France is", max_new_tokens=3)
        ' Paris.\\n'
        """
        options: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
            "seed": seed,
            "stop": [stop] if isinstance(stop, str) else list(stop),
            "stop_at_eos": stop_at_eos,
        }
        if stream:
            return _generate.stream(self, prompt, bos, options)
        return _generate.run(self, prompt, bos, options)

    def score(self, texts: str | Sequence[str]) -> Any:
        """Log-probabilities of texts: of each token after the first (.tokens), and their sum (.total)."""
        return _generate.score(self, texts)

    def chat(self, system: str | None = None, **options: Any) -> _generate.Chat:
        """A conversation: chat = lm.chat(system="You are brief."); chat("How are you?") -> text.

        options: as for generate.
        """
        return _generate.Chat(self, system, options)

    def _run(self, jobs: list[_native.Job]) -> list[Any]:
        """Runs jobs in shared passes; the first error is raised."""
        self._check_alive()
        self._check_free()
        results = self._native.run(jobs)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return list(results)

    def _eager_here(self) -> EagerTrace | None:
        """This model's eager trace that is open in this thread."""
        found = self._eager.get(threading.get_ident())
        return None if found is None else found()

    def _check_free(self) -> None:
        """Refuses what would wait for an eager trace that waits for this very thread."""
        if self._eager_here() is not None:
            raise InvalidArgument(
                "the model cannot be used inside an eager trace of its own",
                "finish it first; sites, lm.unembed, lm.ln_final and lm.lens work inside",
                user_line(),
            )

    def _check_alive(self) -> None:
        if self._dead:
            raise Error(
                "this process was forked after the model was loaded, and the engine's threads do not "
                "live in the child",
                "load the model in the child, or start processes with the 'spawn' method",
                user_line(),
            )


_models: weakref.WeakSet[LM] = weakref.WeakSet()


def _mark_dead() -> None:
    for model in _models:
        model._dead = True
        model._native.forget_engine()


os.register_at_fork(after_in_child=_mark_dead)
