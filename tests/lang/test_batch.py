"""Many rows: order, threads, errors, and the prefix that is computed first."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import ramet as sgl
from ramet.errors import InvalidParams, StreamFailed
from ramet.lang.backends.scripted import ScriptedBackend
from ramet.lang.batch import count_threads


@sgl.function
def echo(s: Any, word: str, mark: str = "!") -> str:
    s += word + mark + sgl.gen("a")
    return word


def answer(prompt: Any, params: Any) -> Any:
    return RuntimeError(f"bad {prompt.text}") if "bad" in prompt.text else f"<{prompt.text}>"


@pytest.mark.parametrize("num_threads", [1, 3, "auto"])
def test_rows_of_every_shape_keep_their_order(num_threads: Any) -> None:
    rows = [{"word": "a"}, ("b", "?"), ["c"], {"word": "d", "mark": ""}]
    states = echo.run_batch(rows, backend=ScriptedBackend(answer), num_threads=num_threads)
    assert [state["a"] for state in states] == ["<a!>", "<b?>", "<c!>", "<d>"]
    assert [state.ret_value for state in states] == ["a", "b", "c", "d"]


def test_no_rows() -> None:
    assert echo.run_batch([], backend=ScriptedBackend()) == []
    assert list(echo.run_batch([], backend=ScriptedBackend(), generator_style=True)) == []


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ({"word": "a"}, "must be a list"),
        ([5], "a row must be"),
        ([("a", "b", "c")], "Given arguments mismatch the SGL function signature"),
        ([()], "mismatch"),
    ],
)
def test_rows_that_are_none(rows: Any, what: str) -> None:
    with pytest.raises(InvalidParams, match=what):
        echo.run_batch(rows, backend=ScriptedBackend())


@pytest.mark.parametrize("num_threads", [0, -1, "many", 2.0, True])
def test_thread_counts_that_are_none(num_threads: Any) -> None:
    with pytest.raises(InvalidParams, match="num_threads"):
        echo.run_batch([("a",)], backend=ScriptedBackend(), num_threads=num_threads)


def test_auto_is_at_least_96_threads() -> None:
    assert count_threads("auto") >= 96 and count_threads(3) == 3


def test_calls_overlap_across_rows_and_across_forks() -> None:
    backend = ScriptedBackend(answer, latency_s=0.25)
    begin = time.monotonic()
    echo.run_batch([(str(i),) for i in range(8)], backend=backend, num_threads=8)
    assert time.monotonic() - begin < 0.75

    def forking(s: Any) -> None:
        forks = s.fork(8)
        forks += sgl.gen("a")
        forks.join()

    begin = time.monotonic()
    assert len(sgl.function(forking).run(backend=backend)["a"]) == 8
    assert time.monotonic() - begin < 0.75


def test_one_thread_runs_one_row_after_the_other_in_the_caller() -> None:
    threads = set()

    @sgl.function
    def program(s: Any, i: int) -> None:
        threads.add(threading.current_thread())
        s += sgl.gen("a")

    begin = time.monotonic()
    program.run_batch([(i,) for i in range(4)], backend=ScriptedBackend(answer, latency_s=0.05), num_threads=1)
    assert time.monotonic() - begin >= 0.2 and threads == {threading.current_thread()}


@pytest.mark.parametrize("num_threads", [1, 4])
def test_a_failing_row_raises_and_says_which(within: Any, num_threads: int) -> None:
    rows = [("a",), ("bad",), ("c",)]
    with pytest.raises(StreamFailed, match="bad bad!") as caught:
        within(5, lambda: echo.run_batch(rows, backend=ScriptedBackend(answer), num_threads=num_threads))
    assert caught.value.__notes__ == ["row 1 of run_batch"]


@pytest.mark.parametrize("num_threads", [1, 4])
def test_errors_can_be_returned_row_by_row(num_threads: int) -> None:
    rows: list[Any] = [("a",), ("bad",), {"wrong": 1}, ("d",)]
    backend = ScriptedBackend(answer)
    good, failed, mistaken, last = echo.run_batch(rows, backend=backend, num_threads=num_threads, return_errors=True)
    assert good["a"] == "<a!>" and last["a"] == "<d!>"
    assert isinstance(failed, StreamFailed) and isinstance(failed.__cause__, RuntimeError)
    assert isinstance(mistaken, TypeError)


def test_rows_that_have_not_started_stay_out_after_a_failure(within: Any) -> None:
    started = []

    @sgl.function
    def program(s: Any, i: int) -> None:
        started.append(i)
        if i == 0:
            raise LookupError("mine")
        time.sleep(0.02)

    with pytest.raises(LookupError, match="mine"):
        within(5, lambda: program.run_batch([(i,) for i in range(200)], backend=ScriptedBackend(), num_threads=2))
    assert len(started) < 100


def test_a_generator_yields_in_order_and_can_be_left(within: Any) -> None:
    backend = ScriptedBackend(lambda prompt, params: prompt.text)

    @sgl.function
    def program(s: Any, i: int) -> None:
        s += f"{i}"
        s += sgl.gen("a")

    rows = [(i,) for i in range(450)]
    states = program.run_batch(rows, backend=backend, generator_style=True, num_threads=4)
    assert next(states)["a"] == "0"
    assert len(backend.calls) <= 210, "only some rows run ahead"
    assert [state["a"] for state in states] == [str(i) for i in range(1, 450)]
    left = program.run_batch(rows, backend=backend, generator_style=True, num_threads=2)
    next(left)
    within(5, left.close)


def test_the_progress_bar_counts_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    for num_threads in (1, 3):
        echo.run_batch([(str(i),) for i in range(5)], backend=ScriptedBackend(answer), progress_bar=True, num_threads=num_threads)
        assert "5/5" in capsys.readouterr().err


def test_what_watches_the_caller_watches_the_rows() -> None:
    from ramet.lang.observe import StreamOpened, observing

    events: list[Any] = []
    with observing(events.append):
        echo.run_batch([("a",), ("b",)], backend=ScriptedBackend(answer), num_threads=2)
    assert sum(isinstance(event, StreamOpened) for event in events) == 2


LONG = "x" * 64


@pytest.mark.parametrize(
    ("num_chars", "num_rows", "expected"),
    [(65, 2, 1), (64, 2, 0), (65, 1, 0), (200, 9, 1)],
)
def test_a_long_constant_prefix_is_cached_once(num_chars: int, num_rows: int, expected: int) -> None:
    backend = ScriptedBackend(answer)

    @sgl.function
    def program(s: Any, q: str) -> None:
        s += "y" * num_chars
        s += q + sgl.gen("a")

    program.run_batch([("q",)] * num_rows, backend=backend)
    assert backend.prefixes == ["y" * num_chars] * expected
    assert expected == 0 or backend.calls[0].kind == "cache_prefix"


def test_caching_can_be_switched_off_and_asked_for() -> None:
    backend = ScriptedBackend(answer)

    @sgl.function
    def program(s: Any, q: str) -> None:
        s += sgl.system(LONG)
        s += sgl.user(q)

    sgl.global_config.enable_precache_with_tracing = False
    program.run_batch([("q",)] * 2, backend=backend)
    assert backend.prefixes == []
    program.cache(backend=backend)
    assert backend.prefixes == [f"SYSTEM:{LONG}\nUSER:"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda s, q: s.__iadd__(LONG + "1" + q), LONG + "1"),
        (lambda s, q: s.__iadd__(LONG + "1").__iadd__(f"{q}"), LONG + "1"),
        (lambda s, q: s.__iadd__(LONG + "1").__iadd__("no" if q == "x" else "yes"), LONG + "1"),
        (lambda s, q: s.__iadd__(LONG + "1").__iadd__(q.upper()), LONG + "1"),
        (lambda s, q: s.__iadd__(LONG + "1").__iadd__("%s" % q), LONG + "1"),  # noqa: UP031
        (lambda s, q: s.__iadd__(LONG + "1" + sgl.gen("a")).__iadd__("z"), LONG + "1"),
        (lambda s, q: (s.__iadd__(LONG + "1"), s.fork(1)[0].__iadd__("z")), LONG + "1"),
        (lambda s, q: (s.__iadd__(LONG + "1"), s.__iadd__(s["unknown"])), LONG + "1"),
        (lambda s, q: (s.__iadd__(LONG + "1"), echo.run(q)), LONG + "1"),
        (lambda s, q: (s.__iadd__(LONG + "1"), echo.run_batch([(q,)])), LONG + "1"),
        (lambda s, q: (s.user(LONG), s.assistant(sgl.gen("a"))), f"USER:{LONG}\nASSISTANT:"),
        (lambda s, q: s.__iadd__(q), None),
    ],
)
def test_the_trace_ends_at_the_first_thing_that_is_not_constant(body: Any, expected: str | None) -> None:
    backend = ScriptedBackend(answer)
    sgl.set_default_backend(backend)

    def program(s: Any, q: str) -> None:
        body(s, q)

    sgl.function(program).cache()
    assert backend.prefixes == ([] if expected is None else [expected])
    assert all(call.kind == "cache_prefix" for call in backend.calls), "a trace calls no model"


def test_bound_arguments_are_constants() -> None:
    backend = ScriptedBackend(answer)

    @sgl.function
    def program(s: Any, shots: str, q: str) -> None:
        s += f"{shots}:"
        s += q + sgl.gen("a")

    states = program.bind(shots=LONG).run_batch([{"q": "1"}, {"q": "2"}], backend=backend)
    assert backend.prefixes == [LONG + ":"]
    assert states[1]["a"] == f"<{LONG}:2>"
