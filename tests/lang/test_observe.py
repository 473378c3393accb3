"""Watching a program: the records, their order, and what happens when the watcher fails."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import ramet as sgl
from ramet.errors import StreamFailed
from ramet.lang.backends.scripted import ScriptedBackend
from ramet.lang.observe import (
    NodeFinished,
    NodeStarted,
    StreamClosed,
    StreamJoined,
    StreamOpened,
    TextAppended,
    VariableSet,
    observing,
)


def test_the_records_of_one_stream() -> None:
    events: list[Any] = []

    @sgl.function
    def program(s: Any) -> None:
        s += "Q " + sgl.gen("a") + sgl.select("c", ["x", "y"])

    with observing(events.append):
        state = program.run(backend=ScriptedBackend(["one two"]))
    state.sync()
    stream_id = events[0].stream_id
    meta = state.get_meta_info("a")
    assert events == [
        StreamOpened(stream_id, None, 0, "program"),
        TextAppended(stream_id, "Q ", False, None),
        NodeStarted(stream_id, "Gen('a')", "a"),
        TextAppended(stream_id, "one", True, "a"),
        TextAppended(stream_id, " two", True, "a"),
        NodeFinished(stream_id, "Gen('a')", "a", meta),
        VariableSet(stream_id, "a", "one two"),
        NodeStarted(stream_id, "Select(c, choices=['x', 'y'])", "c"),
        TextAppended(stream_id, "x", True, "c"),
        NodeFinished(stream_id, "Select(c, choices=['x', 'y'])", "c", state.get_meta_info("c")),
        VariableSet(stream_id, "c", "x"),
        StreamClosed(stream_id, None),
    ]


def test_forks_and_copies_tell_where_they_come_from() -> None:
    events: list[Any] = []

    @sgl.function
    def program(s: Any) -> None:
        s += "P"
        forks = s.fork(2)
        forks += sgl.gen("v")
        forks.join()
        with s.copy() as c:
            c += "x"

    with observing(events.append):
        program.run(backend=ScriptedBackend(lambda prompt, params: "g")).sync()
    root, *children = [event for event in events if isinstance(event, StreamOpened)]
    assert [(child.parent_id, child.index, child.role) for child in children] == [
        (root.stream_id, 0, "fork"),
        (root.stream_id, 1, "fork"),
        (root.stream_id, 0, "copy"),
    ]
    assert {event.stream_id for event in events if isinstance(event, StreamClosed)} == {root.stream_id, *(c.stream_id for c in children)}
    assert [event.parent_id for event in events if isinstance(event, StreamJoined)] == [root.stream_id] * 3
    assert VariableSet(root.stream_id, "v", ["g", "g"]) in events
    assert NodeStarted(root.stream_id, "CommitLazy()", None) in events
    texts: dict[str, str] = {}
    for event in events:
        if isinstance(event, TextAppended):
            texts[event.stream_id] = texts.get(event.stream_id, "") + event.text
    assert texts[root.stream_id] == "P" and texts[children[0].stream_id] == "g"


def test_programs_outside_the_block_are_not_watched() -> None:
    events: list[Any] = []

    @sgl.function
    def program(s: Any) -> None:
        s += "x"

    program.run(backend=ScriptedBackend()).sync()
    with observing(events.append):
        pass
    program.run(backend=ScriptedBackend()).sync()
    assert events == []


def test_a_failure_is_told_once() -> None:
    events: list[Any] = []
    boom = RuntimeError("no luck")

    @sgl.function
    def program(s: Any) -> None:
        s += sgl.gen("a")

    with observing(events.append):
        state = program.run(backend=ScriptedBackend([boom]), stream=True)
        assert state.error() is boom
    assert [event.error for event in events if isinstance(event, StreamClosed)] == [boom]


@pytest.mark.parametrize("kind", [StreamOpened, TextAppended, NodeStarted, NodeFinished, VariableSet, StreamJoined, StreamClosed])
def test_an_observer_that_raises_fails_the_program(within: Any, kind: type) -> None:
    class Blind(RuntimeError):
        pass

    def observer(event: object) -> None:
        if isinstance(event, kind):
            raise Blind(f"cannot see {kind.__name__}")

    @sgl.function
    def program(s: Any) -> None:
        s += "x" + sgl.gen("a")
        s["a"]
        s.fork(1).join()

    def run() -> None:
        with observing(observer):
            program.run(backend=ScriptedBackend(["A"])).sync()

    with pytest.raises((Blind, StreamFailed), match="cannot see"):
        within(5, run)


def test_events_come_from_the_threads_that_run_the_streams() -> None:
    threads: dict[str, set[str]] = {}

    def observer(event: Any) -> None:
        threads.setdefault(type(event).__name__, set()).add(threading.current_thread().name)

    @sgl.function
    def program(s: Any) -> None:
        s += "x" + sgl.gen("a")

    with observing(observer):
        program.run(backend=ScriptedBackend(["A"], latency_s=0.01)).sync()
    assert threads["StreamOpened"] == {threading.current_thread().name}
    assert all(name.startswith("ramet-stream-") for name in threads["NodeFinished"])
