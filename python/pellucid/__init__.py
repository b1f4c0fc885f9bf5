"""Pellucid runs and opens language models: read, edit and follow what happens inside.

>>> import pellucid
>>> lm = pellucid.load("smollm2")
>>> with lm.trace("The capital of France is") as t:
...     h = lm.blocks[12].resid_post.save()
...     top = t.save(lm.logits[:, -1].topk(5))
"""

import torch  # noqa: F401  (first: the extension finds libtorch through it)

from pellucid import _native
from pellucid._cache import Cache
from pellucid._eager import EagerTrace
from pellucid._errors import (
    Cancelled,
    CorruptFile,
    Error,
    FileError,
    InvalidArgument,
    NotFound,
    NotRun,
    NotSaved,
    NumberNotKnown,
    OutOfMemory,
    OutOfOrder,
    OverBudget,
    PellucidWarning,
    ShapeMismatch,
    Unsupported,
)
from pellucid._function import Program, program
from pellucid._generate import Chat, Generated, Score
from pellucid._group import Group
from pellucid._lens import Lens, show_lens
from pellucid._lm import LM
from pellucid._load import load, models
from pellucid._store import StoredProgram
from pellucid._tokenizer import Tokenizer
from pellucid._trace import Trace
from pellucid._value import Value

__version__: str = _native.version()

__all__ = [
    "LM",
    "Cache",
    "Cancelled",
    "Chat",
    "CorruptFile",
    "EagerTrace",
    "Error",
    "FileError",
    "Generated",
    "Group",
    "InvalidArgument",
    "Lens",
    "NotFound",
    "NotRun",
    "NotSaved",
    "NumberNotKnown",
    "OutOfMemory",
    "OutOfOrder",
    "OverBudget",
    "PellucidWarning",
    "Program",
    "Score",
    "ShapeMismatch",
    "StoredProgram",
    "Tokenizer",
    "Trace",
    "Unsupported",
    "Value",
    "load",
    "models",
    "program",
    "show_lens",
]
