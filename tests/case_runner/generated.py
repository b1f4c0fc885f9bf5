"""Cases that iterate a list instead of standing in a file: one for each site that a family has."""

from case_runner.format import Case, parse_case

# Sites of a tiny model that hold floats; blocks' ones in block 1. What a family lacks stands in `absent`.
GLOBAL = ("embed", "pos_embed", "ln_final.scale", "ln_final.normalized", "ln_final.out", "logits")
IN_BLOCK = (
    *(
        "resid_pre",
        "attn.q_resid",
        "attn.k_resid",
        "attn.v_resid",
        "ln1.scale",
        "ln1.normalized",
        "ln1.out",
    ),
    *(
        "attn.input",
        "attn.q",
        "attn.k",
        "attn.v",
        "attn.rot_q",
        "attn.rot_k",
        "attn.scores",
        "attn.pattern",
    ),
    *("attn.z", "attn.result", "attn.out", "attn.delta", "resid_mid", "mlp.resid", "ln2.scale"),
    *(
        "ln2.normalized",
        "ln2.out",
        "mlp.input",
        "mlp.gate",
        "mlp.up",
        "mlp.pre",
        "mlp.post",
        "mlp.out",
    ),
    *("mlp.delta", "resid_post"),
)
ABSENT = {
    "tiny_llama": {"pos_embed", "mlp.pre"},
    "tiny_gpt2": {"attn.rot_q", "attn.rot_k", "mlp.gate", "mlp.up"},
}

# An uneven perturbation at one position: +1 everywhere would not do, norms and softmax ignore constants.
PERTURB = """# A perturbation of {site} at one position moves the logits.
models {model}
group [84, 7, 200, 31, 5]
x = read {site}
save before = x
{edit}
save after = read {site}
save logits = read logits
group [84, 7, 200, 31, 5]
save plain = read logits
expect before != after
expect amax(abs(logits - plain)) > 1e-6
"""


def edit_of(site: str) -> str:
    at = "x[:, :, 3, :4]" if site.endswith(("attn.scores", "attn.pattern")) else "x[:, 3]"
    return f"at = {at}\nat += cos(cumsum(ones_like(at), -1) * 2.3) * 0.1"


def cases() -> dict[str, Case]:
    found = {}
    for model, absent in ABSENT.items():
        for site in [*GLOBAL, *(f"blocks.1.{site}" for site in IN_BLOCK)]:
            if site.removeprefix("blocks.1.") in absent:
                continue
            name = f"perturb_{site.replace('.', '_')}_{model}"
            text = PERTURB.format(site=site, model=model, edit=edit_of(site))
            found[name] = parse_case(name, text)
    return found
