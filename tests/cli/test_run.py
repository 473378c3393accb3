from __future__ import annotations

import io
import json
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import ramet
from ramet.cli.app import build_app
from ramet.cli.run import run_program
from ramet.errors import ConfigError, EngineClosed
from ramet.lang.backends.scripted import ScriptedBackend

PROGRAM = """
import ramet as sgl

@sgl.function
def judge(s, topic, is_broken=False):
    s += "Essay about " + topic + ". Is it good? " + sgl.select("is_good", ["yes", "no"])
    copies = s.fork(2)
    for copy, side in zip(copies, ["style", "facts"]):
        copy += " Its " + side + ": " + sgl.gen("note")
    copies.join()
    s += " Notes: " + " / ".join(s["note"]) + " Grade: " + sgl.gen("grade")
    if is_broken:
        raise LookupError("no grade for " + topic)
    return s["grade"]

SAMPLES = [{"topic": "bees"}, {"topic": "ants"}]
"""


class CountingBackend(ScriptedBackend):
    """A scripted backend that counts as an engine does and knows that it was shut down."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(lambda prompt, params: "fine work" if prompt.name == "note" else "B", **arguments)
        self.is_shut_down = threading.Event()

    def get_server_info(self) -> dict[str, Any]:
        names = ("num_prompt_tokens", "num_cached_tokens", "num_computed_tokens", "num_output_tokens", "num_steps")
        return {"stats": {name: 100 * index * len(self.calls) for index, name in enumerate(names, start=1)}}

    def shutdown(self) -> None:
        self.is_shut_down.set()


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "judge.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return str(path)


def invoke(*arguments: str, backend: Any = None) -> Any:
    return CliRunner().invoke(build_app(lambda options: backend or CountingBackend()), list(arguments))


def test_lines_tell_every_branch_and_the_sums(program: str) -> None:
    result = invoke("run", program, "--args", '{"topic": "bees"}')
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    for line in (
        "1      program starts",
        "1      + 'Essay about bees. Is it good? '",
        "1.1    fork of 1",
        "1.2    + ' Its facts: '",
        "1.2    joined into 1",
        "1      note = ['fine work', 'fine work']",
        "1      ends",
    ):
        assert line in lines
    assert any(line.startswith("1      Select(is_good") and line.endswith("-> 'yes'") for line in lines)
    assert any(line.startswith("1.1    Gen('note') [") and "2 generated" in line and line.endswith("-> 'fine work'") for line in lines)
    assert "tokens/s" in result.stdout


def test_json_has_text_variables_value_and_counts(program: str) -> None:
    backend = CountingBackend()
    result = invoke("run", program + ":judge", "--json", backend=backend)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["program"] == "judge"
    assert [run["arguments"]["topic"] for run in report["runs"]] == ["bees", "ants"]
    first = report["runs"][0]
    assert first["variables"] == {"is_good": "yes", "note": ["fine work", "fine work"], "grade": "B"}
    assert first["value"] == "B"
    assert first["error"] is None
    assert first["text"].startswith("Essay about bees. Is it good? yes Notes: fine work / fine work")
    num_calls = len(backend.calls)
    assert report["counts"]["num_prompt"] == 100 * num_calls
    assert report["counts"]["num_cached"] == 200 * num_calls
    assert report["counts"]["num_computed"] == 300 * num_calls
    assert report["counts"]["num_output"] == 400 * num_calls
    assert report["counts"]["num_steps"] == 500 * num_calls
    assert backend.is_shut_down.is_set()


def test_json_is_alone_on_standard_output(tmp_path: Path) -> None:
    path = tmp_path / "chatty.py"
    path.write_text('print("at import")\n' + PROGRAM.replace("    return s", '    print("inside")\n    return s'), encoding="utf-8")
    result = invoke("run", str(path), "--json")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["runs"]) == 2
    assert "at import" in result.stderr and result.stderr.count("inside") == 2


def test_a_failed_row_leaves_the_others_and_ends_with_1(program: str) -> None:
    backend = CountingBackend()
    result = invoke("run", program, "--json", "--args", '[{"topic": "bees", "is_broken": true}, {"topic": "ants"}]', backend=backend)
    assert result.exit_code == 1
    runs = json.loads(result.stdout)["runs"]
    assert runs[0]["error"] == "LookupError: no grade for bees"
    assert runs[1]["value"] == "B"
    assert "judge failed in 1 of 2 runs" in result.stderr
    assert "caused by LookupError: no grade for bees (" in result.stderr
    assert "Traceback" not in result.output
    assert backend.is_shut_down.is_set()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--args", '{"tpic": "bees"}'], "judge takes: topic, is_broken"),
        (["--args", "{"], "is not JSON"),
    ],
)
def test_wrong_use_is_one_line_and_2(program: str, arguments: list[str], told: str) -> None:
    result = invoke("run", program, *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_options_reach_the_engine_and_its_refusal_is_2(program: str) -> None:
    def start(options: Mapping[str, Any]) -> Any:
        assert options == {"model_path": "m", "disable_radix_cache": True}
        raise ConfigError("model_path", "m", "nothing here")

    result = CliRunner().invoke(build_app(start), ["run", program, "--model", "m", "--disable-radix-cache"])
    assert result.exit_code == 2
    assert "model_path='m': nothing here" in result.stderr


def test_sampling_flags_hold_for_the_gens_of_a_run(program: str) -> None:
    backend = CountingBackend()
    result = invoke(
        "run", program, "--args", '{"topic": "bees"}', "--temperature", "0", "--max-new-tokens", "1", "--stop", "x", backend=backend
    )
    assert result.exit_code == 0, result.output
    asked = [call.params for call in backend.calls if call.params is not None]
    assert {(params.temperature, params.max_new_tokens, params.stop[0]) for params in asked} == {(0.0, 1, "x")}


def test_a_wrong_sampling_value_is_refused_before_an_engine_starts(program: str) -> None:
    started: list[Mapping[str, Any]] = []
    result = CliRunner().invoke(build_app(started.append), ["run", program, "--top-p", "3"])
    assert result.exit_code == 2
    assert "top_p=3.0" in result.stderr
    assert not started


def test_the_live_tree_shows_every_branch(program: str) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, height=20, color_system=None)
    run_program(lambda options: CountingBackend(latency_s=0.02), program, None, {}, {}, console=console, is_live=True, is_json=False)
    shown = out.getvalue()
    for part in ("program 1 judge", "program 2 judge", "fork 1.1", "fork 2.2", "[note] fine work", "[is_good] yes", "[grade] B", "reused"):
        assert part in shown


def test_an_interrupt_closes_the_engine_and_ends_with_130(program: str, tmp_path: Path) -> None:
    class Slow(CountingBackend):
        """Waits in its first call until it is shut down, as an engine's open request does."""

        def generate_stream(self, s: Any, sampling_params: Any) -> Any:
            signal.raise_signal(signal.SIGINT)  # reaches the main thread, as Ctrl-C does
            assert self.is_shut_down.wait(10)
            raise EngineClosed("the engine was shut down")

    backend = Slow()
    start_time_s = time.perf_counter()
    result = invoke("run", program, "--args", '{"topic": "bees"}', backend=backend)
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert time.perf_counter() - start_time_s < 5
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ramet-")]


def test_the_version_is_the_package_version() -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout == f"ramet {ramet.__version__}\n"


class StreamingEngine:
    """An engine that streams a fixed text by words."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.is_shut_down = False

    def stream(self, prompt: str, sampling_params: Mapping[str, Any]) -> Any:
        self.asked.append((prompt, sampling_params))
        yield from ({"text": text} for text in ("once", "once upon", "once upon a time"))

    def generate(self, prompt: str, sampling_params: Mapping[str, Any]) -> Any:
        return [{"text": f"text {index}"} for index in range(sampling_params["n"])]

    def shutdown(self) -> None:
        self.is_shut_down = True


def test_generate_streams_to_standard_output() -> None:
    engine = StreamingEngine()
    result = invoke("generate", "--prompt", "Say", "--temperature", "0", "--stop", "x", backend=engine)
    assert result.exit_code == 0, result.output
    assert result.stdout == "once upon a time\n"
    assert engine.asked == [("Say", {"temperature": 0.0, "stop": ("x",)})]
    assert engine.is_shut_down


def test_generate_shows_every_sample() -> None:
    result = invoke("generate", "--prompt", "Say", "--n", "2", backend=StreamingEngine())
    assert result.stdout == "--- sample 1\ntext 0\n--- sample 2\ntext 1\n"


def test_generate_refuses_a_wrong_value_before_an_engine_starts() -> None:
    started: list[Mapping[str, Any]] = []
    result = CliRunner().invoke(build_app(started.append), ["generate", "--prompt", "Say", "--top-p", "3"])
    assert result.exit_code == 2
    assert "top_p=3.0" in result.stderr
    assert not started
