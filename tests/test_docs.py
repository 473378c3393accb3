"""The Python in the pages runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ramet
from ramet.errors import UnsupportedNode
from ramet.lang.backends.scripted import ScriptedBackend

ROOT = Path(__file__).resolve().parents[1]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def no_default_backend() -> Iterator[None]:
    yield
    ramet.set_default_backend(None)


def test_the_language_page_runs_from_top_to_bottom() -> None:
    names: dict[str, Any] = {}
    found = blocks("docs/language.md")
    assert len(found) > 8
    for number, block in enumerate(found):
        exec(compile(block, f"docs/language.md, block {number}", "exec"), names)


def test_the_engine_page_runs_from_top_to_bottom() -> None:
    names: dict[str, Any] = {}
    found = blocks("docs/engine.md")
    assert len(found) > 4
    for number, block in enumerate(found):
        exec(compile(block, f"docs/engine.md, block {number}", "exec"), names)


def test_the_program_of_the_readme_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    class ScriptedEngine(ScriptedBackend):
        def __init__(self, model_path: str) -> None:
            super().__init__(["Paris.\nAnd more"], choices={"is_certain": "no"}, model_name=model_path, chat_template="chatml")

        def __enter__(self) -> ScriptedEngine:
            return self

        def __exit__(self, *exc_info: object) -> None:
            self.shutdown()

    monkeypatch.setattr(ramet, "Engine", ScriptedEngine, raising=False)
    names: dict[str, Any] = {}
    program, constrained = blocks("README.md")
    exec(compile(program, "README.md, the program", "exec"), names)
    assert (names["answer"], names["is_certain"]) == ("Paris.", "no")
    exec(compile(constrained, "README.md, constraints", "exec"), names)
    record = '{"country": "Italy", "population": 7}'
    backend = ScriptedBackend([record], choices={"size": "large"})
    state = names["describe"].run("Rome", backend=backend)
    assert (state["record"], state["size"]) == (record, "large")


def test_the_constraints_page_tells_the_truth() -> None:
    for block in blocks("docs/constraints.md"):
        exec(compile(block, "docs/constraints.md", "exec"), {})


@pytest.mark.parametrize("node", [ramet.image("a.png"), ramet.video("a.mp4", 4)], ids=repr)
def test_what_the_page_calls_refused_is_refused(node: Any) -> None:
    @ramet.function
    def look(s: Any) -> None:
        s += node

    state = look.run(backend=ScriptedBackend())
    assert isinstance(state.error(), UnsupportedNode)
