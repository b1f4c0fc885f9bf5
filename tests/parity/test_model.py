"""Every site of the model code equals transformers: prefill, cached decoding, ragged batches, chunks, joined groups, writes.

Needs dump_sites (in PELLUCID_BUILD, default build/dev); the tests of the real model need SmolLM2 in PELLUCID_MODELS.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import gguf
import pytest
import safetensors.torch
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import reference  # noqa: E402

BUILD = pathlib.Path(os.environ.get("PELLUCID_BUILD", ROOT / "build/dev"))
MODELS = pathlib.Path(os.environ.get("PELLUCID_MODELS", "~/.cache/pellucid/models")).expanduser()
Sites = dict[str, torch.Tensor]

torch.set_num_threads(1)

LLAMA_VARIANTS: dict[str, dict] = {
    "ratio1": {"num_key_value_heads": 9},
    "ratio3": {},
    "ratio9": {"num_key_value_heads": 1},
    "wide_heads": {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 14},
    "tied": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"},
    "relu": {"hidden_act": "relu"},
    "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 123.0}},
    "linear": {"rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0}},
    "dynamic": {
        "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
        "max_position_embeddings": 6,
    },
    "llama3": {
        "head_dim": 16,
        "rope_parameters": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
            "rope_theta": 500.0,
        },
    },
    "yarn": {
        "head_dim": 16,
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 16,
            "rope_theta": 10000.0,
        },
    },
    "yarn_all": {
        "head_dim": 16,
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 16,
            "rope_theta": 10000.0,
            "beta_fast": 20.0,
            "beta_slow": 2.0,
            "mscale": 0.7,
            "mscale_all_dim": 0.9,
            "truncate": False,
        },
    },
}
GPT2_VARIANTS: dict[str, dict] = {
    "plain": {},
    "gelu_unscaled": {"activation_function": "gelu", "scale_attn_weights": False},
    "untied": {"tie_word_embeddings": False, "n_inner": None},
}
VARIANTS = [f"llama-{name}" for name in LLAMA_VARIANTS] + [f"gpt2-{name}" for name in GPT2_VARIANTS]
MAIN = ["llama-ratio3", "gpt2-plain"]

Tiny = tuple[torch.nn.Module, pathlib.Path]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory):
    """The tiny model of a name, made once, and its folder."""
    made: dict[str, Tiny] = {}

    def get(name: str) -> Tiny:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            family, variant = name.split("-")
            make, variants = {
                "llama": (reference.tiny_llama, LLAMA_VARIANTS),
                "gpt2": (reference.tiny_gpt2, GPT2_VARIANTS),
            }[family]
            made[name] = make(folder, **variants[variant]), folder
        return made[name]

    return get


@pytest.fixture
def dump(tmp_path: pathlib.Path):
    """Runs a plan (see src/model/tests/dump_sites.cpp) and returns what it wrote."""
    program = BUILD / "src/model/tests/dump_sites"
    if not program.exists():
        pytest.fail(f"{program} is missing: cmake --build build/dev --target dump_sites")

    def run(
        model: pathlib.Path,
        passes: list[dict],
        dtype: str = "float64",
        watch: tuple[str, ...] = ("*",),
        error: str = "",
        **plan: object,
    ) -> Sites:
        (tmp_path / "plan.json").write_text(json.dumps({"passes": passes, "watch": watch} | plan))
        done = subprocess.run(
            [program, model, dtype, tmp_path / "plan.json", tmp_path / "out.safetensors"],
            capture_output=True,
            text=True,
        )
        if error:
            assert done.returncode == 1, "no error"
            assert error in done.stderr
            return {}
        assert done.returncode == 0, done.stderr
        return safetensors.torch.load_file(tmp_path / "out.safetensors")

    return run


def ids(model: torch.nn.Module, batch: int, seq: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, model.config.vocab_size, (batch, seq), generator=generator).tolist()


def of_group(sites: Sites, group: int = 0, number: int = 0) -> Sites:
    prefix = f"pass{number}.group{group}."
    return {
        name.removeprefix(prefix): value for name, value in sites.items() if name.startswith(prefix)
    }


def true_sites(model: torch.nn.Module, tokens: list[list[int]], **more: object) -> Sites:
    with reference.TrueFloat64():
        return reference.reference_sites(model, tokens, **more)


def assert_equal(
    got: Sites, want: Sites, tolerance: float = 1e-10, names: set[str] | None = None
) -> None:
    """Every site is there, has the shape, and agrees to `tolerance` times the largest value (at least 1) of its row."""
    assert names is not None or got.keys() == want.keys()
    for name in names or want:
        a, b = got[name], want[name]
        assert a.shape == b.shape, name
        if not b.is_floating_point():
            assert torch.equal(a, b), name
            continue
        hidden = b.isinf()
        assert torch.equal(a.isinf(), hidden), name
        a, b = a.double().masked_fill(hidden, 0), b.double().masked_fill(hidden, 0)
        # A score is a sum of products far larger than itself: the largest of all heads is the measure.
        largest = b.abs().amax((1, 3) if name.endswith(".scores") else -1, keepdim=True)
        allowed = tolerance * largest.clamp(min=1)
        worst = ((a - b).abs() / allowed).max().item()
        assert worst <= 1, f"{name}: {worst * tolerance:.2e}"


@pytest.mark.parametrize("name", VARIANTS)
def test_every_site_of_a_prefill_equals_transformers(name, tiny, dump):
    model, folder = tiny(name)
    tokens = ids(model, 2, 11)
    assert_equal(
        of_group(dump(folder, [{"groups": [{"tokens": tokens}]}])), true_sites(model, tokens)
    )


@pytest.mark.parametrize("name", MAIN)
def test_every_site_equals_the_shipped_float64_to_its_own_accuracy(name, tiny, dump):
    """transformers' own float64 is float32 in places, and these weights are large."""
    model, folder = tiny(name)
    tokens = ids(model, 2, 11)
    want = reference.reference_sites(model, tokens)
    assert_equal(of_group(dump(folder, [{"groups": [{"tokens": tokens}]}])), want, 1e-5)


@pytest.mark.parametrize("name", [*MAIN, "llama-dynamic", "llama-ratio9"])
def test_cached_decoding_equals_transformers_token_by_token(name, tiny, dump):
    model, folder = tiny(name)
    tokens = ids(model, 2, 9)
    passes = [{"groups": [{"tokens": [row[:4] for row in tokens], "cache": 0}]}]
    passes += [
        {"groups": [{"tokens": [[row[i]] for row in tokens], "cache": 0}]} for i in range(4, 9)
    ]
    cache = transformers.DynamicCache()
    wanted = [true_sites(model, [row[:4] for row in tokens], cache=cache)]
    wanted += [true_sites(model, [[row[i]] for row in tokens], cache=cache) for i in range(4, 9)]
    for capacity in (0, 9):
        got = dump(folder, passes, capacity=capacity)
        for number, want in enumerate(wanted):
            assert_equal(of_group(got, number=number), want)


@pytest.mark.parametrize("name", MAIN)
def test_chunks_of_a_prompt_equal_the_whole(name, tiny, dump):
    model, folder = tiny(name)
    tokens = ids(model, 2, 13)
    cuts = [(0, 5), (5, 6), (6, 10), (10, 13)]
    got = dump(
        folder,
        [{"groups": [{"tokens": [row[a:b] for row in tokens], "cache": 0}]} for a, b in cuts],
    )
    whole = true_sites(model, tokens)
    for number, (a, b) in enumerate(cuts):
        want = {}
        for site, value in whole.items():
            key_positions = site.endswith((".scores", ".pattern"))
            want[site] = value[:, :, a:b, :b] if key_positions else value[:, a:b]
        assert_equal(of_group(got, number=number), want)


@pytest.mark.parametrize("name", [*MAIN, "llama-dynamic"])
def test_groups_of_a_ragged_batch_equal_their_own_runs(name, tiny, dump):
    """With new groups beside others that continue from a cache."""
    model, folder = tiny(name)
    shapes = [(1, 7), (3, 2), (2, 1), (1, 12)]
    prompts = [ids(model, batch, seq, seed) for seed, (batch, seq) in enumerate(shapes)]
    more = ids(model, 3, 3, 9)
    first = {"groups": [{"tokens": tokens, "cache": i} for i, tokens in enumerate(prompts)]}
    second = {"groups": [{"tokens": more, "cache": 1}, {"tokens": prompts[0]}]}
    got = dump(folder, [first, second])
    caches = [transformers.DynamicCache() for _ in prompts]
    for i, tokens in enumerate(prompts):
        assert_equal(of_group(got, i), true_sites(model, tokens, cache=caches[i]))
    assert_equal(of_group(got, 0, 1), true_sites(model, more, cache=caches[1]))
    assert_equal(of_group(got, 1, 1), true_sites(model, prompts[0]))


@pytest.mark.parametrize("name", MAIN)
def test_groups_that_join_equal_those_that_ran_from_the_start(name, tiny, dump):
    """Also afterwards: what joined has its keys and values of the blocks that it did not run."""
    model, folder = tiny(name)
    one, two = ids(model, 2, 5), ids(model, 1, 3, 1)
    joined = [
        {"tokens": one, "cache": 0},
        {"tokens": two, "cache": 1},
        {"tokens": one, "cache": 2, "join_layer": 1, "leader": 0},
        {"tokens": one, "cache": 3, "join_layer": 1, "leader": 2},
        {"tokens": two, "cache": 4, "join_layer": 2, "leader": 1},
        {"tokens": one, "cache": 5, "join_layer": 3, "leader": 3},
    ]
    again = [{"tokens": [[7]] * len(group["tokens"]), "cache": group["cache"]} for group in joined]
    got = dump(folder, [{"groups": joined}, {"groups": again}])
    for i, group in enumerate(joined):
        cache = transformers.DynamicCache()
        want = true_sites(model, group["tokens"], cache=cache)
        sites = of_group(got, i)
        layer = group.get("join_layer", 0)
        from_there = {site for site in want if site.startswith(("ln_final", "logits"))}
        from_there |= {
            site for site in want if site.startswith("blocks.") and int(site.split(".")[1]) >= layer
        }
        if layer == 0:
            from_there = set(want)
        assert sites.keys() == from_there
        assert_equal(sites, want, names=from_there)
        assert_equal(of_group(got, i, 1), true_sites(model, again[i]["tokens"], cache=cache))


BESIDE = [
    "attn.q_resid",
    "attn.k_resid",
    "attn.v_resid",
    "attn.scores",
    "attn.pattern",
    "attn.result",
]


@pytest.mark.parametrize("name", [*MAIN, "llama-biases"])
def test_a_write_of_the_same_values_changes_nothing(name, tiny, dump):
    model, folder = tiny(name)
    group = {"groups": [{"tokens": ids(model, 2, 6)}, {"tokens": ids(model, 1, 4, 1)}]}
    passes = [group] + [
        group
        | {"edits": [{"site": f"blocks.{i}.{site}", "group": 0, "scale": 1.0} for i in range(3)]}
        for site in BESIDE
    ]
    got = dump(folder, passes, watch=())
    plain = got["pass0.result"]
    for number, site in enumerate(BESIDE, start=1):
        same = got[f"pass{number}.result"]
        assert_equal({"logits": same}, {"logits": plain}, 1e-12)
        assert torch.equal(same[12:], plain[12:]), f"{site}: the other group's bits changed"


def editable(model: torch.nn.Module) -> list[str]:
    llama = isinstance(model, transformers.LlamaForCausalLM)
    own = ["attn.rot_q", "attn.rot_k", "mlp.gate", "mlp.up"] if llama else ["mlp.pre"]
    return [
        *BESIDE,
        *own,
        "resid_pre",
        "ln1.scale",
        "ln1.normalized",
        "ln1.out",
        "attn.input",
        "attn.q",
        "attn.k",
        "attn.v",
        "attn.z",
        "attn.out",
        "attn.delta",
        "resid_mid",
        "mlp.resid",
        "ln2.scale",
        "ln2.normalized",
        "ln2.out",
        "mlp.input",
        "mlp.post",
        "mlp.out",
        "mlp.delta",
        "resid_post",
    ]


@pytest.mark.parametrize("name", [*MAIN, "llama-biases"])
def test_writes_equal_the_same_hooks_in_transformers(name, tiny, dump):
    """One site after the other is multiplied in block 1 of the second group, then its cache is used."""
    model, folder = tiny(name)
    other, tokens = ids(model, 1, 4, 1), ids(model, 2, 6)
    plain = true_sites(model, tokens)["logits"]
    # Masked scores stay -inf.
    sites = {
        f"blocks.1.{site}": 0.5 if site in ("attn.scores", "attn.pattern") else -0.5
        for site in editable(model)
    }
    passes = []
    for cache, (site, scale) in enumerate(sites.items()):
        passes.append(
            {
                "groups": [{"tokens": other}, {"tokens": tokens, "cache": cache}],
                "edits": [{"site": site, "group": 1, "scale": scale}],
            }
        )
        passes.append({"groups": [{"tokens": [[5], [6]], "cache": cache}]})
    got = dump(folder, passes)
    for number, (site, scale) in enumerate(sites.items()):
        cache = transformers.DynamicCache()
        want = true_sites(
            model, tokens, edits={site: lambda x, scale=scale: x * scale}, cache=cache
        )
        assert_equal(of_group(got, 1, 2 * number), want)
        assert_equal(of_group(got, 0, 2 * number + 1), true_sites(model, [[5], [6]], cache=cache))
        assert (want["logits"] - plain).abs().max() > 1e-6, f"{site}: no effect"


@pytest.mark.parametrize("name", ["llama-ratio1", "llama-ratio3", "llama-ratio9", "gpt2-plain"])
def test_edits_of_single_heads_equal_the_same_hooks_in_transformers(name, tiny, dump):
    model, folder = tiny(name)
    tokens = ids(model, 2, 5)
    kv_heads = getattr(model.config, "num_key_value_heads", model.config.num_attention_heads)
    cases = [
        ("attn.q", 2, 2),
        ("attn.z", 4, 2),
        ("attn.pattern", 3, 1),
        ("attn.result", 1, 2),
        ("attn.q_resid", 4, 2),
    ]
    cases += [
        (site, head, 2)
        for site in ("attn.k", "attn.v", "attn.k_resid", "attn.v_resid")
        for head in range(kv_heads)
    ]
    got = dump(
        folder,
        [
            {
                "groups": [{"tokens": tokens}],
                "edits": [
                    {
                        "site": f"blocks.1.{site}",
                        "group": 0,
                        "scale": 0.0,
                        "head": head,
                        "head_dim": dim,
                    }
                ],
            }
            for site, head, dim in cases
        ],
    )
    for number, (site, head, dim) in enumerate(cases):

        def zero(x: torch.Tensor, head: int = head, dim: int = dim) -> torch.Tensor:
            x = x.clone()
            x.select(dim, head).zero_()
            return x

        assert_equal(
            of_group(got, 0, number), true_sites(model, tokens, edits={f"blocks.1.{site}": zero})
        )


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", ["llama-ratio3", "gpt2-plain"])
def test_a_row_has_the_same_bits_alone_and_among_strangers(name, dtype, tiny, dump):
    model, folder = tiny(name)
    rows = [(ids(model, 1, 7), ids(model, 1, 3, 5)), (ids(model, 1, 1, 1), ids(model, 1, 1, 6))]
    strangers = [
        {"tokens": ids(model, batch, seq, 10 + i)}
        for i, (batch, seq) in enumerate([(2, 19), (1, 1), (3, 5), (1, 30)])
    ]
    passes, places, cache = [], [], 0
    for chunks in rows:
        for place in (None, 0, 2, 4):
            for tokens in chunks:
                row = [{"tokens": tokens, "cache": cache}]
                passes.append(
                    {
                        "groups": row
                        if place is None
                        else strangers[:place] + row + strangers[place:]
                    }
                )
                places.append(place or 0)
            cache += 1
    got = dump(folder, passes, dtype)
    for first in (0, 8):  # two passes alone, then three times two passes among strangers
        for number in range(first, first + 8):
            want = of_group(got, 0, first + number % 2)
            have = of_group(got, places[number], number)
            assert have.keys() == want.keys()
            for site in want:
                assert torch.equal(have[site], want[site]), (site, places[number], number)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", ["llama-ratio3", "gpt2-plain"])
def test_reading_changes_no_bit(name, dtype, tiny, dump):
    model, folder = tiny(name)
    passes = [
        {"groups": [{"tokens": ids(model, 2, 9), "cache": 0}, {"tokens": ids(model, 1, 4, 1)}]},
        {"groups": [{"tokens": ids(model, 2, 3, 2), "cache": 0}]},
        {"groups": [{"tokens": [[1], [2]], "cache": 0}]},
    ]
    plain = dump(folder, passes, dtype, watch=())
    read = dump(folder, passes, dtype)
    for number in range(3):
        assert torch.equal(plain[f"pass{number}.result"], read[f"pass{number}.result"])


@pytest.mark.parametrize("name", MAIN)
def test_a_pass_stops_where_nobody_needs_more(name, tiny, dump):
    model, folder = tiny(name)
    tokens = ids(model, 2, 5)
    whole = dump(folder, [{"groups": [{"tokens": tokens}]}])
    some = dump(folder, [{"groups": [{"tokens": tokens}]}], layer_end=2)
    assert not any(
        ".blocks.2" in name or "ln_final" in name or "result" in name
        for name in some
        if "attn" not in name
    )
    assert all(torch.equal(value, whole[site]) for site, value in some.items())
    rows = dump(folder, [{"groups": [{"tokens": tokens}]}], watch=(), logit_rows=[4, 9, 0])
    assert torch.equal(rows["pass0.result"], whole["pass0.result"][[4, 9, 0]])


def test_weights_have_canonical_names_and_a_view_for_each_head(tiny, dump):
    model, folder = tiny("llama-biases")
    got = dump(folder, [], weights=True)
    layer = model.model.layers[1]
    assert torch.equal(got["weight.blocks.1.attn.q"], layer.self_attn.q_proj.weight.view(9, 4, 36))
    assert torch.equal(got["weight.blocks.1.attn.k.bias"], layer.self_attn.k_proj.bias.view(3, 4))
    assert torch.equal(got["weight.blocks.1.attn.o"], layer.self_attn.o_proj.weight.view(36, 9, 4))
    assert torch.equal(got["weight.blocks.1.mlp.down"], layer.mlp.down_proj.weight)
    assert torch.equal(got["weight.blocks.1.mlp.down.bias"], layer.mlp.down_proj.bias)
    assert torch.equal(got["weight.ln_final"], model.model.norm.weight)
    assert torch.equal(got["weight.unembed"], model.lm_head.weight)
    model, folder = tiny("gpt2-plain")
    got = dump(folder, [], weights=True)
    layer = model.transformer.h[2]
    q, k, v = layer.attn.c_attn.weight.T.split(35)
    assert torch.equal(got["weight.blocks.2.attn.v"], v.view(5, 7, 35))
    assert torch.equal(got["weight.blocks.2.attn.o"], layer.attn.c_proj.weight.T.view(35, 5, 7))
    assert torch.equal(got["weight.blocks.2.mlp.in"], layer.mlp.c_fc.weight.T)
    assert torch.equal(got["weight.blocks.2.ln2.bias"], layer.ln_2.bias)
    assert torch.equal(got["weight.pos_embed"], model.transformer.wpe.weight)


GGUF_BLOCK = {
    "llama": {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    },
    "gpt2": {
        "ln_1": "attn_norm",
        "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output",
        "ln_2": "ffn_norm",
        "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down",
    },
}
GGUF_OTHER = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
}


def gguf_tensor(family: str, name: str, value: torch.Tensor, config) -> tuple[str, torch.Tensor]:
    """A parameter under llama.cpp's name and in its layout."""
    module, kind = name.rsplit(".", 1)
    if module in GGUF_OTHER:
        return f"{GGUF_OTHER[module]}.{kind}", value
    layer, part = re.fullmatch(r"(?:model\.layers|transformer\.h)\.(\d+)\.(.*)", module).groups()
    if family == "gpt2" and "c_" in part and kind == "weight":
        value = value.T
    if part.endswith(("q_proj", "k_proj")):  # the two halves of a head's rows become pairs
        heads = (
            config.num_attention_heads if part.endswith("q_proj") else config.num_key_value_heads
        )
        value = value.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(value.shape)
    return f"blk.{layer}.{GGUF_BLOCK[family][part]}.{kind}", value


def write_gguf(path: pathlib.Path, model: torch.nn.Module) -> None:
    config, family = model.config, model.config.model_type
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    if family == "llama":
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
        writer.add_rope_dimension_count(config.head_dim)
        rope = config.rope_parameters
        writer.add_rope_freq_base(rope["rope_theta"])
        if rope["rope_type"] in ("linear", "yarn"):
            writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
            writer.add_rope_scaling_factor(rope["factor"])
        if rope["rope_type"] == "yarn":
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if rope["rope_type"] == "llama3":
            plain = rope["rope_theta"] ** -(
                torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
            )
            writer.add_tensor(
                "rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq).numpy()
            )
    else:
        writer.add_feed_forward_length(config.n_inner)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    for name, value in model.named_parameters():
        name, value = gguf_tensor(family, name, value.detach(), config)
        writer.add_tensor(name, value.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    "name",
    [
        "llama-ratio3",
        "llama-tied",
        "llama-wide_heads",
        "llama-linear",
        "llama-llama3",
        "llama-yarn",
        "gpt2-plain",
    ],
)
def test_every_site_of_a_gguf_file_equals_transformers(name, tiny, dump, tmp_path):
    model, _ = tiny(name)
    write_gguf(tmp_path / "tiny.gguf", model)
    tokens = ids(model, 2, 11)
    assert_equal(
        of_group(dump(tmp_path / "tiny.gguf", [{"groups": [{"tokens": tokens}]}])),
        true_sites(model, tokens),
    )


PROMPTS = {  # with the largest logits at the end, from transformers in float32
    (504, 3575, 282, 4649, 314): [17.3713, 14.8886, 13.2450, 13.0095, 12.9515],
    (504, 414, 46682, 18669, 314, 281, 260, 2240, 282): [13.6864, 10.8295, 10.6681],
    (1000,): None,
}


@pytest.fixture(scope="module")
def smollm2():
    folder, gguf = MODELS / "smollm2-135m-f32", MODELS / "smollm2-135m-q4_1.gguf"
    for path in (folder, gguf):
        if not path.exists():
            pytest.skip(f"{path} is missing (tools/make_reference_model.py)")
    model = transformers.LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval(), folder, gguf


def test_every_site_of_smollm2_equals_transformers_from_both_kinds_of_files(smollm2, dump):
    model, folder, gguf = smollm2
    groups = [{"tokens": [list(prompt)]} for prompt in PROMPTS]
    from_gguf, from_folder = (
        dump(path, [{"groups": groups}], "float32") for path in (gguf, folder)
    )
    assert from_gguf.keys() == from_folder.keys()
    for name, value in from_gguf.items():
        assert torch.equal(value, from_folder[name]), f"{name} differs between the files"
    for i, (prompt, top) in enumerate(PROMPTS.items()):
        got = of_group(from_gguf, i)
        assert_equal(got, reference.reference_sites(model, [list(prompt)]), 1e-4)
        if top is not None:
            assert got["logits"][0, -1].topk(len(top)).values.tolist() == pytest.approx(
                top, abs=2e-4
            )
