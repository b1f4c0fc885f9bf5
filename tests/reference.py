"""Values of every site, computed by Hugging Face transformers: what the model code is compared with.

    model = tiny_llama(tmp_path / "llama", num_key_value_heads=3)
    with TrueFloat64():
        sites = reference_sites(model, [[1, 2, 3]])
    sites["blocks.0.attn.pattern"]  # [batch, heads, seq, key positions]

`edits` maps canonical names to functions of the site's value, applied where the site is. Scores that a query must not see are
-inf here, the smallest float in transformers.
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterator

import torch
import transformers
from torch.overrides import TorchFunctionMode
from transformers.models.gpt2 import modeling_gpt2
from transformers.models.llama import modeling_llama

Tensor = torch.Tensor
Edits = dict[str, Callable[[Tensor], Tensor]]


class TrueFloat64(TorchFunctionMode):
    """transformers' float64 models compute norms, rotary tables and softmax in float32: this lifts those casts."""

    def __torch_function__(self, f, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = dict(kwargs or {})
        name = getattr(f, "__name__", "")
        if kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        if name == "float":
            return args[0].to(torch.float64)
        if name in ("to", "type") and len(args) > 1 and args[1] is torch.float32:
            args = (args[0], torch.float64, *args[2:])
        return f(*args, **kwargs)

    def __enter__(self) -> TrueFloat64:
        # Integer tensors times Python numbers (dynamic rotary scaling) take the default dtype.
        self.default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        torch.set_default_dtype(self.default)
        super().__exit__(*error)


def _finish(model: torch.nn.Module, folder: pathlib.Path, seed: int) -> torch.nn.Module:
    """Weights that are not trivially one or zero, saved in float64."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            is_norm = "norm" in name or "ln_" in name
            if is_norm and name.endswith("weight"):
                parameter.copy_(1 + 0.3 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.2 * noise)
            else:
                parameter.copy_(noise * 1.2 / parameter.shape[-1] ** 0.5)
    model.eval()
    model.save_pretrained(folder)
    return model


def _make(cls: type, config: transformers.PretrainedConfig) -> torch.nn.Module:
    with TrueFloat64():  # rotary tables are made here
        model = cls._from_config(config, dtype=torch.float64, attn_implementation="eager")
    return model


def tiny_llama(folder: pathlib.Path, seed: int = 0, **overrides: object) -> torch.nn.Module:
    """A LlamaForCausalLM of odd sizes with random weights, also saved in `folder`."""
    settings: dict[str, object] = (
        dict(
            vocab_size=101,
            hidden_size=36,
            intermediate_size=43,
            num_hidden_layers=3,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=64,
            tie_word_embeddings=False,
            rms_norm_eps=1e-5,
            pad_token_id=None,
            bos_token_id=1,
            eos_token_id=2,
        )
        | overrides
    )
    return _finish(
        _make(transformers.LlamaForCausalLM, transformers.LlamaConfig(**settings)), folder, seed
    )


def tiny_gpt2(folder: pathlib.Path, seed: int = 0, **overrides: object) -> torch.nn.Module:
    """A GPT2LMHeadModel of odd sizes with random weights, also saved in `folder`."""
    settings: dict[str, object] = (
        dict(
            vocab_size=103,
            n_embd=35,
            n_layer=3,
            n_head=5,
            n_inner=41,
            n_positions=48,
            bos_token_id=1,
            eos_token_id=2,
        )
        | overrides
    )
    return _finish(
        _make(transformers.GPT2LMHeadModel, transformers.GPT2Config(**settings)), folder, seed
    )


class _Recorder:
    """The sites of one forward pass, recorded and edited through hooks on the modules."""

    def __init__(self, model: torch.nn.Module, edits: Edits) -> None:
        self.model, self.edits = model, edits
        self.sites: dict[str, Tensor] = {}
        self.handles: list[torch.utils.hooks.RemovableHandle] = []

    def at(self, name: str, value: Tensor) -> Tensor:
        self.sites[name] = value.detach().clone()
        return self.edits[name](value) if name in self.edits else value

    def before(self, module: torch.nn.Module, function: Callable[[Tensor], Tensor]) -> None:
        def hook(_: torch.nn.Module, args: tuple, kwargs: dict) -> tuple:
            if args:
                return (function(args[0]), *args[1:]), kwargs
            return args, kwargs | {"hidden_states": function(kwargs["hidden_states"])}

        self.handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def after(self, module: torch.nn.Module, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        """`function` of the module's first input and its (first) output."""

        def hook(_: torch.nn.Module, args: tuple, kwargs: dict, output: object) -> object:
            given = args[0] if args else kwargs["hidden_states"]
            if isinstance(output, tuple):
                return (function(given, output[0]), *output[1:])
            return function(given, output)  # type: ignore[arg-type]

        self.handles.append(module.register_forward_hook(hook, with_kwargs=True))

    def norm(self, module: torch.nn.Module, name: str) -> None:
        layer_norm = isinstance(module, torch.nn.LayerNorm)

        def compute(x: Tensor, output: Tensor) -> Tensor:
            epsilon = module.eps if layer_norm else module.variance_epsilon
            centred = x - x.mean(-1, keepdim=True) if layer_norm else x
            scale = (centred.pow(2).mean(-1, keepdim=True) + epsilon).sqrt()
            normalized = self.at(f"{name}.normalized", centred / self.at(f"{name}.scale", scale))
            if self.edits.keys() & {f"{name}.scale", f"{name}.normalized"}:
                output = normalized * module.weight + (module.bias if layer_norm else 0)
            return self.at(f"{name}.out", output)

        self.after(module, compute)

    def project(
        self,
        i: int,
        kind: str,
        x: Tensor,
        output: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        norm: torch.nn.Module,
        width: int,
    ) -> Tensor:
        """attn.q_resid and attn.q (or k, v): output [batch, seq, heads * width]; weight [heads * width, d_model]."""
        heads = weight.shape[0] // width
        resid = self.sites[f"blocks.{i}.resid_pre"]
        if f"blocks.{i}.resid_pre" in self.edits:
            resid = self.edits[f"blocks.{i}.resid_pre"](resid)
        copies = resid.unsqueeze(2).expand(-1, -1, heads, -1)
        name = f"blocks.{i}.attn.{kind}_resid"
        seen = self.at(name, copies)
        value = output.unflatten(-1, (heads, width))
        if name in self.edits:
            value = torch.einsum(
                "bsnd,nhd->bsnh", self.plain(norm, seen), weight.unflatten(0, (heads, width))
            )
            if bias is not None:
                value = value + bias.unflatten(0, (heads, width))
        return self.at(f"blocks.{i}.attn.{kind}", value).flatten(-2)

    @staticmethod
    def plain(norm: torch.nn.Module, x: Tensor) -> Tensor:
        """The norm without its hooks."""
        return type(norm).forward(norm, x)

    def attention(
        self,
        i: int,
        sites_rotary: bool,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scaling: float,
        original: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, Tensor]:
        """Everything from rotary to the weighted sum. query: [batch, heads, seq, width] after rotary; key with the past."""
        name, seq = f"blocks.{i}.attn", query.shape[2]
        past = key.shape[2] - seq
        if sites_rotary:
            query = self.at(f"{name}.rot_q", query.transpose(1, 2)).transpose(1, 2)
            fresh = self.at(f"{name}.rot_k", key[:, :, past:].transpose(1, 2)).transpose(1, 2)
            key[:, :, past:] = fresh  # the cache's own tensor: later passes see an edit, too
        ratio = query.shape[1] // key.shape[1]
        keys, values = key.repeat_interleave(ratio, 1), value.repeat_interleave(ratio, 1)
        scores = query @ keys.transpose(2, 3) * scaling
        visible = torch.ones(seq, past + seq, dtype=torch.bool).tril(past)
        scores = self.at(f"{name}.scores", scores.masked_fill(~visible, float("-inf")))
        output, pattern = original(query, key)
        if f"{name}.scores" in self.edits:
            pattern = scores.softmax(-1)
        pattern = self.at(f"{name}.pattern", pattern)
        if self.edits.keys() & {f"{name}.scores", f"{name}.pattern"}:
            output = (pattern @ values).transpose(1, 2)
        return self.at(f"{name}.z", output), pattern

    def project_out(
        self, i: int, z: Tensor, output: Tensor, weight: Tensor, bias: Tensor | None, width: int
    ) -> Tensor:
        """attn.result and attn.out. z: [batch, seq, heads * width]; weight: [d_model, heads * width]."""
        name = f"blocks.{i}.attn"
        per_head = torch.einsum(
            "bsnh,dnh->bsnd", z.unflatten(-1, (-1, width)), weight.unflatten(1, (-1, width))
        )
        per_head = self.at(f"{name}.result", per_head)
        if f"{name}.result" in self.edits:
            output = per_head.sum(2) + (0 if bias is None else bias)
        return self.at(f"{name}.delta", self.at(f"{name}.out", output))

    def middle(self, i: int, delta: Tensor) -> Tensor:
        """resid_mid: transformers has no module there, so an edit of it goes through what attention adds."""
        name = f"blocks.{i}.resid_mid"
        if name not in self.edits:
            return delta
        resid = self.edits.get(f"blocks.{i}.resid_pre", lambda x: x)(
            self.sites[f"blocks.{i}.resid_pre"]
        )
        return self.edits[name](resid + delta) - resid

    def branch(self, i: int, resid: Tensor) -> Tensor:
        """The MLP's copy of the residual. resid_mid is recorded here, as it was before its edit."""
        resid_pre = self.edits.get(f"blocks.{i}.resid_pre", lambda x: x)(
            self.sites[f"blocks.{i}.resid_pre"]
        )
        delta = self.edits.get(f"blocks.{i}.attn.delta", lambda x: x)(
            self.sites[f"blocks.{i}.attn.delta"]
        )
        edited = f"blocks.{i}.resid_mid" in self.edits
        self.sites[f"blocks.{i}.resid_mid"] = (
            (resid_pre + delta if edited else resid).detach().clone()
        )
        return self.at(f"blocks.{i}.mlp.resid", resid)


def _hook_llama(recorder: _Recorder, model: torch.nn.Module) -> None:
    at = recorder.at
    width = model.config.head_dim
    recorder.before(model.model.embed_tokens, lambda x: at("tokens", x))
    recorder.after(model.model.embed_tokens, lambda x, y: at("embed", y))
    for i, layer in enumerate(model.model.layers):
        block, attn, mlp = f"blocks.{i}", layer.self_attn, layer.mlp
        recorder.before(layer, functools.partial(at, f"{block}.resid_pre"))
        recorder.norm(layer.input_layernorm, f"{block}.ln1")
        recorder.before(attn, functools.partial(at, f"{block}.attn.input"))
        for kind, module in (("q", attn.q_proj), ("k", attn.k_proj), ("v", attn.v_proj)):
            recorder.after(
                module,
                lambda x, y, i=i, kind=kind, module=module, layer=layer: recorder.project(
                    i, kind, x, y, module.weight, module.bias, layer.input_layernorm, width
                ),
            )
        recorder.before(attn.o_proj, lambda z: z)
        recorder.after(
            attn.o_proj,
            lambda z, y, i=i, o=attn.o_proj: recorder.middle(
                i, recorder.project_out(i, z, y, o.weight, o.bias, width)
            ),
        )
        recorder.before(layer.post_attention_layernorm, functools.partial(recorder.branch, i))
        recorder.norm(layer.post_attention_layernorm, f"{block}.ln2")
        recorder.before(mlp, functools.partial(at, f"{block}.mlp.input"))
        recorder.after(mlp.gate_proj, lambda x, y, b=block: at(f"{b}.mlp.gate", y))
        recorder.after(mlp.up_proj, lambda x, y, b=block: at(f"{b}.mlp.up", y))
        recorder.before(mlp.down_proj, functools.partial(at, f"{block}.mlp.post"))
        recorder.after(mlp, lambda x, y, b=block: at(f"{b}.mlp.delta", at(f"{b}.mlp.out", y)))
        recorder.after(layer, lambda x, y, b=block: at(f"{b}.resid_post", y))
    recorder.norm(model.model.norm, "ln_final")
    recorder.after(model.lm_head, lambda x, y: at("logits", y))


def _hook_gpt2(recorder: _Recorder, model: torch.nn.Module) -> None:
    at = recorder.at
    transformer = model.transformer
    d_model, width = model.config.n_embd, model.config.n_embd // model.config.n_head
    recorder.before(transformer.wte, lambda x: at("tokens", x))
    recorder.after(transformer.wte, lambda x, y: at("embed", y))
    recorder.after(transformer.wpe, lambda x, y: at("pos_embed", y))

    def project(i: int, layer: torch.nn.Module, x: Tensor, output: Tensor) -> Tensor:
        weight, bias = layer.attn.c_attn.weight.T, layer.attn.c_attn.bias
        parts = [
            recorder.project(i, kind, x, part, w, b, layer.ln_1, width)
            for kind, part, w, b in zip(
                "qkv",
                output.split(d_model, -1),
                weight.split(d_model),
                bias.split(d_model),
                strict=True,
            )
        ]
        return torch.cat(parts, -1)

    for i, layer in enumerate(transformer.h):
        block, attn, mlp = f"blocks.{i}", layer.attn, layer.mlp
        recorder.before(layer, functools.partial(at, f"{block}.resid_pre"))
        recorder.norm(layer.ln_1, f"{block}.ln1")
        recorder.before(attn, functools.partial(at, f"{block}.attn.input"))
        recorder.after(attn.c_attn, functools.partial(project, i, layer))
        recorder.after(
            attn.c_proj,
            lambda z, y, i=i, o=attn.c_proj: recorder.middle(
                i, recorder.project_out(i, z, y, o.weight.T, o.bias, width)
            ),
        )
        recorder.before(layer.ln_2, functools.partial(recorder.branch, i))
        recorder.norm(layer.ln_2, f"{block}.ln2")
        recorder.before(mlp, functools.partial(at, f"{block}.mlp.input"))
        recorder.after(mlp.c_fc, lambda x, y, b=block: at(f"{b}.mlp.pre", y))
        recorder.before(mlp.c_proj, functools.partial(at, f"{block}.mlp.post"))
        recorder.after(mlp, lambda x, y, b=block: at(f"{b}.mlp.delta", at(f"{b}.mlp.out", y)))
        recorder.after(layer, lambda x, y, b=block: at(f"{b}.resid_post", y))
    recorder.norm(transformer.ln_f, "ln_final")
    recorder.after(model.lm_head, lambda x, y: at("logits", y))


@contextlib.contextmanager
def _recorded(model: torch.nn.Module, edits: Edits) -> Iterator[_Recorder]:
    recorder = _Recorder(model, edits)
    llama = isinstance(model, transformers.LlamaForCausalLM)
    (_hook_llama if llama else _hook_gpt2)(recorder, model)
    module = modeling_llama if llama else modeling_gpt2
    eager = module.eager_attention_forward

    def attention(
        layer: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *args: object,
        **kwargs: object,
    ) -> tuple[Tensor, Tensor]:
        scaling = kwargs.get("scaling") or layer.scaling
        return recorder.attention(
            layer.layer_idx,
            llama,
            query,
            key,
            value,
            scaling,
            lambda q, k: eager(layer, q, k, value, mask, *args, **kwargs),
        )

    module.eager_attention_forward = attention
    try:
        yield recorder
    finally:
        module.eager_attention_forward = eager
        for handle in recorder.handles:
            handle.remove()


def _forget_lengths(model: torch.nn.Module) -> None:
    """Dynamic rotary scaling remembers the longest input so far, so that one run changes the next: not here."""
    for module in model.modules():
        if hasattr(module, "max_seq_len_cached"):
            module.max_seq_len_cached = module.original_max_seq_len
            module.inv_freq = module.original_inv_freq


def reference_sites(
    model: torch.nn.Module,
    ids: list[list[int]] | Tensor,
    edits: Edits | None = None,
    cache: transformers.Cache | None = None,
) -> dict[str, Tensor]:
    """All sites of one forward pass over `ids` [batch, seq], before each site's own edit; with `cache`, after its past."""
    ids = torch.as_tensor(ids)
    _forget_lengths(model)
    with torch.no_grad(), _recorded(model, edits or {}) as recorder:
        extra = {} if cache is None else {"past_key_values": cache, "use_cache": True}
        model(input_ids=ids, **(extra or {"use_cache": False}))
    if "pos_embed" in recorder.sites:  # one row for the whole batch in transformers
        recorder.sites["pos_embed"] = recorder.sites["pos_embed"].expand(len(ids), -1, -1)
    return recorder.sites
