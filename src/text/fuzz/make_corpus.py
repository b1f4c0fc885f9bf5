#!/usr/bin/env python3
"""Writes the fuzz targets' first inputs into corpus/<target>/.

python3 src/text/fuzz/make_corpus.py      (needs nothing but Python; the same bytes every time)
"""

import json
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def byte_alphabet() -> list[str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(rest)) for b in range(256)]


def tokenizer(
    steps: list[dict], post: dict | None = None, alphabet: int = 128, **model: object
) -> bytes:
    words = ["<unk>", *byte_alphabet()[:alphabet], "ll", "ell", "ello", "\u0120w", "12", "ab"]
    merges = [["l", "l"], ["e", "ll"], ["ell", "o"], ["\u0120", "w"], ["1", "2"], ["a", "b"]]
    added = {
        "id": len(words),
        "content": "<|end|>",
        "lstrip": True,
        "rstrip": True,
        "special": True,
    }
    fields = {"vocab": {word: i for i, word in enumerate(dict.fromkeys(words))}, "merges": merges}
    level = {"type": "ByteLevel"}
    sequence = {"type": "Sequence", "pretokenizers": steps}
    return json.dumps(
        {
            "added_tokens": [added],
            "pre_tokenizer": sequence,
            "post_processor": post,
            "decoder": level,
            "model": {"type": "BPE"} | fields | model,
        },
        ensure_ascii=False,
    ).encode()


def split(pattern: str, behavior: str) -> dict:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}
BARE = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
LLAMA3 = r"(?i:'s|'ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
POST = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<|end|>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ],
    "special_tokens": {"<|end|>": {"ids": [0]}},
}
TOKENIZERS = {
    "smollm": tokenizer([{"type": "Digits", "individual_digits": True}, LEVEL]),
    "llama3": tokenizer([split(LLAMA3, "Isolated"), BARE], POST, ignore_merges=True),
    "unk": tokenizer(
        [split(r"\d+|(?=\p{Lu})", "MergedWithNext"), BARE], unk_token="<unk>", fuse_unk=True
    ),
    "bytes": tokenizer([BARE], alphabet=40, byte_fallback=True),
}
TEMPLATES = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m.content | trim }}{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}{% endif %}\n",
    "namespace": "{%- set ns = namespace(n=0, t='') -%}\n{% for m in messages if m.role != 'system' %}"
    "{% set ns.n = ns.n + 1 %}{{ loop.index ~ ': ' ~ m.content[1:-1] }}{% else %}none{% endfor %}{{ ns.n }}",
    "values": "{{ [1, 2.5, 'a'][::-1] | join('-') }}{{ {'a': (1, none)} | tojson }}{{ 7 // -2 }}{{ 2 ** 8 }}"
    "{{ x is defined and x.y or 'z' }}{{ 'a' in 'abc' }}{{ 1 < 2 <= 3 }}{{ messages[-1]['content'].split('e') }}",
    "raise": "{% if messages[0].role == 'user' %}{{ raise_exception('no') }}{% endif %}{# c #}{% set x %}a{% endset %}",
}

for target, inputs in (("tokenizer_json_fuzz", TOKENIZERS), ("chat_template_fuzz", TEMPLATES)):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in inputs.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
