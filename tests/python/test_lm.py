"""cache, generate, score, map, stored programs, threads, signals, forks."""

import json
import os
import signal
import threading
import time

import pellucid
import pytest
import torch

IDS = [[5, 17, 33, 2, 90], [7, 7, 250, 31, 4]]
RAGGED = [[5, 17, 33, 2, 90], [7, 8], [1, 2, 3, 4], [9, 9]]


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


# -- cache --------------------------------------------------------------------------------------


def test_one_site_gives_its_tensor(tiny):
    value = tiny.lm.cache(IDS, "blocks.1.resid_post")
    close(value, tiny.sites(IDS)["blocks.1.resid_post"])
    last = tiny.lm.cache(RAGGED, "blocks.1.resid_post", at=-1)
    assert last.shape == (4, tiny.lm.d_model)
    for row, ids in zip(last, RAGGED, strict=True):
        close(row, tiny.sites([ids])["blocks.1.resid_post"][0, -1])


def test_globs_give_a_mapping_and_stacks(tiny):
    cache = tiny.lm.cache(RAGGED, "blocks.*.attn.z", at=slice(-2, None))
    assert list(cache) == [f"blocks.{i}.attn.z" for i in range(3)]
    assert cache["blocks.1.attn.z"].shape[:2] == (4, 2)
    stack = cache.stack("attn.z")
    assert stack.shape[:3] == (3, 4, 2)
    for i in range(4):
        expected = tiny.sites([RAGGED[i]])["blocks.2.attn.z"]
        close(stack[2, i].flatten(1), expected[0, -2:].flatten(1))
    with pytest.raises(pellucid.NotFound, match="it holds blocks.0.attn.z"):
        cache["blocks.1.mlp.out"]


def test_several_sites_positions_and_dtypes(tiny):
    cache = tiny.lm.cache(IDS, ["embed", "blocks.*.resid_*"], at=[0, 3], dtype=torch.float16)
    assert "blocks.2.resid_mid" in cache
    assert cache["embed"].shape == (2, 2, tiny.lm.d_model)
    assert cache["embed"].dtype == torch.float16
    pattern = tiny.lm.cache(IDS, "blocks.0.attn.pattern", at="last")
    close(pattern, tiny.sites(IDS)["blocks.0.attn.pattern"][:, :, -1])


def test_unequal_prompts_need_positions_that_all_have(tiny):
    with pytest.raises(pellucid.InvalidArgument, match=r"have 2 and 5 tokens.*at=\"last\""):
        tiny.lm.cache(RAGGED, "embed")
    with pytest.raises(pellucid.InvalidArgument, match="have 2 and 5 tokens"):
        tiny.lm.cache(RAGGED, "embed", at=slice(-3, None))
    with pytest.raises(pellucid.InvalidArgument, match="has a size for every key"):
        tiny.lm.cache(RAGGED, "blocks.0.attn.pattern", at=-1)
    with pytest.raises(pellucid.NotFound):
        tiny.lm.cache(IDS, "blocks.*.attn.zz")


# -- generate, score, chat ------------------------------------------------------------------------


def test_generate_is_greedy_decoding(tiny):
    ids = list(IDS[0])
    for _ in range(4):
        ids.append(int(tiny.sites([ids])["logits"][0, -1].argmax()))
    text = tiny.lm.generate(IDS[0], max_new_tokens=4, stop_at_eos=False)
    assert text.tokens == ids[5:]
    assert text == tiny.lm.tokenizer.decode(ids[5:])
    assert text.ended == "length"
    several = tiny.lm.generate(RAGGED, max_new_tokens=4, stop_at_eos=False)
    assert several[0].tokens == ids[5:]
    assert len(several) == 4


def test_stream_gives_the_same_text_in_pieces(smol):
    whole = smol.generate("The capital of France is", max_new_tokens=8)
    assert (
        "".join(smol.generate("The capital of France is", max_new_tokens=8, stream=True)) == whole
    )
    assert whole.startswith(" Paris")


def test_closing_a_stream_stops_the_engine(smol):
    pieces = smol.generate("Once upon a time", max_new_tokens=500, stop_at_eos=False, stream=True)
    next(pieces)
    since = time.monotonic()
    pieces.close()
    smol.generate("a", max_new_tokens=1)
    assert time.monotonic() - since < 5


def test_stop_strings_end_the_text(smol):
    text = smol.generate("The capital of France is", max_new_tokens=20, stop=".")
    assert text == " Paris"
    assert text.ended == "stop"


def test_bad_generate_arguments(tiny):
    with pytest.raises(pellucid.InvalidArgument, match="max_new_tokens=0"):
        tiny.lm.generate(IDS[0], max_new_tokens=0)
    with pytest.raises(pellucid.InvalidArgument, match="stream=True takes one prompt"):
        tiny.lm.generate(IDS, stream=True)


def test_score_is_the_sum_of_log_probabilities(llama):
    text = "the cat sat on the mat"
    score = llama.lm.score(text)
    ids = llama.lm.tokenizer.encode(text)
    log_probabilities = llama.sites([ids])["logits"][0].log_softmax(-1)
    expected = torch.stack([log_probabilities[i, ids[i + 1]] for i in range(len(ids) - 1)])
    close(score.tokens, expected)
    assert score.total == pytest.approx(float(expected.sum()))
    assert [s.ids for s in llama.lm.score(["the cat", "the dog ran"])] == [
        llama.lm.tokenizer.encode("the cat"),
        llama.lm.tokenizer.encode("the dog ran"),
    ]
    with pytest.raises(pellucid.InvalidArgument, match="nothing to score"):
        llama.lm.score("t")


def test_tokenizer(smol):
    tokenizer = smol.tokenizer
    assert tokenizer.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert tokenizer.decode([504, 3575]) == "The capital"
    assert tokenizer.offsets("The capital") == [(0, 3), (3, 11)]
    assert smol.id(" Paris") == tokenizer.encode(" Paris")[0]
    assert torch.equal(
        smol.id([" Paris", " Rome"]), torch.tensor([smol.id(" Paris"), smol.id(" Rome")])
    )
    with pytest.raises(pellucid.InvalidArgument, match="Parisian"):
        smol.id(" Parisian quarter")


def test_chat_keeps_the_conversation(smol, smol_reference):
    chat = smol.chat(system="You are brief.", max_new_tokens=8)
    first = chat("What is the capital of France?")
    prompt = (
        "<|im_start|>system\nYou are brief.<|im_end|>\n<|im_start|>user\n"
        "What is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = torch.tensor([smol.tokenizer.encode(prompt)])
    with torch.no_grad():
        expected = smol_reference.generate(ids, max_new_tokens=8, do_sample=False)[
            0, ids.shape[1] :
        ]
    assert first.tokens == expected.tolist()
    chat("And of Italy?")
    assert [m["role"] for m in chat.messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    with smol.trace([{"role": "user", "content": "Hi"}]) as t:
        smol.logits.save()
    assert "<|im_start|>user\nHi<|im_end|>" in t.text


# -- programs as functions --------------------------------------------------------------------------


def test_map_runs_each_prompt_alone_in_order(tiny):
    v = torch.linspace(0, 1, tiny.lm.d_model, dtype=torch.float64)

    @pellucid.program
    def steered(lm, t, scale):
        lm.blocks[1].resid_post[:, -1] += scale * v
        return {"last": lm.logits[:, -1], "length": lm.embed.shape[1]}

    results = tiny.lm.map(steered, RAGGED, 3.0, batch_tokens=6)
    assert [r["length"] for r in results] == [5, 2, 4, 2]
    for ids, result in zip(RAGGED, results, strict=True):
        with tiny.lm.trace(ids) as t:
            tiny.lm.blocks[1].resid_post[:, -1] += 3.0 * v
            alone = t.save(tiny.lm.logits[:, -1])
        assert torch.equal(result["last"], alone)


def test_a_program_is_called(tiny):
    @pellucid.program
    def patched(lm, t, a, b):
        with t.prompt(a):
            source = lm.blocks[0].resid_post[:, -1]
        with t.prompt(b):
            lm.blocks[0].resid_post[:, -1] = source
            return lm.logits[:, -1]

    out = patched(tiny.lm, [1, 2, 3], [4, 5])
    assert out.shape == (1, 300)
    assert type(out) is torch.Tensor
    with pytest.raises(pellucid.InvalidArgument, match="write @pellucid.program over the function"):
        tiny.lm.map(lambda lm, t: lm.logits, RAGGED)


# -- stored programs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["program.json", "program.pb"])
def test_a_program_is_stored_and_read_back(llama, tmp_path, name):
    v = torch.linspace(0, 1, 36, dtype=torch.float64)
    with llama.lm.trace(IDS) as t:
        llama.lm.blocks[1].resid_post[:, -1] += v
        t.save(llama.lm.logits[:, -1].topk(3), "top")
    t.program.save(tmp_path / name)
    stored = pellucid.StoredProgram.load(tmp_path / name)
    assert [n.name for n in stored.nodes] == [n.name for n in t.program.nodes]
    assert torch.equal(stored.constants[0], v)
    assert stored._native.tokens(0) == []
    if name.endswith(".json"):
        assert "read" in json.dumps(json.loads((tmp_path / name).read_text())).lower()


# -- threads, signals, forks ------------------------------------------------------------------------------


def test_two_threads_on_one_model_queue(tiny):
    results = {}

    def work(number):
        for _ in range(5):
            with tiny.lm.trace([RAGGED[number]]) as t:
                tiny.lm.blocks[1].resid_post[:] *= number + 1
                results.setdefault(number, []).append(t.save(tiny.lm.logits))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        expected = tiny.sites(
            [RAGGED[number]], {"blocks.1.resid_post": lambda h, n=number: h * (n + 1)}
        )["logits"]
        for value in results[number]:
            close(value, expected)


def test_other_threads_run_while_the_model_does(smol):
    ticks = []
    over = threading.Event()

    def tick():
        while not over.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.005)

    thread = threading.Thread(target=tick)
    thread.start()
    smol.generate("Once upon a time", max_new_tokens=20, stop_at_eos=False)
    over.set()
    thread.join()
    assert len(ticks) > 10


def interrupt_after(seconds):
    def send():
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGINT)
        sent.append(time.monotonic())

    sent = []
    threading.Thread(target=send, daemon=True).start()
    return sent


def test_ctrl_c_returns_at_once_and_the_session_stays_usable(smol):
    before = smol.generate("The capital of France is", max_new_tokens=2)
    for run in (
        lambda: smol.generate("Once upon a time", max_new_tokens=2000, stop_at_eos=False),
        lambda: [*smol.generate("Once", max_new_tokens=2000, stop_at_eos=False, stream=True)],
        lambda: smol.cache([[5] * 1000] * 8, "blocks.29.resid_post"),
    ):
        sent = interrupt_after(0.3)
        with pytest.raises(KeyboardInterrupt):
            run()
        assert time.monotonic() - sent[0] < 0.5  # 0.2 s; these machines are shared
    assert smol.generate("The capital of France is", max_new_tokens=2) == before


def test_a_fork_after_load_is_an_error_that_says_so(llama):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with llama.lm.trace(IDS) as t:
                t.save(llama.lm.logits)
            message = "ran"
        except pellucid.Error as failure:
            message = str(failure)
        os.write(write, message.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    assert "forked after the model was loaded" in os.read(read, 1000).decode()
    llama.lm.generate([1], max_new_tokens=1)


# -- the lens -----------------------------------------------------------------------------------------


def test_show_lens(smol, tmp_path):
    lens = pellucid.show_lens(smol, "The capital of France is")
    assert len(lens.words) == 30
    assert lens.words[-1][-1] == " Paris"
    assert lens.probability[-1, -1] == pytest.approx(0.7725, abs=2e-4)
    assert "<table" in lens._repr_html_()
    assert "Paris" in str(lens)
    lens.save(tmp_path / "lens.html")
    assert (tmp_path / "lens.html").read_text().startswith("<!doctype html>")


def test_a_missing_model_says_where_it_looked():
    with pytest.raises(pellucid.NotFound, match="smollm3"):
        pellucid.load("smollm3")
    with pytest.raises(pellucid.InvalidArgument, match="dtype="):
        pellucid.load("smollm2", dtype=torch.float16)
    assert all({"name", "path", "bytes"} <= set(model) for model in pellucid.models())
