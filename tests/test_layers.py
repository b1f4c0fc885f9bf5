"""The layers of src/LAYERS hold, and the check that says so finds what it should."""

import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import check_layers  # noqa: E402

LAYERS = """\
# comment
base:
files: base
hook +torch: base
model +torch: base files hook
facade +torch: base files hook model
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small house in good order."""
    for layer in ("base", "files", "hook", "model", "facade"):
        (tmp_path / "src" / layer).mkdir(parents=True)
    (tmp_path / "src" / "LAYERS").write_text(LAYERS)
    (tmp_path / "include" / "pellucid").mkdir(parents=True)
    (tmp_path / "apps" / "cli").mkdir(parents=True)
    plant(tmp_path, "src/base/status.h", "#include <string>")
    plant(
        tmp_path,
        "src/model/model.cpp",
        '#include <ATen/ops/add.h>\n#include "base/status.h"\n#include "files/gguf.h"',
    )
    plant(tmp_path, "include/pellucid/lm.h", "#include <string>\n#include <pellucid/version.h>")
    plant(
        tmp_path,
        "apps/cli/main.cpp",
        '#include <CLI/CLI.hpp>\n#include "pellucid/lm.h"\n#include "model/model.h"',
    )
    return tmp_path


def plant(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n")


def test_this_repository_keeps_its_layers() -> None:
    assert [str(fault) for fault in check_layers.check_tree(ROOT)] == []


def test_a_tree_in_good_order_has_no_faults(tree: Path) -> None:
    assert check_layers.check_tree(tree) == []


HOME = "/" + "home"  # in two parts: the check reads this file as well


@pytest.mark.parametrize(
    ("path", "line", "complaint"),
    [
        ("src/files/gguf.cpp", '#include "model/model.h"', "files may not include model"),
        ("src/files/tests/gguf_test.cpp", '#include "hook/sites.h"', "files may not include hook"),
        ("src/files/fuzz/gguf_fuzz.cpp", '#include "model/model.h"', "files may not include model"),
        ("src/base/clock.h", "  #  include <c10/util/Half.h>", "base is torch-free"),
        ("src/model/a.cpp", "#include <files/gguf.h>", "in quotes"),
        ("src/model/a.cpp", '#include "config.h"', "no path from src/"),
        ("src/model/a.cpp", '#include "pellucid/lm.h"', "only the facade"),
        ("src/model/a.cpp", '#include "proto/program.pb.h"', "only wire"),
        ("src/stray/a.cpp", "#include <string>", "no line in src/LAYERS"),
        ("src/model/a.h", "#include <nlohmann/json.hpp>", "move it into a .cpp"),
        ("src/hook/a.h", "#include <torch/torch.h>", "move it into a .cpp"),
        ("src/base/a.h", "#include <spdlog/spdlog.h>", "move it into a .cpp"),
        ("apps/cli/a.h", "#include <CLI/CLI.hpp>", "move it into a .cpp"),
        ("src/files/a.h", "#include <pcre2.h>", "move it into a .cpp"),
        ("src/files/a.h", "#include <google/protobuf/message.h>", "move it into a .cpp"),
        ("include/pellucid/b.h", "#include <ATen/core/Tensor.h>", "std and pellucid/ only"),
        ("include/pellucid/b.h", '#include "base/status.h"', "std and pellucid/ only"),
        ("include/pellucid/b.h", "#include <fmt/core.h>", "std and pellucid/ only"),
        ("apps/cli/b.cpp", '#include "proto/program.pb.h"', "not for use outside src/"),
        ("docs/a.md", f"see {HOME}/somebody/notes", "a path of one machine"),
    ],
)
def test_a_planted_fault_is_found(tree: Path, path: str, line: str, complaint: str) -> None:
    plant(tree, path, f"// first line\n{line}")
    faults = check_layers.check_tree(tree)
    assert len(faults) == 1, faults
    assert complaint in faults[0].what
    if "stray" not in path:
        assert (str(faults[0].path), faults[0].line) == (path, 2)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("late: later", "which no line above names"),
        ("plain: hook", "plain is torch-free but may include hook"),
        ("Bad Line", "not of the form"),
    ],
)
def test_a_fault_in_the_list_itself_is_found(tree: Path, line: str, complaint: str) -> None:
    (tree / "src" / "LAYERS").write_text(f"{LAYERS}{line}\n")
    assert complaint in check_layers.check_tree(tree)[0].what


def test_generated_code_stays_in_wire(tree: Path) -> None:
    (tree / "src" / "LAYERS").write_text(f"{LAYERS}wire: base\nserve: base wire\n")
    plant(tree, "src/wire/message.h", '#include "proto/program.pb.h"')
    plant(tree, "src/wire/message.cpp", '#include "wire/message.h"')
    assert check_layers.check_tree(tree) == []
    for path in ("src/serve/a.cpp", "src/wire/public.h", "apps/cli/a.cpp"):
        plant(tree, path, '#include "wire/message.h"')
        faults = check_layers.check_tree(tree)
        assert any("holds generated code" in fault.what for fault in faults), path
        (tree / path).unlink()


def test_a_header_beside_a_test_goes_by_its_bare_name_there_only(tree: Path) -> None:
    for folder in ("src/model/tests", "src/model"):
        plant(tree, f"{folder}/toy.h", "#include <string>")
        plant(tree, f"{folder}/a.cpp", '#include "toy.h"')
    assert [str(fault.path) for fault in check_layers.check_tree(tree)] == ["src/model/a.cpp"]


def test_torch_h_is_the_one_public_header_that_may_include_aten(tree: Path) -> None:
    plant(tree, "include/pellucid/torch.h", "#include <ATen/core/Tensor.h>")
    assert check_layers.check_tree(tree) == []


def test_the_command_prints_each_fault_and_fails(
    tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tree, "src/base/a.cpp", '#include "model/model.h"')
    monkeypatch.setattr(sys, "argv", ["check_layers.py", str(tree)])
    assert check_layers.main() == 1
    assert capsys.readouterr().out.startswith("src/base/a.cpp:1: base may not include model")
    shutil.rmtree(tree / "src" / "base")
    assert check_layers.main() == 0
