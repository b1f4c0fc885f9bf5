"""The real `pellucid` binary on the real model: right values, JSON, exit codes, interruption, bad input."""

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PELLUCID_BUILD", ROOT / "build" / "dev"))
PELLUCID = BUILD / "apps" / "cli" / "pellucid"
MODELS = Path(os.environ.get("PELLUCID_MODELS", Path.home() / ".cache" / "pellucid" / "models"))

pytestmark = [
    pytest.mark.skipif(not PELLUCID.exists(), reason=f"{PELLUCID} is not built"),
    pytest.mark.skipif(
        not (MODELS / "smollm2-135m-q4_1.gguf").exists(), reason=f"no SmolLM2 in {MODELS}"
    ),
]

COMMANDS = ["run", "chat", "inspect", "lens", "trace", "tokens", "models", "doctor"]
FRANCE = "The capital of France is"


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PELLUCID_MODELS": str(MODELS), "COLUMNS": "100"} | more


def pellucid(
    *words: str | Path,
    stdin: str = "",
    code: int = 0,
    before: Callable[[], None] | None = None,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(PELLUCID), *map(str, words)],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment(**variables),
        preexec_fn=before,
        timeout=120,
    )
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def document(*words: str | Path, **options: Any) -> Any:
    return json.loads(pellucid(*words, "--json", **options).stdout)


def lines(*words: str | Path, **options: Any) -> list[Any]:
    return [json.loads(line) for line in pellucid(*words, "--json", **options).stdout.splitlines()]


# ---- help, version, usage


def test_version_names_everything_that_decides_numbers() -> None:
    text = pellucid("--version").stdout
    assert text.startswith("pellucid 0.")
    assert "torch    2.13.0" in text
    for word in ("cpu", "kernels", "threads"):
        assert word in text
    said = document("--version", "--threads", "3")
    assert said["torch"].startswith("2.13.0")
    assert said["threads"] == 3
    assert isinstance(said["cpu_features"], list)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_an_example_that_can_be_typed(command: str) -> None:
    text = pellucid(command, "--help").stdout
    examples = text.split("Examples:")[1]
    assert f"pellucid {command}" in examples
    for option in ("--json", "--threads", "--dtype", "--device"):
        assert option in text


def test_help_shows_an_example_of_every_command() -> None:
    text = pellucid("--help").stdout
    for command in COMMANDS:
        assert f"  pellucid {command}" in text


def test_no_command_is_a_usage_error_that_shows_the_help() -> None:
    done = pellucid(code=2)
    assert done.stdout == ""
    assert "Examples:" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnu", "smollm2"], "pellucid: no command 'rnu' (did you mean run?)"),
        (["run", "smollm2", "hi", "--max-token", "3"], "no option '--max-token' (did you mean --max-tokens"),
        (["lens", "smollm2", "hi", "--htmll=x"], "no option '--htmll' (did you mean --html"),
        (["run", "smollm2", "hi", "--dtype", "float23"], "no dtype 'float23' (did you mean float32"),
        (["run", "smollm2"], "PROMPT"),
        (["run", "smollm2", "hi", "--top-p", "1.5"], "--top-p"),
        (["run", "smollm2", "hi", "--max-tokens", "many"], "--max-tokens"),
        (["run", "smollm2", "hi", "--threads", "0"], "--threads"),
        (["tokens", "smollm2"], "--decode"),
    ],
)  # fmt: skip
def test_usage_errors_name_the_word_and_end_with_2(words: list[str], message: str) -> None:
    done = pellucid(*words, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("pellucid: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


# ---- errors of the world


def test_an_unknown_model_is_an_error_with_the_nearest_names() -> None:
    done = pellucid("run", "smolm2", "hi", code=1)
    assert done.stderr.startswith("pellucid: ")
    assert "smolm2" in done.stderr
    assert "smollm2" in done.stderr.replace("'smolm2'", "")


def test_with_json_an_error_is_a_document_as_well() -> None:
    done = pellucid("inspect", "no-such-model", "--json", code=1)
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "not_found"
    assert "no-such-model" in error["what"]
    assert error["hint"]


def test_another_device_is_refused_by_name() -> None:
    done = pellucid("run", "smollm2", "hi", "--device", "cuda", code=1)
    assert "no device 'cuda'" in done.stderr
    assert "--device cpu" in done.stderr


def test_a_prompt_longer_than_the_context_says_both_numbers() -> None:
    done = pellucid("run", "smollm2", "-", stdin="a " * 9000, code=1)
    context = document("inspect", "smollm2")["context_length"]
    assert str(context) in done.stderr
    assert any(9000 <= int(word) <= 18001 for word in done.stderr.split() if word.isdigit())


def test_an_empty_prompt_is_refused() -> None:
    assert "the prompt is empty" in pellucid("run", "smollm2", "-", code=1).stderr


def test_a_damaged_file_is_a_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 64)
    done = pellucid("inspect", broken, code=1)
    assert done.stderr.startswith("pellucid: ")
    assert "broken.gguf" in done.stderr


# ---- tokens, models, inspect, doctor


def test_tokens_are_those_of_the_reference() -> None:
    said = document("tokens", "smollm2", FRANCE)
    assert said["ids"] == [504, 3575, 282, 4649, 314]
    assert [token["piece"] for token in said["tokens"]] == [
        "The",
        " capital",
        " of",
        " France",
        " is",
    ]
    assert pellucid("tokens", "smollm2", FRANCE, "--ids").stdout == "504 3575 282 4649 314\n"
    decoded = pellucid("tokens", "smollm2", "--decode", "504", "3575", "282", "4649", "314").stdout
    assert decoded == FRANCE + "\n"
    assert "·France" in pellucid("tokens", "smollm2", FRANCE).stdout
    assert document("tokens", "smollm2", "-", stdin=FRANCE)["ids"] == said["ids"]


def test_an_id_outside_the_vocabulary_is_refused() -> None:
    assert "49152" in pellucid("tokens", "smollm2", "--decode", "49152", code=1).stderr


def test_special_text_is_special_unless_it_is_plain() -> None:
    special = document("tokens", "smollm2", "<|im_start|>")
    assert [token["special"] for token in special["tokens"]] == [True]
    assert len(document("tokens", "smollm2", "<|im_start|>", "--plain")["ids"]) > 1


def test_models_lists_what_load_finds() -> None:
    said = document("models")
    by_name = {model["name"]: model for model in said["models"]}
    listed = by_name["smollm2-135m-q4_1"] if "smollm2-135m-q4_1" in by_name else by_name["smollm2"]
    assert listed["format"] == "gguf"
    assert listed["bytes"] > 90_000_000
    assert "smollm2" in pellucid("models").stdout


def test_models_says_how_to_get_one_when_there_is_none(tmp_path: Path) -> None:
    text = pellucid("models", PELLUCID_MODELS=str(tmp_path), HF_HUB_CACHE=str(tmp_path)).stdout
    assert "No models" in text
    assert "./dev demo" in text


def test_inspect_knows_the_sizes_and_the_file() -> None:
    said = document("inspect", "smollm2", "--sites")
    assert said["family"] == "llama"
    sizes = {
        key: said[key]
        for key in ("num_layers", "d_model", "num_heads", "num_kv_heads", "head_width")
    }
    assert sizes == {
        "num_layers": 30,
        "d_model": 576,
        "num_heads": 9,
        "num_kv_heads": 3,
        "head_width": 64,
    }
    assert (said["d_mlp"], said["vocab"], said["tied_head"]) == (1536, 49152, True)
    assert 134_000_000 < said["num_parameters"] < 135_000_000
    tensors = {name: entry["tensors"] for name, entry in said["file_dtypes"].items()}
    assert tensors == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
    # float32, every weight once: 49152 x 576 embeddings, 30 x (576 x 576 x 2 + 2 x 192 x 576) attention.
    assert said["memory_bytes"]["embeddings"] == 49152 * 576 * 4
    assert said["memory_bytes"]["attention"] == 30 * (2 * 576 * 576 + 2 * 192 * 576) * 4
    assert said["memory_bytes"]["mlp"] == 30 * 3 * 1536 * 576 * 4
    assert said["memory_bytes"]["norms"] == 61 * 576 * 4
    assert sum(said["memory_bytes"].values()) == said["num_parameters"] * 4
    assert said["cache_bytes_per_token"] == 2 * 30 * 3 * 64 * 4
    sites = {site["name"]: site for site in said["sites"]}
    assert sites["blocks.{i}.attn.pattern"]["shape"] == "batch head=9 seq key_seq"
    assert sites["blocks.{i}.resid_post"]["placement"] == "Replicate"
    assert "rotary" in sites["blocks.{i}.attn.q"]["meaning"]
    assert "pos_embed" not in sites
    text = pellucid("inspect", "smollm2", "--sites").stdout
    assert "blocks.{i}.attn.pattern" in text


def test_doctor_judges_every_line() -> None:
    said = document("doctor")
    assert said["ok"] is True
    findings = {finding["name"]: finding for finding in said["findings"]}
    assert set(findings) == {"processor", "threads", "torch", "memory", "cache", "models", "gpu"}
    assert all(finding["verdict"] in ("ok", "warning") for finding in findings.values())
    assert findings["torch"]["text"].startswith("2.13.0")
    assert "free" in findings["cache"]["text"]


def test_doctor_says_what_to_do(tmp_path: Path) -> None:
    said = document("doctor", PELLUCID_MODELS=str(tmp_path), HF_HUB_CACHE=str(tmp_path))
    models = next(finding for finding in said["findings"] if finding["name"] == "models")
    assert models["verdict"] == "warning"
    assert "./dev demo" in models["advice"]


# ---- run


def test_run_prints_the_continuation_and_nothing_else() -> None:
    done = pellucid("run", "smollm2", FRANCE, "--max-tokens", "1")
    assert done.stdout == " Paris\n"
    assert done.stderr == ""


def test_run_reads_standard_input() -> None:
    assert pellucid("run", "smollm2", "-", "--max-tokens", "1", stdin=FRANCE).stdout == " Paris\n"


def test_run_json_streams_a_line_a_token_and_one_at_the_end() -> None:
    *tokens, end = lines("run", "smollm2", FRANCE, "--max-tokens", "6")
    assert len(tokens) == 6
    assert tokens[0] == {"prompt": 0, "token": 7042, "text": " Paris"}
    assert "".join(token["text"] for token in tokens) == end["text"]
    assert [token["token"] for token in tokens] == end["tokens"]
    assert end["ended"] == "length"
    assert end["prompt_tokens"] == 5


def test_several_prompts_are_printed_in_order_and_equal_their_solo_runs() -> None:
    prompts = [FRANCE, "The Eiffel Tower is in the city of"]
    *_, first, second = lines("run", "smollm2", *prompts, "--max-tokens", "8")
    for prompt, together in zip(prompts, (first, second), strict=True):
        alone = lines("run", "smollm2", prompt, "--max-tokens", "8")[-1]
        assert together["tokens"] == alone["tokens"]
    text = pellucid("run", "smollm2", *prompts, "--max-tokens", "8").stdout
    assert text == f"[1] {prompts[0]}\n{first['text']}\n\n[2] {prompts[1]}\n{second['text']}\n"


def test_a_seed_repeats_a_text_alone_and_in_a_batch() -> None:
    options = ["--max-tokens", "8", "--temperature", "1.2", "--top-k", "50", "--seed", "11"]
    alone = lines("run", "smollm2", FRANCE, *options)[-1]["tokens"]
    assert lines("run", "smollm2", FRANCE, *options)[-1]["tokens"] == alone
    batch = lines("run", "smollm2", FRANCE, "Once upon a time", *options)
    assert [end for end in batch if "ended" in end][0]["tokens"] == alone
    other = lines("run", "smollm2", FRANCE, *options[:-1], "12")[-1]["tokens"]
    assert other != alone


def test_a_stop_string_ends_the_text_before_it() -> None:
    whole = lines("run", "smollm2", FRANCE, "--max-tokens", "12")[-1]["text"]
    stop = whole[8:12]
    end = lines("run", "smollm2", FRANCE, "--max-tokens", "12", "--stop", stop, "--stop", "zzz")[-1]
    assert end["ended"] == "stop"
    assert end["text"] == whole[: whole.index(stop)]


def test_run_chat_applies_the_template() -> None:
    end = lines("run", "smollm2", "--chat", "What is the capital of France?", "--max-tokens", "40")[
        -1
    ]
    assert "Paris" in end["text"]
    assert end["prompt_tokens"] > 15  # the template and its system message


def test_verbose_says_how_fast_on_standard_error() -> None:
    done = pellucid("run", "smollm2", FRANCE, "--max-tokens", "2", "--verbose", "--threads", "1")
    assert done.stdout.startswith(" Paris")
    assert "5 tokens read, 2 made in" in done.stderr
    assert "tokens/s" in done.stderr
    assert "1 threads" in done.stderr


def test_float64_agrees_with_float32_on_the_answer() -> None:
    assert (
        pellucid("run", "smollm2", FRANCE, "--max-tokens", "1", "--dtype", "float64").stdout
        == " Paris\n"
    )


# ---- lens


@pytest.fixture(scope="module")
def lens() -> Any:
    return document("lens", "smollm2", FRANCE)


def test_lens_ends_with_the_models_own_answer(lens: Any) -> None:
    last = lens["layers"][-1]
    assert last["site"] == "blocks.29.resid_post"
    top = last["positions"][-1]["top"]
    assert [token["text"] for token in top] == [" Paris", " the", " London", " Le", " New"]
    expected = [17.3713, 14.8886, 13.2450, 13.0095, 12.9515]
    assert [token["logit"] for token in top] == pytest.approx(expected, abs=2e-4)
    assert top[0]["probability"] == pytest.approx(0.7725, abs=1e-4)
    assert lens["answers"][-1]["text"] == " Paris"


def test_lens_ranks_are_those_of_the_reference(lens: Any) -> None:
    # Layer L of the reference is what enters block L; it counts from 0, we from 1.
    entering = [layer["positions"][-1] for layer in lens["layers"]]
    ranks = {layer: entering[layer]["answer_rank"] - 1 for layer in (0, 24, 25, 27, 28, 29, 30)}
    assert ranks == {0: 4315, 24: 395, 25: 91, 27: 33, 28: 6, 29: 2, 30: 0}
    assert entering[29]["top"][0]["text"] == " capital"


def test_lens_table_has_the_layers_from_the_top_and_fits_the_width() -> None:
    for columns in (60, 100):
        text = pellucid("lens", "smollm2", FRANCE, COLUMNS=str(columns)).stdout
        assert max(map(len, text.splitlines())) <= columns
        assert "\x1b" not in text
        rows = text.splitlines()
        assert rows[1].split()[0] == "The"
        assert [row.split()[0] for row in rows[2:33]] == [*map(str, range(29, -1, -1)), "embed"]
    assert rows[2].split()[-2:] == ["·Paris", "77"]


def test_lens_page_needs_nothing_else_and_shows_the_top_tokens(tmp_path: Path) -> None:
    page = tmp_path / "lens.html"
    assert (
        pellucid("lens", "smollm2", "<b>The capital of France is", "--html", page).stdout
        == f"{page}\n"
    )
    text = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;The capital" in text
    assert "<b>" not in text
    assert "·Paris" in text
    for word in ("http:", "https:", "<script", "@import", "src="):
        assert word not in text
    assert text.count('<div class="tip">') == 31 * len(
        document("tokens", "smollm2", "<b>The capital of France is")["ids"]
    )
    assert os.listdir(tmp_path) == ["lens.html"]


# ---- trace


def ref(node: int, output: int = 0) -> dict[str, Any]:
    return {"node": {"node": node, "output": output}}


def integer(value: int) -> dict[str, Any]:
    return {"integer": str(value)}


def program(groups: int, **group: Any) -> dict[str, Any]:
    """Saves the five best tokens at the last position of every group."""
    nodes: list[dict[str, Any]] = []
    for i in range(groups):
        first = len(nodes)
        nodes += [
            {"kind": "READ", "name": "logits", "group": i},
            {
                "kind": "OP",
                "name": "aten::select.int",
                "args": [ref(first), integer(1), integer(-1)],
            },
            {"kind": "OP", "name": "aten::topk", "args": [ref(first + 1), integer(5)]},
            {"kind": "SAVE", "name": f"values{i}", "args": [ref(first + 2)]},
            {"kind": "SAVE", "name": f"ids{i}", "args": [ref(first + 2, 1)]},
        ]
    return {"version": 1, "groups": [group] * groups, "nodes": nodes}


def written(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_trace_gives_the_reference_values_and_writes_them(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    file = written(tmp_path / "program.json", program(2))
    eiffel = "The Eiffel Tower is in the city of"
    out = tmp_path / "results.safetensors"
    said = document("trace", "smollm2", file, "--prompt", FRANCE, "--prompt", eiffel, "--out", out)
    saved = {entry["name"]: entry for entry in said["saved"]}
    assert saved["values0"]["dtype"] == "float32"
    assert saved["values0"]["shape"] == [1, 5]
    assert saved["values0"]["max"] == pytest.approx(17.3713, abs=2e-4)
    assert saved["values1"]["max"] == pytest.approx(13.6864, abs=2e-4)
    results = load_file(out)
    assert results["values0"][0].tolist() == pytest.approx(
        [17.3713, 14.8886, 13.2450, 13.0095, 12.9515], abs=2e-4
    )
    assert results["ids0"][0, 0].item() == 7042
    assert saved["values0"]["mean"] == pytest.approx(
        results["values0"].double().mean().item(), abs=1e-9
    )
    assert sorted(os.listdir(tmp_path)) == ["program.json", "results.safetensors"]
    table = pellucid(
        "trace", "smollm2", file, "--prompt", FRANCE, "--prompt", eiffel
    ).stdout.splitlines()
    assert table[0].split() == ["name", "dtype", "shape", "min", "mean", "max"]
    assert table[1].split()[:4] == ["values0", "float32", "[1,", "5]"]


def test_trace_takes_batches_and_ids(tmp_path: Path) -> None:
    file = written(tmp_path / "program.json", program(1))
    texts = json.dumps([FRANCE, "The capital of Italy is"])
    said = document("trace", "smollm2", file, "--prompt", texts)
    assert said["saved"][0]["shape"] == [2, 5]
    said = document("trace", "smollm2", file, "--prompt", "[504, 3575, 282, 4649, 314]")
    assert said["saved"][0]["max"] == pytest.approx(17.3713, abs=2e-4)
    done = pellucid("trace", "smollm2", file, "--prompt", '["one two three", "one"]', code=1)
    assert "3" in done.stderr and "1" in done.stderr
    done = pellucid("trace", "smollm2", file, "--prompt", "[{}]", code=1)
    assert "a JSON list holds" in done.stderr


def test_trace_says_how_many_prompts_a_program_wants(tmp_path: Path) -> None:
    file = written(tmp_path / "program.json", program(2))
    assert (
        "1 prompts for a program of 2 groups"
        in pellucid("trace", "smollm2", file, "--prompt", "a", code=1).stderr
    )
    assert "give --prompt 2 times" in pellucid("trace", "smollm2", file, code=1).stderr


def test_trace_finds_constants_by_their_hash(tmp_path: Path) -> None:
    import hashlib

    import torch
    from safetensors.torch import save_file

    bias = torch.zeros(49152)
    bias[42] = 1000.0
    content = b"float32 [49152]\n" + bias.numpy().tobytes()
    digest = hashlib.sha256(content).hexdigest()
    nodes = [
        {"kind": "READ", "name": "logits"},
        {"kind": "OP", "name": "aten::add.Tensor", "args": [ref(0), {"constant": 0}]},
        {"kind": "OP", "name": "aten::argmax", "args": [ref(1), integer(-1)]},
        {"kind": "SAVE", "name": "best", "args": [ref(2)]},
    ]
    constants = [{"hash": digest, "dtype": "float32", "shape": ["49152"]}]
    file = written(
        tmp_path / "p.json", {"version": 1, "groups": [{}], "nodes": nodes, "constants": constants}
    )
    save_file({"bias": bias}, tmp_path / "right.safetensors")
    save_file({"bias": bias + 1}, tmp_path / "wrong.safetensors")
    command = ["trace", "smollm2", file, "--prompt", FRANCE, "--constants"]
    saved = document(*command, tmp_path / "right.safetensors")["saved"][0]
    assert (saved["min"], saved["max"]) == (42, 42)
    assert digest in pellucid(*command, tmp_path / "wrong.safetensors", code=1).stderr
    assert "give --constants" in pellucid(*command[:-1], code=1).stderr


def test_trace_refuses_what_is_no_program_and_what_the_model_has_not(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"version": 1, "nodes": [{"kind": "REED"}]}')
    assert "not a program" in pellucid("trace", "smollm2", tmp_path / "bad.json", code=1).stderr
    (tmp_path / "bad.bin").write_bytes(b"\xff\xfe\xfd")
    assert pellucid("trace", "smollm2", tmp_path / "bad.bin", code=1).stderr.startswith(
        "pellucid: "
    )
    wrong = program(1)
    wrong["nodes"][0]["name"] = "logist"
    file = written(tmp_path / "wrong.json", wrong)
    assert "logits" in pellucid("trace", "smollm2", file, "--prompt", "hi", code=1).stderr
    assert "missing.json" in pellucid("trace", "smollm2", tmp_path / "missing.json", code=1).stderr


def test_trace_generates_when_the_program_says_so(tmp_path: Path) -> None:
    content = program(1, max_new_tokens="3")
    said = document("trace", "smollm2", written(tmp_path / "p.json", content), "--prompt", FRANCE)
    assert said["groups"][0]["steps_run"] == 3
    assert said["groups"][0]["rows"][0]["text"].startswith(" Paris")


# ---- interruption, full disks


def started(*words: str | Path, **streams: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(PELLUCID), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        **streams,
    )


def seconds_until_interrupted() -> float:
    process = started("run", "smollm2", "Once upon a time", "--max-tokens", "4000", "--json")
    assert process.stdout is not None
    assert b'"token"' in process.stdout.readline()  # it is generating
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    process.communicate(timeout=20)
    assert process.returncode == 130
    return time.monotonic() - begin


def test_ctrl_c_stops_run_with_130_within_a_second() -> None:
    # Thrice at most: the machine may be busy with other tests.
    assert any(seconds_until_interrupted() < 1 for _ in range(3))


def test_ctrl_c_stops_the_answer_of_a_chat_and_not_the_chat() -> None:
    process = started("chat", "smollm2", "--max-tokens", "3000", stdin=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"Tell me a very long story about the sea, with many chapters.\n")
    process.stdin.flush()
    assert process.stdout.read(5)  # it is answering
    process.send_signal(signal.SIGINT)
    process.stdin.write(b"/reset\nWhat is the capital of France?\n")
    process.stdin.close()
    process.stdin = None
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert b"The conversation is forgotten." in err
    assert b"Paris" in out


@pytest.mark.parametrize(
    "words",
    [
        ["run", "smollm2", FRANCE, "--max-tokens", "3"],
        ["run", "smollm2", FRANCE, "--max-tokens", "3", "--json"],
        ["lens", "smollm2", FRANCE],
        ["lens", "smollm2", FRANCE, "--html", "/dev/full"],
        ["inspect", "smollm2"],
        ["tokens", "smollm2", "hi"],
        ["models"],
        ["doctor"],
        ["--version"],
        ["run", "--help"],
    ],
)
def test_a_full_disk_is_a_sentence(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [str(PELLUCID), *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


def small_files_only() -> None:
    """As on a full disk: no file may grow beyond 4 KiB, and writing on is an error, not a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def test_a_file_that_does_not_fit_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "lens.html"
    page.write_text("old")
    done = pellucid("lens", "smollm2", FRANCE, "--html", page, code=1, before=small_files_only)
    assert f"cannot write {page}" in done.stderr
    assert page.read_text() == "old"
    assert os.listdir(tmp_path) == ["lens.html"]


def test_results_that_do_not_fit_leave_nothing_behind(tmp_path: Path) -> None:
    content = program(1)
    content["nodes"].append({"kind": "SAVE", "name": "all", "args": [ref(0)]})
    file = written(tmp_path / "p.json", content)
    out = tmp_path / "results.safetensors"
    words = ["trace", "smollm2", file, "--prompt", FRANCE, "--out", out]
    assert "results.safetensors" in pellucid(*words, code=1, before=small_files_only).stderr
    assert os.listdir(tmp_path) == ["p.json"]


# ---- chat from a pipe


def test_chat_from_a_pipe_remembers_and_forgets() -> None:
    turns = "My name is Zoltan. What is the capital of France?\n\nWhat is my name?\n/reset\n/nonsense\nSay yes.\n"
    answers = lines("chat", "smollm2", "--max-tokens", "24", stdin=turns)
    assert [answer["user"] for answer in answers] == [
        "My name is Zoltan. What is the capital of France?", "What is my name?", "Say yes.",
    ]  # fmt: skip
    assert answers[1]["prompt_tokens"] > answers[0]["prompt_tokens"] > answers[2]["prompt_tokens"]
    done = pellucid("chat", "smollm2", "--max-tokens", "4", stdin=turns)
    assert "no command '/nonsense'" in done.stderr
    assert done.stdout.count("\n") >= 3


def test_chat_takes_special_tokens_in_a_message_as_text() -> None:
    plain = lines("chat", "smollm2", "--max-tokens", "1", stdin="hello\n")[0]
    tricky = lines("chat", "smollm2", "--max-tokens", "1", stdin="hello<|im_end|>\n")[0]
    assert tricky["prompt_tokens"] > plain["prompt_tokens"] + 1


def test_chat_uses_the_system_message() -> None:
    short = lines("chat", "smollm2", "--system", "Be brief.", "--max-tokens", "1", stdin="Hi\n")[0]
    long = lines(
        "chat", "smollm2", "--system", "Be brief. " * 20, "--max-tokens", "1", stdin="Hi\n"
    )[0]
    assert long["prompt_tokens"] > short["prompt_tokens"] + 30
