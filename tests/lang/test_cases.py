"""The handed cases of the language (area 10, LP-10, RX-13): each with the right outcome."""

from __future__ import annotations

import itertools
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

import ramet as sgl
from ramet.errors import InvalidParams, PromptTooLong, StreamFailed
from ramet.lang.backends.scripted import ScriptedBackend

HANDED = Path(__file__).resolve().parents[3] / "shared" / "cases" / "handed.jsonl"


def case(case_id: str) -> dict[str, Any]:
    """One handed case; skips the test where the file is not beside the checkout."""
    if not HANDED.exists():
        pytest.skip("the handed cases are not beside this checkout")
    rows = (json.loads(line) for line in HANDED.read_text(encoding="utf-8").splitlines())
    found: dict[str, Any] = next(row for row in rows if row["id"] == case_id)
    return found


@pytest.mark.parametrize("with_empty_text", [False, True])
def test_fe_01_fork_before_any_text(within: Any, with_empty_text: bool) -> None:
    @sgl.function
    def program(s: Any) -> None:
        if with_empty_text:
            s += ""
        forks = s.fork(3)
        for f in forks:
            f += "x" + sgl.gen("v", max_tokens=2)
        forks.join()
        s += forks[0]["v"]

    backend = ScriptedBackend(lambda prompt, params: "one two three")
    state = within(5, lambda: program.run(backend=backend))
    assert state["v"] == ["one two"] * 3 and state.text() == "one two"
    assert backend.prefixes == []
    assert program.run(backend=backend)["v"] == ["one two"] * 3


def test_fe_02_an_empty_regex_is_an_exception_of_the_program(within: Any) -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += "Q"
        s += sgl.gen("a", regex="")

    with pytest.raises(InvalidParams, match="matches only the empty text") as caught:
        within(case("FE-02")["check"]["seconds"], lambda: program.run(backend=ScriptedBackend(["x"]))["a"])
    assert isinstance(caught.value, re.error)


def test_fe_06_select_with_a_shared_prefix(within: Any) -> None:
    check = case("FE-06")["check"]

    for order in itertools.permutations(check["choices"]):
        for wanted in order:

            @sgl.function
            def program(s: Any, options: Any) -> None:
                s += "item: "
                s += sgl.select("c", choices=options)

            state = program.run(list(order), backend=ScriptedBackend(choices={"c": wanted}))
            assert state["c"] == wanted and state["c"] not in check["never"]
            assert state.text() == "item: " + wanted


def test_fe_08_calls_overlap(within: Any) -> None:
    limit = case("FE-08")["check"]["seconds"]
    backend = ScriptedBackend(lambda prompt, params: prompt.text, latency_s=0.5)

    @sgl.function
    def single(s: Any, i: int) -> None:
        s += f"{i}"
        s += sgl.gen("v")

    begin = time.monotonic()
    states = single.run_batch([{"i": i} for i in range(8)], backend=backend, num_threads=8)
    assert time.monotonic() - begin <= limit
    assert [state["v"] for state in states] == [str(i) for i in range(8)]


def test_fe_11_a_too_long_input_names_both_lengths_and_spares_the_others(fake_engine: Any) -> None:
    @sgl.function
    def program(s: Any, words: int) -> None:
        s += "word " * words + sgl.gen("a")

    engine = fake_engine(context_len=10)
    good, failed, also_good = program.run_batch([(3,), (50,), (4,)], backend=engine, return_errors=True)
    assert good["a"] and also_good["a"]
    assert isinstance(failed, StreamFailed) and isinstance(failed.__cause__, PromptTooLong)
    assert "50 tokens" in str(failed) and "10 tokens" in str(failed)


@pytest.mark.parametrize("text", ["", " "])
def test_lp_10_a_blank_does_not_change_the_choice(fake_engine: Any, text: str) -> None:
    choices = ["Hi there", "Farewell", "#~Q%z"]
    engine = fake_engine(scores={"Hi there": [-1.0, -0.2], "Farewell": [-4.0], "#~Q%z": [-7.0, -8.0]}, chat_template_name="chatml")

    @sgl.function
    def program(s: Any) -> None:
        s += sgl.user("Greet me.")
        s += sgl.assistant_begin() + text + sgl.select("c", choices=choices)

    state = program.run(backend=engine)
    assert state["c"] == "Hi there"
    kind, prompt, arguments = engine.calls[0]
    # The engine tokenises prompt + option itself: it must get the prompt as it stands, and every option in one call.
    assert (kind, prompt) == ("score", "<|im_start|>user\nGreet me.<|im_end|>\n<|im_start|>assistant\n" + text)
    assert arguments["choices"] == choices and len(engine.calls) == 1


def test_rx_13_options_are_texts_and_no_patterns() -> None:
    check = case("RX-13")["check"]

    @sgl.function
    def program(s: Any) -> None:
        s += sgl.gen("who", choices=check["choices"])

    for wanted in check["choices"]:
        state = program.run(backend=ScriptedBackend(choices=[wanted]))
        assert state["who"] == wanted == state.text() and state["who"] not in check["never"]


def test_every_handed_case_of_the_language_has_a_test() -> None:
    case("FE-01")
    rows = [json.loads(line) for line in HANDED.read_text(encoding="utf-8").splitlines()]
    wanted = {row["id"] for row in rows if row["area"] == "10 frontend language"} | {"LP-08", "LP-10"}
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert {case_id for case_id in wanted if case_id.replace("-", "_").lower() not in sources} == {"FE-03"}
    assert "case FE-03" in sources  # its program stands in test_streaming.py
