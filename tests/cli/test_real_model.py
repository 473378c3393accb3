"""The command as users start it, in a process of its own, on a small real model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT.parent / "shared" / "models" / "stories260k"
COMMAND = [sys.executable, "-m", "ramet.cli.main"]

pytestmark = pytest.mark.skipif(not MODEL.is_dir(), reason="the model stories260k is not in the folder beside the checkout")

PROGRAM = """
import ramet as sgl

@sgl.function
def story(s):
    s += "Once upon a time there was a little girl named Lily. She had a big"
    s += sgl.select("toy", [" ball", " car"])
    branches = s.fork(3)
    for branch in branches:
        branch += ". One day" + sgl.gen("ending", max_tokens=8)
    branches.join()

@sgl.function
def endless(s):
    s += "Once upon a time"
    while True:
        with s.copy() as twin:
            twin += sgl.gen("line", max_tokens=64, ignore_eos=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "stories.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return str(path)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "passive", "COLUMNS": "80"}


def test_run_reports_what_the_engine_counted(program: str) -> None:
    """And a file beside the program that is called as a library of the engine does not take its place."""
    (Path(program).parent / "tokenizers.py").write_text("raise LookupError('the wrong one')\n", encoding="utf-8")
    arguments = ["run", program + ":story", "--model", str(MODEL), "--json", "--temperature", "0", "--max-total-tokens", "2048"]
    done = subprocess.run([*COMMAND, *arguments], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    (run,) = report["runs"]
    counts = report["counts"]
    assert run["variables"]["toy"] in (" ball", " car")
    assert len(run["variables"]["ending"]) == 3
    assert len(set(run["variables"]["ending"])) == 1  # greedy, from the same prompt
    assert counts["num_output"] == 3 * 8
    assert counts["num_cached"] > counts["num_computed"] > 0
    assert counts["num_prompt"] >= counts["num_cached"]
    assert counts["num_steps"] > 0


def test_generate_writes_text() -> None:
    arguments = ["generate", "--model", str(MODEL), "--prompt", "Once upon a time", "--temperature", "0", "--max-new-tokens", "8"]
    done = subprocess.run([*COMMAND, *arguments], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n")
    assert len(done.stdout.split()) > 2


def test_an_interrupted_run_ends_at_once_and_cleanly(program: str) -> None:
    arguments = ["run", program + ":endless", "--model", str(MODEL), "--no-live"]
    with subprocess.Popen([*COMMAND, *arguments], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        for _ in range(3):
            assert running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=20)
    assert running.returncode == 130, told
    assert told.splitlines()[-1] == "interrupted"
    assert "Traceback" not in told


def test_a_model_that_is_not_there_is_one_line(program: str) -> None:
    done = subprocess.run(
        [*COMMAND, "run", program + ":story", "--model", "nowhere/none.gguf"], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "nowhere/none.gguf" in done.stderr
    assert len(done.stderr.splitlines()) == 1
