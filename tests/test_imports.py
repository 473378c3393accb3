"""The direction of imports: a folder imports only folders on lower lines, and what the never-list forbids is nowhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "ramet"

# Lower lines first; folders on one line do not import each other (the root files of the lowest line do). Folders to come stand here too.
LINES = (
    ("errors", "params", "config", "messages", "registry", "json_schema"),
    ("radix", "tokenizer", "distributed", "batch", "lang"),
    ("cache", "constraint", "attention", "multimodal", "weights", "lang/backends"),
    ("schedule", "sampling", "layers", "constraint/kinds"),
    ("models",),
    ("execute",),
    ("engine", "router"),
    ("server",),
    ("cli",),
)
LINE_OF = {unit: number for number, line in enumerate(LINES) for unit in line}

# What the lines alone would allow.
NEVER = {
    ("models", "cache"),
    ("models", "schedule"),
    ("models", "sampling"),
    ("server", "models"),
    ("server", "execute"),
    ("router", "engine"),
    ("router", "server"),
}

# Edges against the direction, and the ways in which they may be written. The language names its backends, for types and in the
# table from which one is chosen; the backend of the engine may import it when it is used. A kind of constraint is a row of a table, too.
UPWARD = {
    ("lang", "lang/backends"): {"types", "row"},
    ("lang/backends", "engine"): {"types", "lazy"},
    ("constraint", "constraint/kinds"): {"row"},
}

# Modules that run models, and the files of these units that may import them after all.
HEAVY = {"torch", "triton", "transformers"}
NO_HEAVY: dict[str, set[str]] = {
    "errors": set(),
    "params": set(),
    "config": set(),
    "messages": set(),
    "registry": set(),
    "json_schema": set(),
    "radix": set(),
    "schedule": set(),
    "lang": set(),
    "lang/backends": set(),
    "cache": {"kv_pool.py"},
    "constraint": {"mask.py"},
    "constraint/kinds": set(),
}


@dataclass(frozen=True, slots=True)
class Edge:
    """One import: `way` is eager, lazy (in a function), types (under TYPE_CHECKING) or row (a dotted path in a string)."""

    file: Path
    source: str
    target: str
    way: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.source} -> {self.target} ({self.way})"


def unit_of(module: str) -> str | None:
    """The folder, or root file, that a dotted module name of the package belongs to; None for the package itself."""
    parts = module.split(".")[1:]
    while parts and "/".join(parts) not in LINE_OF:
        parts.pop()
    return "/".join(parts) or None


def edges(package: Path) -> Iterator[Edge]:
    """Every import of every file of the package, except of the front door `__init__.py`, which only hands names on."""
    for file in sorted(package.rglob("*.py")):
        name = file.relative_to(package)
        if name == Path("__init__.py"):
            continue
        module = ".".join((package.name, *name.with_suffix("").parts))
        source = unit_of(module)
        assert source is not None, f"{name} stands on no line: give it one here and in the design"
        for target, way, line in _imports(ast.parse(file.read_text(encoding="utf-8")), module, package.name):
            yield Edge(name, source, target, way, line)


def violations(package: Path) -> list[str]:
    """The edges that are forbidden."""
    return [f"{edge}: {why}" for edge in edges(package) if (why := _forbidden(edge, package.name))]


def _forbidden(edge: Edge, package: str) -> str | None:
    if edge.target.split(".")[0] != package:
        is_heavy = edge.target.split(".")[0] in HEAVY and edge.source in NO_HEAVY
        return "this folder runs no model" if is_heavy and edge.file.name not in NO_HEAVY[edge.source] else None
    target = unit_of(edge.target)
    if target is None:
        return None if edge.target == f"{package}.__version__" else "import the module that defines the name"
    pair = (edge.source, target)
    if edge.source == target or edge.way in UPWARD.get(pair, ()):
        return None
    if pair in NEVER:
        return "on the never-list"
    is_down = LINE_OF[target] < LINE_OF[edge.source] or LINE_OF[target] == LINE_OF[edge.source] == 0
    return None if is_down else "not a lower line"


def _imports(tree: ast.Module, module: str, package: str) -> Iterator[tuple[str, str, int]]:
    row = re.compile(rf"{package}(\.\w+)+:\w+")

    def walk(node: ast.AST, way: str) -> Iterator[tuple[str, str, int]]:
        if isinstance(node, ast.Import):
            yield from ((alias.name, way, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module.split(".")[: -node.level], *([base] if base else [])])
            # `from package import name` imports a module of that name, or a name of the front door.
            yield from ((f"{base}.{alias.name}" if base == package else base, way, node.lineno) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and row.fullmatch(node.value):
            yield node.value.partition(":")[0], "row", node.lineno
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from walk(child, "types")
            for child in node.orelse:
                yield from walk(child, way)
        else:
            inner = "lazy" if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else way
            for child in ast.iter_child_nodes(node):
                yield from walk(child, inner)

    yield from walk(tree, "eager")


def test_every_import_goes_down() -> None:
    assert violations(PACKAGE) == []


def test_the_imports_are_seen() -> None:
    """An empty list above must not come from an empty search."""
    seen = {(edge.source, edge.target, edge.way) for edge in edges(PACKAGE)}
    assert ("radix", "ramet.registry", "eager") in seen
    assert ("lang", "ramet.lang.backends.base", "types") in seen
    assert ("lang", "ramet.lang.backends.engine", "row") in seen


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("radix/tree.py", "from ramet.cache import CacheManager", "not a lower line"),
        ("radix/tree.py", "import ramet.tokenizer", "not a lower line"),
        ("radix/tree.py", "from ..schedule import plan", "not a lower line"),
        ("radix/tree.py", "from ramet import lang", "not a lower line"),
        ("radix/tree.py", "from ramet import gen", "import the module"),
        ("radix/tree.py", "def late():\n    from ramet.engine.core import EngineCore", "not a lower line"),
        ("radix/tree.py", "if TYPE_CHECKING:\n    from ramet.cache import Lease", "not a lower line"),
        ("radix/tree.py", "ROWS = {'a': 'ramet.cache.manager:CacheManager'}", "not a lower line"),
        ("radix/tree.py", "import torch", "runs no model"),
        ("schedule/plan.py", "def late():\n    import torch.nn", "runs no model"),
        ("schedule/plan.py", "from ramet.sampling.sampler import Sampler", "not a lower line"),
        ("cache/manager.py", "import torch", "runs no model"),
        ("config.py", "import torch", "runs no model"),
        ("models/llama.py", "from ramet.cache.kv_pool import KvPool", "never-list"),
        ("server/app.py", "from ramet.execute.runner import Runner", "never-list"),
        ("lang/run.py", "from ramet.lang.backends.base import BaseBackend", "not a lower line"),
        ("lang/run.py", "def late():\n    from ramet.engine.offline import Engine", "not a lower line"),
        ("lang/backends/engine.py", "from ramet.engine.offline import Engine", "not a lower line"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, text: str, told: str) -> None:
    path = tmp_path / "ramet" / file
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    found = violations(tmp_path / "ramet")
    assert len(found) == 1
    assert found[0].startswith(file)
    assert told in found[0]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("radix/tree.py", "from ramet.errors import RametError\nfrom ramet.radix.policy import lru\nimport numpy"),
        ("cache/kv_pool.py", "import torch"),
        ("engine/core.py", "from ramet.execute.runner import Runner\nfrom ramet import __version__"),
        ("lang/run.py", "if TYPE_CHECKING:\n    from ramet.lang.backends.base import BaseBackend"),
        ("lang/connect.py", "ROW = 'ramet.lang.backends.engine:EngineBackend'"),
        ("lang/backends/engine.py", "def late():\n    from ramet.engine.offline import Engine"),
        ("__init__.py", "from ramet.engine.offline import Engine"),
    ],
)
def test_what_is_allowed_is_let_through(tmp_path: Path, file: str, text: str) -> None:
    path = tmp_path / "ramet" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    assert violations(tmp_path / "ramet") == []
