from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
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


@pytest.fixture(autouse=True)
def same_path() -> Iterator[None]:
    """Every test leaves the import path and the modules as they were."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("ramet program ") or name in ("imported_early", "inner_asks"):
            del sys.modules[name]


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


@pytest.mark.parametrize("text", ["import sys; sys.exit(5)\n", ONE + "def sample_rows():\n    raise SystemExit(5)\n"])
def test_a_file_that_exits_is_told_about(tmp_path: Path, text: str) -> None:
    with pytest.raises(ProgramFailed, match=r"called sys.exit\(5\)") as failed:
        read_rows(None, load_program(write(tmp_path, text))[1])
    assert isinstance(failed.value.__cause__, SystemExit)


@pytest.mark.parametrize("name", ["json.py", "dataclasses.py", "tokenizers.py", "a file.py"])
def test_a_file_replaces_no_module_of_its_name(tmp_path: Path, name: str) -> None:
    before = sys.modules.get(Path(name).stem)
    own = ONE + "\nfrom dataclasses import dataclass\n@dataclass\nclass Own:\n    x: 'int'\n"  # finds its module by name
    program, module = load_program(write(tmp_path, own, name))
    assert program.__name__ == "ask"
    assert module.__name__ != Path(name).stem and sys.modules[module.__name__] is module
    assert sys.modules.get(Path(name).stem) is before


def test_what_must_not_be_replaced_is_imported_before_the_path_changes(tmp_path: Path) -> None:
    target = write(tmp_path, "import imported_early\n" + ONE)
    write(tmp_path, "raise LookupError('the file beside the program')\n", "imported_early.py")
    (tmp_path / "library").mkdir()
    write(tmp_path / "library", "", "imported_early.py")

    def prepare() -> None:
        assert str(tmp_path) not in sys.path
        sys.path.append(str(tmp_path / "library"))
        importlib.import_module("imported_early")

    assert load_program(target, prepare)[0].__name__ == "ask"


def test_a_wrong_file_is_refused_before_anything_is_imported(tmp_path: Path) -> None:
    imported: list[str] = []
    with pytest.raises(InvalidParams):
        load_program(str(tmp_path / "gone.py"), lambda: imported.append("engine"))
    assert imported == []


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


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "[1]", "3", "@gone.json", "@", "@.", "@a\0b", "[" * 100_000, '{"question": ' * 100_000, "9" * 100_000, str([1] * 9999)],
    ids=lambda text: text[:12].replace("\0", "0"),
)
def test_wrong_rows_are_refused(tmp_path: Path, text: str) -> None:
    _, module = load_program(write(tmp_path, ONE))
    with pytest.raises(InvalidParams, match="--args") as refused:
        read_rows(text, module)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(("content", "told"), [(b"\xff\xfe\x00", "cannot be read as text"), (b"[" * 100_000, "nested too deep")])
def test_wrong_files_of_rows_are_refused(tmp_path: Path, content: bytes, told: str) -> None:
    _, module = load_program(write(tmp_path, ONE))
    path = tmp_path / "rows.json"
    path.write_bytes(content)
    with pytest.raises(InvalidParams, match=told):
        read_rows(f"@{path}", module)


@pytest.mark.parametrize(("row", "told"), [({}, "question"), ({"question": "a", "mood": 1}, "mood")])
def test_rows_must_fit_the_program(tmp_path: Path, row: dict[str, object], told: str) -> None:
    program, _ = load_program(write(tmp_path, ONE))
    with pytest.raises(InvalidParams, match=told):
        check_rows(program, [row])
    check_rows(program, [{"question": "a"}])
