"""Llama and GPT-2 written out in plain PyTorch, one line a site, in float64.

It knows nothing of the engine. What it computes is compared with transformers itself in test_reference.py, so that it
may stand for transformers where that has no place to read or write (scores, one head's query input, a norm's scale).
"""

import json
import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

Tap = Callable[[str, Tensor], Tensor]  # (canonical site, value) -> value to go on with
Cache = dict[int, tuple[Tensor, Tensor]]  # by layer: rotated keys and values, [B, P, K, H]


def load_weights(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    weights: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights |= load_file(file)
    return weights


class Norm:
    def __init__(self, weight: Tensor, bias: Tensor | None, eps: float):
        self.weight, self.bias, self.eps = weight, bias, eps

    def __call__(self, x: Tensor, tap: Tap = lambda _, x: x, name: str = "") -> Tensor:
        if self.bias is not None:
            x = x - x.mean(-1, keepdim=True)
        scale = tap(f"{name}.scale", (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        normalized = tap(f"{name}.normalized", x / scale)
        out = normalized * self.weight
        if self.bias is not None:
            out = out + self.bias
        return tap(f"{name}.out", out)


class Linear:
    """weight [out, in]."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)

    def heads(self, x_BSND: Tensor) -> Tensor:
        """Head n of the output from its own copy of the input: [B, S, N, H]."""
        count = x_BSND.shape[2]
        out = torch.einsum("bsnd,nhd->bsnh", x_BSND, self.weight.unflatten(0, (count, -1)))
        return out if self.bias is None else out + self.bias.unflatten(0, (count, -1))


def same(x: Tensor, y: Tensor) -> bool:
    return x is y


class ReferenceModel:
    """A model with one tap a site. Derived classes give the embedding, the blocks' parts and the rotation."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    d_model: int
    ln_final: Norm
    unembed: Linear
    absent: frozenset[str]  # sites of a block that the family does not have

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float64):
        self.config = json.loads((folder / "config.json").read_text())
        self.dtype = dtype
        self.weights = {name: w.to(dtype) for name, w in load_weights(folder).items()}

    # What a family decides.
    def embed(self, tokens: Tensor, positions: Tensor, tap: Tap) -> Tensor:
        raise NotImplementedError

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor | None:
        return None

    def norms(self, layer: int) -> tuple[Norm, Norm]:
        raise NotImplementedError

    def qkvo(self, layer: int) -> tuple[Linear, Linear, Linear, Linear]:
        raise NotImplementedError

    def mlp(self, layer: int, x: Tensor, tap: Tap) -> Tensor:
        raise NotImplementedError

    # The forward pass.
    def forward(self, tokens: Tensor, cache: Cache, tap: Tap) -> Tensor:
        """tokens [B, S] after what `cache` holds. Returns logits [B, S, V]; the cache grows."""
        past = cache[0][0].shape[1] if cache else 0
        positions = torch.arange(past, past + tokens.shape[1])
        tokens = tap("tokens", tokens)
        x = self.embed(tokens, positions, tap)
        for layer in range(self.num_layers):
            x = self.block(
                layer, x, positions, cache, lambda s, v, p=f"blocks.{layer}.": tap(p + s, v)
            )
        return tap("logits", self.unembed(self.ln_final(x, tap, "ln_final")))

    def block(self, layer: int, x: Tensor, positions: Tensor, cache: Cache, tap: Tap) -> Tensor:
        x = tap("resid_pre", x)
        attn = tap("attn.delta", tap("attn.out", self.attention(layer, x, positions, cache, tap)))
        x = tap("resid_mid", x + attn)
        branch = tap("mlp.resid", x)
        mlp_in = tap("mlp.input", self.norms(layer)[1](branch, tap, "ln2"))
        x = x + tap("mlp.delta", tap("mlp.out", self.mlp(layer, mlp_in, tap)))
        return tap("resid_post", x)

    def project(
        self, x: Tensor, copies: Tensor, seen: Tensor, norm: Norm, linear: Linear
    ) -> Tensor:
        """From the heads' common input, or from each one's own copy of the residual if that was edited."""
        if same(copies, seen):
            return linear(x).unflatten(-1, (copies.shape[2], -1))
        return linear.heads(norm(seen))

    def attention(self, layer: int, x: Tensor, positions: Tensor, cache: Cache, tap: Tap) -> Tensor:
        norm = self.norms(layer)[0]
        q_linear, k_linear, v_linear, o_linear = self.qkvo(layer)
        counts = {"q": self.num_heads, "k": self.num_kv_heads, "v": self.num_kv_heads}
        copies = {n: x.unsqueeze(2).expand(-1, -1, count, -1) for n, count in counts.items()}
        seen = {n: tap(f"attn.{n}_resid", copy) for n, copy in copies.items()}
        normed = tap("attn.input", norm(x, tap, "ln1"))
        q = tap("attn.q", self.project(normed, copies["q"], seen["q"], norm, q_linear))
        k = tap("attn.k", self.project(normed, copies["k"], seen["k"], norm, k_linear))
        v = tap("attn.v", self.project(normed, copies["v"], seen["v"], norm, v_linear))
        if (rotated := self.rotate(q, positions)) is not None:
            q = tap("attn.rot_q", rotated)
            k = tap("attn.rot_k", self.rotate(k, positions))  # type: ignore[arg-type]
        if layer in cache:
            k, v = torch.cat([cache[layer][0], k], 1), torch.cat([cache[layer][1], v], 1)
        cache[layer] = (k, v)
        ratio = self.num_heads // self.num_kv_heads
        k, v = k.repeat_interleave(ratio, 2), v.repeat_interleave(ratio, 2)
        scores = torch.einsum("bsnh,btnh->bnst", q, k) / math.sqrt(q.shape[-1])
        hidden = torch.arange(k.shape[1]) > positions[:, None]
        scores = tap("attn.scores", scores.masked_fill(hidden, -math.inf))
        pattern = tap("attn.pattern", scores.softmax(-1))
        z = tap("attn.z", torch.einsum("bnst,btnh->bsnh", pattern, v))
        by_head = o_linear.weight.unflatten(1, (self.num_heads, -1))
        result = torch.einsum("bsnh,dnh->bsnd", z, by_head)
        edited = tap("attn.result", result)
        if same(result, edited):
            return o_linear(z.flatten(2))
        out = edited.sum(2)
        return out if o_linear.bias is None else out + o_linear.bias


class Llama(ReferenceModel):
    absent = frozenset({"pos_embed", "attn.q_norm", "attn.k_norm", "mlp.pre"})

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float64):
        super().__init__(folder, dtype)
        config = self.config
        self.num_layers, self.d_model = config["num_hidden_layers"], config["hidden_size"]
        self.num_heads, self.num_kv_heads = (
            config["num_attention_heads"],
            config["num_key_value_heads"],
        )
        self.ln_final = self.norm("model.norm")
        embedding = self.weights["model.embed_tokens.weight"]
        self.unembed = Linear(self.weights.get("lm_head.weight", embedding), None)
        rope = config.get("rope_parameters") or config
        self.theta = rope["rope_theta"]

    def norm(self, name: str) -> Norm:
        return Norm(self.weights[f"{name}.weight"], None, self.config["rms_norm_eps"])

    def linear(self, layer: int, name: str) -> Linear:
        prefix = f"model.layers.{layer}.{name}"
        return Linear(self.weights[f"{prefix}.weight"], self.weights.get(f"{prefix}.bias"))

    def norms(self, layer: int) -> tuple[Norm, Norm]:
        prefix = f"model.layers.{layer}"
        return self.norm(f"{prefix}.input_layernorm"), self.norm(
            f"{prefix}.post_attention_layernorm"
        )

    def qkvo(self, layer: int) -> tuple[Linear, Linear, Linear, Linear]:
        q, k, v, o = (self.linear(layer, f"self_attn.{n}_proj") for n in "qkvo")
        return q, k, v, o

    def embed(self, tokens: Tensor, positions: Tensor, tap: Tap) -> Tensor:
        return tap("embed", self.weights["model.embed_tokens.weight"][tokens])

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        frequencies = self.theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = (positions[:, None] * frequencies)[:, None].to(x.dtype)  # [S, 1, H/2]
        cos, sin = angles.cos(), angles.sin()
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def mlp(self, layer: int, x: Tensor, tap: Tap) -> Tensor:
        gate = tap("mlp.gate", self.linear(layer, "mlp.gate_proj")(x))
        up = tap("mlp.up", self.linear(layer, "mlp.up_proj")(x))
        post = tap("mlp.post", torch.nn.functional.silu(gate) * up)
        return self.linear(layer, "mlp.down_proj")(post)


class Gpt2(ReferenceModel):
    absent = frozenset(
        {"attn.q_norm", "attn.k_norm", "attn.rot_q", "attn.rot_k", "mlp.gate", "mlp.up"}
    )

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float64):
        super().__init__(folder, dtype)
        config = self.config
        self.num_layers, self.d_model = config["n_layer"], config["n_embd"]
        self.num_heads = self.num_kv_heads = config["n_head"]
        self.ln_final = self.norm("ln_f")
        self.unembed = Linear(self.weights["transformer.wte.weight"], None)

    def norm(self, name: str) -> Norm:
        weight, bias = (self.weights[f"transformer.{name}.{part}"] for part in ("weight", "bias"))
        return Norm(weight, bias, self.config["layer_norm_epsilon"])

    def linear(self, layer: int, name: str) -> Linear:
        prefix = f"transformer.h.{layer}.{name}"
        return Linear(self.weights[f"{prefix}.weight"].T, self.weights[f"{prefix}.bias"])

    def norms(self, layer: int) -> tuple[Norm, Norm]:
        return self.norm(f"h.{layer}.ln_1"), self.norm(f"h.{layer}.ln_2")

    def qkvo(self, layer: int) -> tuple[Linear, Linear, Linear, Linear]:
        fused = self.linear(layer, "attn.c_attn")
        weights, biases = fused.weight.chunk(3), fused.bias.chunk(3)  # type: ignore[union-attr]
        q, k, v = (Linear(w, b) for w, b in zip(weights, biases, strict=True))
        return q, k, v, self.linear(layer, "attn.c_proj")

    def embed(self, tokens: Tensor, positions: Tensor, tap: Tap) -> Tensor:
        x = tap("embed", self.weights["transformer.wte.weight"][tokens])
        rows = self.weights["transformer.wpe.weight"][positions].expand_as(x)
        return x + tap("pos_embed", rows)

    def mlp(self, layer: int, x: Tensor, tap: Tap) -> Tensor:
        pre = tap("mlp.pre", self.linear(layer, "mlp.c_fc")(x))
        post = tap("mlp.post", torch.nn.functional.gelu(pre, approximate="tanh"))
        return self.linear(layer, "mlp.c_proj")(post)


def load_reference(folder: Path, dtype: torch.dtype = torch.float64) -> ReferenceModel:
    family = json.loads((folder / "config.json").read_text())["model_type"]
    return {"llama": Llama, "gpt2": Gpt2}[family](folder, dtype)
