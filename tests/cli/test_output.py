"""Where the output goes: pipes that close, devices that are full, terminals that are narrow, values that JSON does not know."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import math
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from rich.cells import cell_len
from rich.console import Console

from ramet.cli.app import _interrupts_held
from ramet.cli.counts import RunCounts
from ramet.cli.forest import Branch, Piece
from ramet.cli.output import Output, OutputLost
from ramet.cli.report import MAX_DEPTH, to_json
from ramet.cli.run import run_program
from ramet.cli.view import counts_table, tree
from ramet.lang.backends.scripted import ScriptedBackend

COMMAND = [sys.executable, "-m", "ramet.cli.main"]
PROGRAM = """
import threading

import ramet as sgl

@sgl.function
def ask(s, is_swallowing=False):
    s += "text"
    try:
        for i in range(1000):
            s += sgl.gen("answer")
            s["answer"]
    except BaseException:
        if not is_swallowing:
            raise
    return {object(): 1, ("a", 1): threading.Lock()}
"""


class Narrowed(io.StringIO):
    """A pipe whose reader goes after some writes, or any other file that fails."""

    def __init__(self, error: OSError, num_good: int) -> None:
        super().__init__()
        self.error = error
        self.num_left = num_good

    def write(self, text: str) -> int:
        self.num_left -= 1
        if self.num_left < 0:
            raise self.error
        return super().write(text)


class Backend(ScriptedBackend):
    """A scripted backend that knows whether it was shut down, and then refuses work."""

    def __init__(self) -> None:
        super().__init__(self.reply)
        self.is_shut_down = threading.Event()

    def reply(self, prompt: Any, params: Any) -> str:
        if self.is_shut_down.is_set():
            raise LookupError("shut down")
        return "an answer"

    def shutdown(self) -> None:
        self.is_shut_down.set()


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "ask.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "No space left on device")], ids=["pipe", "full"])
@pytest.mark.parametrize("is_live", [False, True], ids=["lines", "tree"])
@pytest.mark.parametrize("num_good", [0, 4])
@pytest.mark.parametrize("args", [None, '{"is_swallowing": true}'], ids=["raising", "swallowing"])
def test_an_output_that_is_lost_ends_the_run_and_is_no_ones_fault(
    program: str, error: OSError, is_live: bool, num_good: int, args: str | None
) -> None:
    backend, started = Backend(), []

    def start(options: Any) -> Backend:
        started.append(options)
        return backend

    file = cast(Any, Output(Narrowed(error, num_good)))
    console = Console(file=file, force_terminal=is_live, width=40, height=12)
    with pytest.raises(OutputLost) as lost:
        run_program(start, program, args, {}, {}, console=console, is_live=is_live, is_json=False)
    assert lost.value.__cause__ is error
    assert backend.is_shut_down.is_set() == bool(started)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({1: "a", None: "b", (1, "x"): "c"}, {"1": "a", "None": "b", "(1, 'x')": "c"}),
        ((1, [2.5, True, None]), [1, [2.5, True, None]]),
        ([math.inf, math.nan], ["inf", "nan"]),
        (1 << 20000, hex(1 << 20000)),
        ("half a pair: \ud800", "half a pair: \ud800"),
        (Path("a/b"), "a/b"),
    ],
    ids=["keys", "lists", "not finite", "large", "surrogate", "path"],
)
def test_values_have_their_nearest_form(value: Any, shown: Any) -> None:
    assert json.loads(to_json(value)) == shown


def test_what_cannot_be_copied_or_printed_is_written_all_the_same() -> None:
    class Silent:
        def __str__(self) -> str:
            raise LookupError("no")

        __repr__ = __str__

        def __deepcopy__(self, memo: Any) -> None:
            raise LookupError("no copy")

    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    lock = threading.Lock()
    values = json.loads(to_json([Silent(), {lock: lock}, circle, deep]))
    assert values[0] == "<Silent without a text: LookupError>"
    assert "lock" in next(iter(values[1])) and "lock" in next(iter(values[1].values()))
    for _ in range(MAX_DEPTH - 1):
        values[2], values[3] = values[2][0], values[3][0]
    assert values[2] == "[[...]]"
    assert values[3] == "<list without a text: RecursionError>"


def test_a_run_with_such_a_value_is_reported(program: str) -> None:
    out = io.StringIO()
    console = Console(file=cast(Any, Output(out)))
    run_program(lambda options: Backend(), program, None, {}, {}, console=console, is_live=False, is_json=True)
    value = json.loads(out.getvalue())["runs"][0]["value"]
    assert len(value) == 2 and all(isinstance(key, str) for key in value)


def test_any_text_can_be_written_in_any_encoding() -> None:
    raw = io.BytesIO()
    out = Output(io.TextIOWrapper(raw, encoding="ascii"))
    out.write("plain é 你 \ud800\n")
    out.flush()
    assert raw.getvalue() == rb"plain \xe9 \u4f60 \ud800" + b"\n"


@pytest.mark.parametrize("width", [30, 40, 76, 200])
def test_the_sums_can_be_read_at_any_width(width: int) -> None:
    counts = RunCounts(num_prompt=1_234_567, num_computed=1_000_000, num_cached=234_567, num_output=89_012, num_steps=34_567, wall_s=1234.5)
    console = Console(file=io.StringIO(), width=width)
    console.print(counts_table(counts, console.width))
    shown = cast(io.StringIO, console.file).getvalue()
    for name, value in counts.cells().items():
        assert name in shown and value in shown


def test_a_text_cannot_steer_the_terminal() -> None:
    error = ValueError("bad \x1b[2J")
    branch = Branch("1", "program", None, [Piece("\n\x1b[31mred\x07\n", False, None), Piece("a\rb\x9b1m", True, "na\x1bme")], error=error)
    console = Console(file=io.StringIO(), width=40)
    console.print(tree(branch, "title"))
    shown = cast(io.StringIO, console.file).getvalue()
    assert not [c for c in shown if (ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0]
    assert "␛[31mred␇" in shown and "a␍b" in shown and "␛[2J" in shown
    assert all(cell_len(line) <= 40 for line in shown.splitlines())
    assert "└── ␛[31m" in shown  # and no empty line for the break at the beginning


def test_an_interrupt_of_the_imports_comes_after_them() -> None:
    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt), _interrupts_held():
        signal.raise_signal(signal.SIGINT)
        reached.append("the end of the block")
    assert reached


def command(*arguments: str, redirect: str = "", path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own; `redirect` is for the shell, `path` is searched for modules first."""
    environment = {**os.environ, "PYTHONPATH": "" if path is None else str(path)}
    line = ["bash", "-c", f'"$@" {redirect}', "bash", *COMMAND, *arguments]
    return subprocess.run(line, capture_output=True, text=True, env=environment, timeout=60, cwd=Path(__file__).resolve().parents[2])


@pytest.mark.parametrize(
    ("redirect", "exit_code", "told"),
    [
        (">&-", 1, "error: standard output is closed\n"),
        (">/dev/full", 1, "error: cannot write to standard output: No space left on device\n"),
        ("| true; exit ${PIPESTATUS[0]}", (0, 141), ""),
    ],
    ids=["closed", "full", "pipe"],
)
def test_what_takes_no_output_is_told_on_one_line(redirect: str, exit_code: Any, told: str) -> None:
    result = command("run", "--help", redirect=redirect)
    assert result.stderr == told
    assert result.returncode in (exit_code if isinstance(exit_code, tuple) else (exit_code,))


def test_an_interrupt_of_the_first_imports_is_told(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    result = command("--version", path=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "interrupted\n")


# The command with an engine that answers from a script: what is tested here is what lies around it.
SCRIPTED = """
import sys
from ramet.cli import app, main
from ramet.lang.backends.scripted import ScriptedBackend

app.import_engine = lambda: None
app.start_engine = lambda options: ScriptedBackend(lambda prompt, params: "word " * 30, latency_s=0.3)
main.main()
"""
STORY = """
import ramet as sgl

@sgl.function
def story(s, num_turns=1):
    s += "Once upon a time there was a little girl named Lily, \u4f60\u597d\u4f60\u597d\u4f60\u597d\u4f60\u597d\u4f60\u597d. "
    for _ in range(num_turns):
        copies = s.fork(3)
        for i, copy in enumerate(copies):
            copy += f"Ending {i}:" + sgl.gen("a_name_that_is_rather_long_for_a_narrow_terminal")
        copies.join()
"""


@pytest.fixture
def scripted(tmp_path: Path) -> list[str]:
    (tmp_path / "story.py").write_text(STORY, encoding="utf-8")
    return [sys.executable, "-c", SCRIPTED, "run", str(tmp_path / "story.py")]


def test_a_reader_that_goes_ends_the_run_without_a_word(scripted: list[str]) -> None:
    line = [*scripted, "--args", '{"num_turns": 2}']
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline() == "1      program starts\n"
        running.stdout.close()
        assert running.wait(timeout=30) == 141
        assert running.stderr.read() == ""


def test_a_narrow_terminal_shows_whole_lines_and_every_sum(scripted: list[str]) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 40, 0, 0))
    of_terminal = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    running = subprocess.Popen(scripted, env=of_terminal, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    parts: list[bytes] = []
    with contextlib.suppress(OSError):  # how the other end of a terminal says that it is closed
        while part := os.read(master, 65536):
            parts.append(part)
    os.close(master)
    assert running.wait(timeout=30) == 0
    drawn = b"".join(parts).decode()
    assert "\x1b[?25l" in drawn and drawn.rindex("\x1b[?25h") > drawn.rindex("\x1b[?25l")  # the cursor is hidden, and comes back
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn).replace("\r\n", "\n")
    assert max(cell_len(line.rsplit("\r", 1)[-1]) for line in text.split("\n")) <= 40
    moves = [int(move) for move in re.findall(r"\x1b\[(\d+)A", drawn)]
    assert moves and max(moves) < 10  # nothing is drawn over what has scrolled away
    assert drawn.count("\x1b[1A") > 10  # it was redrawn in place
    for name in ("program 1 story", "fork 1.3", "prompt tokens", "computed", "reused", "generated", "steps", "time", "tokens/s"):
        assert name in text, name
    assert text.count("program 1 story\n") == 1  # the whole tree is left once, however often its end was drawn
