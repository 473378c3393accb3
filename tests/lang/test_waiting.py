"""Who waits for whom: forks beside other threads, reads that would wait for themselves, programs that are given up, deep nesting."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import ramet as sgl
from ramet.errors import InvalidParams, ProgramError, StreamFailed
from ramet.lang.backends.engine import EngineBackend
from ramet.lang.backends.scripted import ScriptedBackend
from ramet.lang.observe import Event, NodeStarted, StreamClosed, StreamOpened, TextAppended, VariableSet, observing
from ramet.lang.run import SglFunction
from ramet.lang.stream import Stream

SELF_WAIT = "a stream cannot wait for itself"
READS: dict[str, Callable[[Any], Any]] = {
    "text": lambda s: s.text(),
    "sync": lambda s: s.sync(),
    "error": lambda s: s.error(),
    "messages": lambda s: s.messages(),
    "variable": lambda s: s["a"],
    "meta info": lambda s: s.get_meta_info("a"),
    "fork": lambda s: s.fork(1),
    "text_iter": lambda s: list(s.text_iter()),
    "text_iter of a variable": lambda s: list(s.text_iter("a")),
}


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Threads take turns as often as the interpreter allows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_children_of_a_fork_share_one_state_whoever_appends_meanwhile(within: Any, eager_switching: None) -> None:
    def program(s: Any) -> None:
        s += "a"
        is_forking = threading.Event()

        def append() -> None:
            is_forking.wait()
            for i in range(20):
                s.__iadd__(sgl.gen(f"late{i}"))
                s.__iadd__("x")

        thread = threading.Thread(target=append)
        thread.start()
        is_forking.set()
        copies = s.fork(400)
        thread.join()
        seen = {(copy.text(), tuple(f"late{i}" in copy for i in range(20))) for copy in copies}
        assert len(seen) == 1, f"the copies differ: {seen}"
        assert all(copies[-1][f"late{i}"] == "ans" for i in range(20) if f"late{i}" in copies[-1])
        copies.join()

    backend = ScriptedBackend(lambda prompt, params: "ans")
    within(20, lambda: sgl.function(program).run(backend=backend).sync())


def test_a_fork_takes_nothing_that_is_not_done(within: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The race of the test above, made certain: something is appended each time that a child is made."""
    made: list[Stream] = []
    make = Stream.__init__

    def make_slowly(self: Stream, *arguments: Any, **named: Any) -> None:
        parent = named.get("parent")
        if parent is not None:
            parent.submit(sgl.gen(f"late{len(made)}"))
            made.append(self)
        make(self, *arguments, **named)

    monkeypatch.setattr(Stream, "__init__", make_slowly)

    def program(s: Any) -> None:
        s += "a" + sgl.gen("early")
        copies = s.fork(3)
        assert [copy.text() for copy in copies] == ["aans"] * 3
        assert all("early" in copy and not any(f"late{i}" in copy for i in range(3)) for copy in copies)
        copies.join()

    within(10, lambda: sgl.function(program).run(backend=ScriptedBackend(lambda prompt, params: "ans", latency_s=0.01)).sync())
    assert len(made) == 3


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("is_streaming", [False, True], ids=["plain", "streaming"])
def test_a_backend_cannot_wait_for_the_state_it_works_for(within: Any, read: Callable[[Any], Any], is_streaming: bool) -> None:
    states: list[Any] = []
    backend = ScriptedBackend(lambda prompt, params: read(states[0]) and "never")

    @sgl.function
    def program(s: Any) -> None:
        states.append(s)
        s += "x" + sgl.gen("a")

    state = program.run(backend=backend, stream=is_streaming)
    error = within(5, state.error)
    assert isinstance(error, ProgramError) and SELF_WAIT in str(error)
    with pytest.raises(StreamFailed, match=re.escape("failed at Gen('a'): ProgramError: " + SELF_WAIT)):
        state.text()


@pytest.mark.parametrize("kind", [TextAppended, NodeStarted, VariableSet], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("use_thread", [True, False])
def test_an_observer_cannot_wait_for_the_state_it_watches(within: Any, kind: type[Event], use_thread: bool) -> None:
    states: list[Any] = []

    def observe(event: Event) -> None:
        if isinstance(event, kind):
            states[0].text()

    @sgl.function
    def program(s: Any) -> None:
        states.append(s)
        s += "x" + sgl.gen("a")

    def run() -> Any:
        with observing(observe):
            return program.run(backend=ScriptedBackend(["b"]), use_thread=use_thread).error()

    with suppress(StreamFailed):  # where it is raised while the program still appends
        error = within(5, run)
        assert isinstance(error, ProgramError) and SELF_WAIT in str(error)
    assert states


@pytest.mark.parametrize("where", ["function", "fork"])
@pytest.mark.parametrize("read", ["text", "sync", "error", "text_iter", "unknown name"])
def test_a_streaming_program_cannot_wait_for_its_own_end(within: Any, where: str, read: str) -> None:
    outside: list[Any] = []
    is_there = threading.Event()
    call: Callable[[Any], Any] = {**READS, "unknown name": lambda s: s["none"]}[read]

    def reply(prompt: Any, params: Any) -> str:
        if where == "fork":
            is_there.wait()
            call(outside[0])
        return "ans"

    @sgl.function
    def program(s: Any) -> None:
        s += "x"
        is_there.wait()
        if where == "function":
            call(outside[0])
        copies = s.fork(2)
        copies += sgl.gen("g")
        copies.join()

    outside.append(program.run(backend=ScriptedBackend(reply), stream=True))
    is_there.set()
    error = within(5, outside[0].error)
    while isinstance(error, StreamFailed):
        error = error.__cause__
    assert isinstance(error, ProgramError) and SELF_WAIT in str(error)


def test_what_is_there_can_be_read_from_anywhere(within: Any) -> None:
    """A read that need not wait is none of the refused ones."""
    states: list[Any] = []

    @sgl.function
    def program(s: Any) -> None:
        states.append(s)
        s["known"] = "k"
        s += sgl.gen("a")

    backend = ScriptedBackend(lambda prompt, params: states[0]["known"] + "!")
    assert within(5, lambda: program.run(backend=backend)["a"]) == "k!"


def test_a_join_from_inside_a_copy_is_refused(within: Any) -> None:
    groups: list[Any] = []
    is_there = threading.Event()

    def reply(prompt: Any, params: Any) -> str:
        is_there.wait()
        groups[0].join()
        return "never"

    @sgl.function
    def program(s: Any) -> None:
        groups.append(s.fork(1))
        groups[0] += sgl.gen("g")
        is_there.set()

    error = within(5, program.run(backend=ScriptedBackend(reply)).error)
    assert isinstance(error, ProgramError) and SELF_WAIT in str(error)


async def _coroutine(s: Any) -> None:
    s += sgl.gen("a")


async def _async_generator(s: Any) -> Any:
    yield s


def _generator(s: Any) -> Any:
    s += sgl.gen("a")
    yield s


class _AsyncCallable:
    async def __call__(self, s: Any) -> None:
        s += sgl.gen("a")


@pytest.mark.parametrize(
    ("func", "what"),
    [
        (_coroutine, "async def"),
        (_async_generator, "async generator"),
        (_generator, "yield"),
        (_AsyncCallable(), "async def"),
    ],
)
def test_functions_that_would_not_run_are_refused(func: Any, what: str) -> None:
    with pytest.raises(InvalidParams, match=re.escape(what)):
        sgl.function(func)
    with pytest.raises(InvalidParams, match="plain function"):
        SglFunction(func)


def test_a_coroutine_that_a_plain_function_returns_is_an_error(within: Any) -> None:
    with pytest.raises(ProgramError, match="returned a coroutine"):
        sgl.function(lambda s: _coroutine(s)).run(backend=ScriptedBackend(["x"]))


@pytest.mark.parametrize("is_streaming", [False, True], ids=["plain", "streaming"])
@pytest.mark.parametrize("n", [1, 3])
def test_a_failed_program_cancels_what_its_forks_still_generate(fake_engine: Any, within: Any, is_streaming: bool, n: int) -> None:
    engine = fake_engine(lambda prompt: " ".join(["word"] * 2000), word_latency_s=0.005, context_len=10_000)

    @sgl.function
    def program(s: Any) -> None:
        s += "root"
        copies = s.fork(3)
        copies += sgl.gen("long", n=n, max_tokens=2000)
        while engine.num_streamed < 6:
            time.sleep(0.002)
        raise LookupError("mine")

    def run() -> BaseException | None:
        try:
            state = program.run(backend=engine, stream=is_streaming)
        except LookupError as error:
            return error
        return state.error()

    assert isinstance(within(5, run), LookupError)
    deadline_s = time.monotonic() + 2
    while engine.num_open and time.monotonic() < deadline_s:
        time.sleep(0.005)
    assert engine.num_open == 0
    assert engine.num_streamed < 3 * n * 500  # of 2000 words each


@pytest.mark.parametrize("arguments", [{}, {"return_logprob": True}], ids=["text", "logprobs"])
@pytest.mark.parametrize("n", [1, 3])
def test_the_engine_gives_the_same_replies_with_and_without_a_stream(fake_engine: Any, n: int, arguments: dict[str, Any]) -> None:
    engine = fake_engine()
    direct = engine.generate("x", {"n": n, "stop": [], "max_new_tokens": 128})
    state = sgl.function(lambda s: s.__iadd__("x" + sgl.gen("a", n=n, **arguments))).run(backend=EngineBackend(engine))
    replies = [direct] if n == 1 else direct
    texts, metas = [reply["text"] for reply in replies], [reply["meta_info"] for reply in replies]
    assert state["a"] == (texts[0] if n == 1 else texts)
    assert state.get_meta_info("a") == (metas[0] if n == 1 else metas)


def test_nothing_is_told_of_a_stream_after_its_end(within: Any) -> None:
    events: list[Event] = []
    may_go_on = threading.Event()

    class Slow(ScriptedBackend):
        def generate_stream(self, s: Any, sampling_params: Any) -> Any:
            yield "half", {}
            may_go_on.wait()
            yield " whole", {}

    @sgl.function
    def program(s: Any) -> None:
        s += "x"
        copy = s.fork(1)[0]
        copy += sgl.gen("a")
        while not any(isinstance(event, TextAppended) and event.text == "half" for event in events):
            time.sleep(0.001)
        raise LookupError("mine")

    def run() -> None:
        with observing(events.append):
            program.run(backend=Slow())

    with pytest.raises(LookupError):
        within(5, run)
    may_go_on.set()
    time.sleep(0.05)
    for stream_id in {event.stream_id for event in events}:
        own = [event for event in events if event.stream_id == stream_id]
        assert [type(event) for event in own].index(StreamClosed) == len(own) - 1


@pytest.mark.parametrize("is_failing", [True, False], ids=["failing", "ending"])
@pytest.mark.parametrize("use_thread", [True, False])
def test_forks_may_be_nested_deeper_than_the_stack(within: Any, is_failing: bool, use_thread: bool) -> None:
    events: list[Event] = []

    @sgl.function
    def program(s: Any) -> None:
        s += "x"
        innermost = s
        for _ in range(1200):
            innermost = innermost.fork(1)[0]
        innermost += sgl.gen("a")
        if is_failing:
            raise ZeroDivisionError("mine")

    def run() -> BaseException | None:
        with observing(events.append):
            try:
                return program.run(backend=ScriptedBackend(["y"]), use_thread=use_thread).error()
            except ZeroDivisionError as error:
                return error

    error = within(30, run)
    assert isinstance(error, ZeroDivisionError) if is_failing else error is None
    assert sum(isinstance(event, StreamOpened) for event in events) == 1201
    assert sum(isinstance(event, StreamClosed) for event in events) == 1201


def test_an_unjoined_copy_that_failed_gives_its_own_error_to_the_program(within: Any) -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += "x"
        inner = s.fork(1)[0].fork(1)[0]
        inner += sgl.gen("a")

    state = program.run(backend=ScriptedBackend([ZeroDivisionError("mine")]))
    error = within(5, state.error)
    assert type(error) is ZeroDivisionError
    with pytest.raises(StreamFailed, match=r"failed at its fork \w+\.0, which was not joined: ZeroDivisionError: mine") as caught:
        state.text()
    assert caught.value.__cause__ is error


def test_a_failure_at_the_end_is_told_in_words(within: Any) -> None:
    class Backend(ScriptedBackend):
        def end_program(self, s: Any) -> None:
            raise OSError("no connection")

    state = sgl.function(lambda s: s.__iadd__("x")).run(backend=Backend())
    assert isinstance(within(5, state.error), OSError)
    with pytest.raises(StreamFailed, match=r"failed at its end: OSError: no connection"):
        state.text()


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("style", [False, True], ids=["list", "generator"])
def test_a_row_that_raises_stop_iteration_says_so(within: Any, num_threads: int, style: bool) -> None:
    @sgl.function
    def program(s: Any, row: int) -> None:
        s += "x"
        if row == 1:
            next(iter(()))

    def run(**options: Any) -> list[Any]:
        rows = [(i,) for i in range(3)]
        return list(program.run_batch(rows, backend=ScriptedBackend(), num_threads=num_threads, generator_style=style, **options))

    with pytest.raises(ProgramError, match="row 1 of run_batch raised StopIteration") as caught:
        within(5, run)
    assert isinstance(caught.value.__cause__, StopIteration)
    assert isinstance(within(5, lambda: run(return_errors=True))[1], StopIteration)


def test_waking_a_reader_whose_loop_has_closed_is_no_failure(within: Any) -> None:
    class Loop(asyncio.SelectorEventLoop):
        """One that is closed at the worst moment: when a stream has begun to wake its reader."""

        def call_soon_threadsafe(self, *arguments: Any, **named: Any) -> Any:
            if threading.current_thread().name.startswith("ramet-stream"):
                self.close()
                was_closed_early.set()
            return super().call_soon_threadsafe(*arguments, **named)

    was_closed_early, may_answer = threading.Event(), threading.Event()

    def reply(prompt: Any, params: Any) -> str:
        may_answer.wait(5)
        return "ans"

    state = sgl.function(lambda s: s.__iadd__("x" + sgl.gen("a"))).run(backend=ScriptedBackend(reply))
    loop = Loop()

    async def read() -> None:
        async for _ in state.text_async_iter():
            pass

    task = loop.create_task(read())
    loop.run_until_complete(asyncio.sleep(0.01))
    may_answer.set()
    assert was_closed_early.wait(5) and not task.done()
    assert within(5, lambda: state["a"]) == "ans"
    assert state.error() is None
