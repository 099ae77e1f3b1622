"""Who may import whom: core ← pages/shared/figures ← pages/shared ← pages, and nothing the other way."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 300

# Where a file lies → what of ours it may import, and what of others it may not. The longest match counts.
OURS = ("core", "pages", "tools", "tests", "assets", "app")
RULES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "core": (("core",), ("streamlit", "plotly", "transformers")),
    "core/model": (
        ("core.model", "core.estimate", "core.refusal", "core.words"),
        ("streamlit", "plotly", "transformers"),
    ),
    "core/engine": (
        ("core.engine", "core.model", "core.estimate", "core.refusal", "core.words"),
        ("streamlit", "plotly", "transformers"),
    ),
    "core/lab": (
        ("core.lab", "core.engine", "core.model", "core.estimate", "core.refusal", "core.words"),
        ("streamlit", "plotly", "transformers"),
    ),
    "core/estimate": (
        (
            "core.estimate",
            "core.model.config",
            "core.model.parameters",
            "core.model.files.fields",
            "core.model.files.huggingface_fields",
            "core.model.files.json_file",
            "core.refusal",
            "core.words",
        ),
        ("streamlit", "plotly", "transformers", "torch", "numpy"),
    ),
    "core/questions": (("core",), ("streamlit", "plotly", "torch", "numpy", "transformers")),
    "core/refusal.py": (("core.words",), ("streamlit", "plotly", "torch", "transformers")),
    "core/words.py": ((), ("streamlit", "plotly", "torch", "transformers")),
    "pages/shared/figures": (("pages.shared.figures", "core"), ("streamlit", "torch", "transformers")),
    "pages/shared/home": (("pages.shared", "core"), ("plotly", "torch", "transformers")),
    "pages/shared/tools": (("pages.shared", "core"), ("plotly", "torch", "transformers")),
    "pages/shared/lab": (("pages.shared", "core"), ("plotly", "torch", "transformers")),
    "pages/shared/time": (("pages.shared", "core"), ("plotly", "torch", "transformers")),
    "pages/shared/techniques": (("pages.shared", "core"), ("plotly", "torch", "transformers")),
    "pages/shared/questions": (("pages.shared", "core"), ("plotly", "torch", "transformers")),
    "pages/shared": (("pages.shared", "core"), ("pages.shared.tools", "transformers")),
    "pages": (("pages", "core"), ("plotly", "transformers")),
    "app.py": (("pages", "core", "app"), ("plotly", "transformers")),
    "tools": (("tools",), ("torch", "streamlit", "transformers")),
    "assets": (("assets", "core"), ("streamlit", "plotly", "transformers")),
}


def python_files() -> list[Path]:
    """The app's own source, without tests."""
    folders = [ROOT / name for name in ("core", "pages", "tools", "assets")]
    return sorted([ROOT / "app.py", *(file for folder in folders for file in folder.rglob("*.py"))])


def imported(source: str, module: str) -> Iterator[str]:
    """Every module a source names, at the top and inside functions, `from . import` made absolute."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            name = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            yield from (f"{name}.{alias.name}" for alias in node.names)


def begins_with(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def offences(path: str, source: str) -> list[str]:
    """What the file at `path` (from the root) imports though it may not."""
    place = max((rule for rule in RULES if path == rule or path.startswith(rule + "/")), key=len)
    allowed, forbidden = RULES[place]
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    names = list(imported(source, module))
    upward = [name for name in names if begins_with(name, OURS) and not begins_with(name, allowed)]
    return [*upward, *(name for name in names if begins_with(name, forbidden))]


@pytest.mark.parametrize("file", python_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_point_one_way(file: Path) -> None:
    assert offences(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("core/words.py", "import streamlit as st"),
        ("core/cli/trace.py", "def late():\n    from plotly.graph_objects import Figure"),
        ("core/model/load.py", "from transformers import AutoModel"),
        ("core/model/transformer.py", "from core.engine.run import Run"),
        ("core/model/transformer.py", "from core import engine"),
        ("core/model/text/tokenizer.py", "from ...engine import run"),
        ("core/estimate/flops.py", "import torch.nn"),
        ("core/estimate/flops.py", "from core.model.kv_cache import KVCache"),
        ("core/engine/run.py", "from pages.shared import stepping"),
        ("core/engine/run.py", "from core.cli.trace import trace_json"),
        ("core/engine/run.py", "import tests.peer"),
        ("core/engine/run.py", "from core.lab.count import count"),
        ("core/lab/count.py", "from core.cli.count import count_command"),
        ("pages/shared/figures/memory.py", "import streamlit"),
        ("pages/shared/figures/memory.py", "from pages.shared.controls import x"),
        ("pages/shared/figures/memory.py", "from torch import Tensor"),
        ("pages/shared/controls.py", "import pages.frame"),
        ("pages/shared/stepping.py", "from pages.shared.tools.replay import Opened"),
        ("pages/shared/tools/replay.py", "from pages.frame import PAGES"),
        ("pages/shared/tools/race.py", "import torch"),
        ("pages/shared/tools/race.py", "from pages import frame"),
        ("core/lab/race.py", "from pages.shared.numbers import count"),
        ("pages/0_home.py", "import plotly.express"),
        ("tools/make.py", "from core.model.load import load_model"),
    ],
)
def test_the_rules_notice(path: str, source: str) -> None:
    assert offences(path, source)


def test_files_stay_readable() -> None:
    """One job a file: at most 300 lines."""
    lengths = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in python_files()}
    assert {file.name: length for file, length in lengths.items() if length > MOST_LINES} == {}


def test_every_module_begins_alike() -> None:
    """A docstring that says what it is for, and annotations that are not evaluated."""
    for file in python_files():
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
        assert ast.get_docstring(tree), file
        if (
            len(tree.body) > 1 and file.name != "make.py"
        ):  # which must parse under a Python that is too old for the rest
            assert "from __future__ import annotations" in source, file


def modules_after(code: str) -> set[str]:
    """All modules a new process has imported after running `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_estimates_come_without_torch() -> None:
    """Not by way of other modules either: an estimate answers before torch could be imported."""
    folder = ROOT / "core" / "estimate"
    files = [file.relative_to(folder).with_suffix("") for file in folder.rglob("*.py") if file.stem != "__init__"]
    names = [".".join(file.parts) for file in files]
    assert len(names) >= 3
    loaded = modules_after("\n".join(f"import core.estimate.{name}" for name in names))
    assert {f"core.estimate.{name}" for name in names} <= loaded
    assert not {"torch", "numpy", "streamlit", "plotly", "transformers"} & loaded


def test_core_comes_without_the_screen() -> None:
    loaded = modules_after("import core.cli.trace, core.engine.steps, core.engine.worker, core.model.load")
    assert "torch" in loaded and not {"streamlit", "plotly", "transformers", "pandas"} & loaded
