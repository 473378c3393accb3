from __future__ import annotations

import json
from pathlib import Path

import pytest

from ramet.cli.program import ProgramFailed, check_rows, load_program, read_rows
from ramet.errors import InvalidParams

ONE = """
import ramet as sgl

@sgl.function
def ask(s, question, tone="plain"):
    s += question + sgl.gen("answer")

SAMPLES = [{"question": "a"}, {"question": "b"}]
"""
TWO = ONE + "\n@sgl.function\ndef other(s):\n    s += 'x'\n"


def write(folder: Path, text: str, name: str = "asks.py") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_only_program_needs_no_name(tmp_path: Path) -> None:
    program, module = load_program(write(tmp_path, ONE))
    assert program.__name__ == "ask"
    assert read_rows(None, module) == [{"question": "a"}, {"question": "b"}]


def test_a_program_is_found_by_name(tmp_path: Path) -> None:
    assert load_program(write(tmp_path, TWO) + ":other")[0].__name__ == "other"


def test_an_imported_program_counts_only_without_own_ones(tmp_path: Path) -> None:
    write(tmp_path, ONE, "inner_asks.py")
    own = "from inner_asks import ask\nimport ramet as sgl\n@sgl.function\ndef mine(s):\n    ask(s, 'q')\n"
    assert load_program(write(tmp_path, own, "outer_asks.py"))[0].__name__ == "mine"
    assert load_program(write(tmp_path, "from inner_asks import ask\n", "bare_asks.py"))[0].__name__ == "ask"


@pytest.mark.parametrize(
    ("text", "suffix", "told"),
    [
        (TWO, "", "ask, other"),
        (TWO, ":ask_", "ask, other"),
        ("x = 1\n", "", "decorate one"),
        (None, "", "no such file"),
        (None, ":ask", "no such file"),
    ],
)
def test_what_cannot_be_found_is_refused_with_what_there_is(tmp_path: Path, text: str | None, suffix: str, told: str) -> None:
    target = str(tmp_path / "gone.py") if text is None else write(tmp_path, text)
    with pytest.raises(InvalidParams, match=told):
        load_program(target + suffix)


def test_a_file_that_raises_is_its_own_fault(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed) as failed:
        load_program(write(tmp_path, "1 / 0\n"))
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_rows_come_from_json_or_a_file(tmp_path: Path) -> None:
    _, module = load_program(write(tmp_path, ONE))
    rows = [{"question": "c"}, {"question": "d", "tone": "loud"}]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    assert read_rows('{"question": "c"}', module) == rows[:1]
    assert read_rows(json.dumps(rows), module) == rows
    assert read_rows(f"@{path}", module) == rows


def test_a_function_may_give_the_sample_rows(tmp_path: Path) -> None:
    rows = "def sample_rows():\n    return [{'question': 'from a function'}]\n"
    _, module = load_program(write(tmp_path, ONE + rows))
    assert read_rows(None, module) == [{"question": "from a function"}]
    _, module = load_program(write(tmp_path, ONE + "def sample_rows():\n    return [{}][1]\n"))
    with pytest.raises(ProgramFailed) as failed:
        read_rows(None, module)
    assert isinstance(failed.value.__cause__, IndexError)


@pytest.mark.parametrize("text", ["{", "[]", "[1]", "3", "@gone.json"])
def test_wrong_rows_are_refused(tmp_path: Path, text: str) -> None:
    _, module = load_program(write(tmp_path, ONE))
    with pytest.raises(InvalidParams, match="--args"):
        read_rows(text, module)


@pytest.mark.parametrize(("row", "told"), [({}, "question"), ({"question": "a", "mood": 1}, "mood")])
def test_rows_must_fit_the_program(tmp_path: Path, row: dict[str, object], told: str) -> None:
    program, _ = load_program(write(tmp_path, ONE))
    with pytest.raises(InvalidParams, match=told):
        check_rows(program, [row])
    check_rows(program, [{"question": "a"}])
