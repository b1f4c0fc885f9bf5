"""The tokenizer equals Hugging Face `tokenizers`: ids, offsets, decoding, streaming.

Needs text_driver (in PELLUCID_BUILD, default build/dev) and the SmolLM2 files in PELLUCID_MODELS; every string goes to both.
"""

import json
import pathlib
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
    trainers,
)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from text_driver import MODELS, SMOLLM2, Driver  # noqa: E402

SPECIAL_TEXT = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<repo_name>",
    "<reponame>",
    "<empty_output>",
    "<|im_",
    "start|>",
    "<tool>",
    "<mask>",
    "word",
    "<|im_start|>user\n",
]
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz ",
    "ABCXYZ abc'stremldv",
    "0123456789",
    " \t\n\r\v\f",
    "'\"`.,;:!?-_()[]{}<>|/\\@#$%^&*+=~",
    "äöüßéèñçøåæœžšč ÀÉÎÕÜ",
    "абвгдежзийклмнопрстуфхцчшщъыьэюя ",
    "αβγδεζηθικλμνξοπρστυφχψω ",
    "אבגדהוזחטיכלמנסעפצקרשת ",
    "ابتثجحخدذرزسشصضطظعغفقكلمنهوي ",
    "कखगघङचछजझञािीुूेैोौ्ंः ",
    "กขคงจฉชซ้่๊๋ัาิี ",
    "你好世界中文漢字日本語。、「」",
    "ひらがなカタカナー・",
    "안녕하세요한국어 ",
    "აბგდევზთ ",
    "አማርኛ ",
    "ខ្មែរ ",
    "១២៣٤٥٦७८९Ⅷ½²①",
    "\u0300\u0301\u0308\u20dd\u200d\u200c\ufe0f",
    "\u00a0\u1680\u180e\u2000\u2009\u2028\u2029\u202f\u205f\u3000\ufeff\u0085\u200b",
    "👍🏽👨‍👩‍👧‍👦🇫🇷🏳️‍🌈😀❤️☝🏿🧑‍💻",
    "∑∫√≠≤∞→←⇒ℝℂ€£¥₿©®™",
    "".join(map(chr, range(32))) + "\x7f\x80\x9f",
    "𐍈𝔸𝟙𒀀𓂀\U0001ecb0\U00011de1\U00016ff4\U0001e5d0\U00040000\U0010ffff\ue000\uffff",
]
HAND_PICKED = [
    "",
    " ",
    "  ",
    "\n",
    "\n\n",
    " \n ",
    "a",
    " a",
    "  a",
    "   a b  c   ",
    "The capital of France is Paris.",
    "I'm, you're, we'll, it's'S",
    "it''s 'twas 'd'll",
    "1234567890" * 30,
    "0" * 1000,
    "3.14159e-10",
    "1,234,567.89",
    "x=1;y = 22 ;z= 333",
    "a" * 5000,
    " " * 3000,
    "\t" * 100 + "x",
    "ab" * 3000,
    "\n" * 999 + "x",
    "…" * 500,
    "👍" * 400,
    "e\u0301" * 300,
    "ﷺ" * 100,
    "\x00\x01\x04\x06\x13\x1d",
    "a\x04b\x06c",
    "<|im_start|>user\nHi<|im_end|>\n",
    "<|im_start|><|im_start|>",
    "  <|im_end|>  ",
    "<|im_start",
    "<<|im_end|>>",
    "a<repo_name>b",
    "def f(x):\n    return x ** 2\n\n\nprint(f(3))",
    '{"a": [1, 2.5, null], "b": "\\u00e9"}',
    "https://example.org/a?b=c&d=%20#e",
    "Ġ Ċ âĢĻ Ã©",
    "\ufeffBOM",
    "a\u200bb",
    "a\u180eb",
    "\u180e x",
    "ſ 'ſ İ ı K",
    "\U0001e5d0\U0001e5d1 x",
    "\U00011de1\U00016ff4 1",
    "Ⅻ ½ ² ٣ ७ 〇 一",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "مرحبا بالعالم",
    "שלום עולם",
    "Привет, мир!",
    "你好,世界!",
    "こんにちは世界",
    "안녕 세상",
    "<tool>x</tool> <mask>  y",
    " sub word words sword word",
    "<mask><mask> <tool>",
    "\u3000<tool>\u3000<mask>\u3000",
]
CORPUS = (
    [s for s in HAND_PICKED if s]
    + ["The Eiffel Tower is in Paris and it's 330 metres tall."] * 20
    + [
        "Tokenizers cut words into pieces, and pieces into bytes.",
        "don't can't won't I'll we've they're she'd",
    ]
    * 5
)


def characters():
    return st.one_of(
        *[st.text(st.sampled_from(a), min_size=1, max_size=12) for a in ALPHABETS],
        st.text(min_size=1, max_size=12),
        st.sampled_from(SPECIAL_TEXT),
        st.sampled_from([" ", "  ", "\n", "\n\n "]),
    )


STRINGS = (
    st.lists(characters(), min_size=0, max_size=8)
    .map("".join)
    .filter(lambda s: not any(0xD800 <= ord(c) < 0xE000 for c in s))
)


def to_characters(text, ranges):
    """Byte ranges, widened to whole characters, as `tokenizers` counts."""
    first, after = [], [0]
    for k, c in enumerate(text):
        first += [k] * len(c.encode())
        after += [k + 1] * len(c.encode())
    first.append(len(text))
    return [(first[b], after[e]) if e > b else (0, 0) for b, e in ranges]


def check(driver, reference, text):
    """Equal ids, offsets, decoding; returns how many bytes had no token."""
    want = reference.encode(text)
    got = driver.ask(op="encode", text=text)
    assert "error" not in got, (text, got)
    assert got["ids"] == want.ids, text
    if not got["dropped"]:  # the reference's offsets slip behind bytes that have no token
        assert to_characters(text, got["ranges"]) == want.offsets, text
    assert got["decoded"] == reference.decode(want.ids, skip_special_tokens=False), text
    assert got["plain"] == reference.decode(want.ids, skip_special_tokens=True), text
    assert got["streamed"] == got["decoded"], text
    return got["dropped"]


def smollm2(tmp_path):
    return (
        Tokenizer.from_file(str(SMOLLM2 / "tokenizer.json")),
        Driver(
            tokenizer=str(SMOLLM2 / "tokenizer.json"), config=str(SMOLLM2 / "tokenizer_config.json")
        ),
    )


def smollm2_gguf(tmp_path):
    return (
        Tokenizer.from_file(str(SMOLLM2 / "tokenizer.json")),
        Driver(gguf=str(MODELS / "smollm2-135m-q4_1.gguf")),
    )


def trained(pre_tokenizer, vocab_size=600, post=None, alphabet=True, added=(), **model):
    def make(tmp_path):
        tokenizer = Tokenizer(models.BPE(**model))
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoders.ByteLevel()
        if post is not None:
            tokenizer.post_processor = post
        tokenizer.train_from_iterator(
            CORPUS,
            trainers.BpeTrainer(
                vocab_size=vocab_size,
                special_tokens=["<|endoftext|>", "<unk>"],
                show_progress=False,
                initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()) if alphabet else [],
            ),
        )
        tokenizer.add_tokens(list(added))
        path = tmp_path / "tokenizer.json"
        tokenizer.save(str(path))
        return Tokenizer.from_file(str(path)), Driver(tokenizer=str(path))

    return make


byte_level = pre_tokenizers.ByteLevel
sequence = pre_tokenizers.Sequence
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|\P{L}\S?"
ADDED = [
    AddedToken("<tool>", rstrip=True, lstrip=True),
    AddedToken("<mask>", lstrip=True, special=True, normalized=False),
    AddedToken("word", single_word=True),
    AddedToken("<|im_start|>", special=True),
    AddedToken("<|im_start|>user\n"),
]
# GPT-2's own tokenizer.json is the first; the others vary one construct each.
TOKENIZERS = {
    "smollm2": smollm2,
    "smollm2_gguf": smollm2_gguf,
    "gpt2": trained(
        byte_level(add_prefix_space=False),
        post=processors.ByteLevel(trim_offsets=False),
        added=ADDED,
    ),
    "prefix_space": trained(byte_level(add_prefix_space=True), added=ADDED),
    "digits": trained(sequence([pre_tokenizers.Digits(False), byte_level(True, use_regex=True)])),
    "unk": trained(byte_level(False), alphabet=False, vocab_size=150, unk_token="<unk>"),
    "fuse_unk": trained(
        byte_level(False), alphabet=False, vocab_size=150, unk_token="<unk>", fuse_unk=True
    ),
    "llama3": trained(
        sequence(
            [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), byte_level(False, use_regex=False)]
        ),
        ignore_merges=True,
        post=processors.TemplateProcessing(
            single="<|endoftext|> $A <unk>", special_tokens=[("<|endoftext|>", 0), ("<unk>", 1)]
        ),
    ),
    "cased": trained(sequence([pre_tokenizers.Split(Regex(CASED), "isolated"), byte_level(False)])),
    "default_pre": trained(
        sequence(
            [
                pre_tokenizers.Split(Regex(p), "isolated")
                for p in (
                    r"[\p{P}\$\+<=>\^~\|]+",
                    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
                    r"\p{N}+",
                    r"[0-9][0-9][0-9]",
                )
            ]
            + [byte_level(False, use_regex=False)]
        )
    ),
    **{
        f"split_{b}_{i}": trained(
            sequence(
                [
                    pre_tokenizers.Split(Regex(r"\s|\d+|(?=\p{Lu})"), b, invert=i),
                    pre_tokenizers.Split(" ", "merged_with_next"),
                    byte_level(False),
                ]
            )
        )
        for b in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
        for i in (False, True)
    },
}
FULL = ("smollm2", "smollm2_gguf", "gpt2")  # these see every string, the others some


@pytest.fixture(scope="module")
def strings():
    """More than 5,000 different ones: hand-picked, and 5,200 draws of hypothesis, made once for all tokenizers."""
    seen = dict.fromkeys(HAND_PICKED + CORPUS)

    @settings(
        max_examples=5200,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(STRINGS)
    def draw(text):
        seen[text] = None

    draw()
    assert len(seen) > 5000, len(seen)
    return list(seen)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_equal_to_tokenizers(name, tmp_path, strings):
    reference, driver = TOKENIZERS[name](tmp_path)
    assert "error" not in driver.loaded, driver.loaded
    for text in strings if name in FULL else strings[:600]:
        check(driver, reference, text)
    driver.close()


def test_gguf_and_folder_agree(tmp_path):
    folder, gguf = smollm2(tmp_path)[1], smollm2_gguf(tmp_path)[1]
    assert folder.loaded == gguf.loaded
    assert (
        gguf.loaded["size"],
        gguf.loaded["bos"],
        gguf.loaded["eos"],
        gguf.loaded["adds_bos"],
    ) == (49152, 1, 2, False)
    assert gguf.loaded["chat_template"].startswith("{% for message in messages %}")
    folder.close()
    gguf.close()


def test_special_tokens_as_plain_text(tmp_path):
    """`encode_special_tokens` of the library: special tokens are text, other added tokens are still found."""
    reference, driver = TOKENIZERS["gpt2"](tmp_path)
    reference.encode_special_tokens = True
    for text in HAND_PICKED + SPECIAL_TEXT + ["".join(SPECIAL_TEXT), " ".join(SPECIAL_TEXT)]:
        assert (
            driver.ask(op="encode", text=text, parse_special=False)["ids"]
            == reference.encode(text).ids
        ), text
    driver.close()


def test_decoding_any_ids(tmp_path):
    """Ids that no text gives, so that characters break anywhere."""
    reference, driver = smollm2(tmp_path)

    @settings(max_examples=500, derandomize=True, database=None, deadline=None)
    @given(st.lists(st.one_of(st.integers(0, 300), st.integers(0, 49151)), max_size=12))
    def ids(tokens):
        got = driver.ask(op="decode", ids=tokens)
        assert (
            got["decoded"] == got["streamed"] == reference.decode(tokens, skip_special_tokens=False)
        )

    ids()
    driver.close()


def test_what_is_not_there_is_refused_by_name(tmp_path):
    good = json.loads((SMOLLM2 / "tokenizer.json").read_text())
    good["model"] |= {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
    good["added_tokens"] = []

    def split(pattern):
        return {
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [
                    {
                        "type": "Split",
                        "pattern": {"Regex": pattern},
                        "behavior": "Isolated",
                        "invert": False,
                    },
                    {"type": "ByteLevel"},
                ],
            }
        }

    for change, code, what in [
        ({"normalizer": {"type": "NFC"}}, "unsupported", "tokenizer: normalizer NFC"),
        ({"decoder": {"type": "Metaspace"}}, "unsupported", "tokenizer: decoder Metaspace"),
        ({"decoder": None}, "unsupported", "tokenizer: decoder null"),
        (
            {"pre_tokenizer": {"type": "Whitespace"}},
            "unsupported",
            "tokenizer: pre_tokenizer Whitespace",
        ),
        ({"pre_tokenizer": None}, "unsupported", "pre_tokenizer: none"),
        (
            {"pre_tokenizer": {"type": "Digits"}},
            "unsupported",
            "pre_tokenizer: a sequence that does not end with ByteLevel",
        ),
        (
            {"post_processor": {"type": "BertProcessing"}},
            "unsupported",
            "tokenizer: post_processor BertProcessing",
        ),
        (
            {"model": good["model"] | {"type": "Unigram"}},
            "unsupported",
            "tokenizer: model.type Unigram",
        ),
        ({"model": good["model"] | {"dropout": 0.1}}, "unsupported", "tokenizer: model.dropout"),
        (
            {"model": good["model"] | {"end_of_word_suffix": "</w>"}},
            "unsupported",
            "tokenizer: model.end_of_word_suffix",
        ),
        ({"model": good["model"] | {"new_field": 1}}, "unsupported", "tokenizer: model.new_field"),
        ({"new_field": 1}, "unsupported", "tokenizer: tokenizer.json.new_field"),
        (
            {"model": good["model"] | {"merges": ["a c"]}},
            "corrupt_file",
            "merge 0 (`a` `c`) needs a token that is not in the vocabulary",
        ),
        (
            {"model": good["model"] | {"vocab": {"a": 4000000000}}},
            "corrupt_file",
            "tokenizer: an id in model.vocab is out of range",
        ),
        (
            {"model": good["model"] | {"vocab": {"a": 2000000000}, "merges": []}},
            "corrupt_file",
            "token id 2000000000 in a vocabulary of 1 tokens",
        ),
        (
            {"added_tokens": [{"id": 7, "content": "ab", "special": True}]},
            "corrupt_file",
            "added token `ab` cannot have id 7",
        ),
        (split(r"\p{Han}"), "unsupported", r"pattern construct `\p{Han}` at byte 0 of `\p{Han}`"),
        (split(r"a\b"), "unsupported", r"pattern construct `\b` at byte 1 of `a\b`"),
        (split(r"[a-z&&b]"), "unsupported", "pattern construct `&&` at byte 4 of `[a-z&&b]`"),
        (split(r"(?<x>a)"), "unsupported", "pattern construct `(?<x` at byte 0 of `(?<x>a)`"),
        (split("(a"), "invalid_argument", "a group without its `)` in pattern `(a`"),
    ]:
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(good | change))
        driver = Driver(tokenizer=str(path))
        assert (driver.loaded.get("error"), driver.loaded.get("what")) == (code, what), change
        driver.close()
    for text, what in [
        ("{", "tokenizer: tokenizer.json is not JSON"),
        ("[" * 100000, "tokenizer.json, byte 64: nested more than 64 deep"),
        ("[]", "tokenizer: tokenizer.json is not an object"),
    ]:
        path.write_text(text)
        driver = Driver(tokenizer=str(path))
        assert (driver.loaded["error"], driver.loaded["what"]) == ("corrupt_file", what)
        driver.close()
