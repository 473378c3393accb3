"""Reading a program while it runs: text and variables piece by piece, blocking and with asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import ramet as sgl
from ramet.errors import InvalidParams, StreamFailed, UnknownVariable
from ramet.lang.backends.scripted import ScriptedBackend


@sgl.function
def branching(s: Any) -> str:
    """The program of case FE-03: a choice, and a branch on it."""
    with s.assistant():
        s += sgl.gen("kind", choices=["red", "green"])
        if s["kind"] == "red":
            s += sgl.gen("v1", max_tokens=3)
        else:
            s += sgl.gen("v2", max_tokens=3)
    return "done"


def backend(**options: Any) -> ScriptedBackend:
    return ScriptedBackend(lambda prompt, params: "one two three four", choices={"kind": "red"}, **options)


def test_text_comes_in_pieces_and_joins_to_the_text(within: Any) -> None:
    state = branching.run(backend=backend(), stream=True)
    pieces = within(5, lambda: list(state.text_iter()))
    assert "".join(pieces) == state.text() == "ASSISTANT:redone two three\n"
    assert state.ret_value == "done"


def test_each_variable_of_a_branching_program(within: Any) -> None:
    state = branching.run(backend=backend(latency_s=0.02), stream=True)
    assert within(5, lambda: list(state.text_iter("kind"))) == ["red"]
    assert within(5, lambda: list(state.text_iter("v1"))) == ["one", " two", " three"]
    with pytest.raises(UnknownVariable, match="no variable 'v2'"):
        within(5, lambda: list(state.text_iter("v2")))
    assert state["v1"] == "one two three"


def test_the_same_with_asyncio(within: Any) -> None:
    async def collect(state: Any, name: str | None, **options: Any) -> list[Any]:
        return [piece async for piece in state.text_async_iter(name, **options)]

    async def main() -> tuple[list[Any], ...]:
        state = branching.run(backend=backend(latency_s=0.02), stream=True)
        return tuple(
            await asyncio.gather(
                collect(state, None),
                collect(state, "kind"),
                collect(state, "v1", return_meta_data=True),
                collect(state, "v2"),
                return_exceptions=True,
            )
        )

    text, kind, v1, v2 = within(5, lambda: asyncio.run(main()))
    assert "".join(text) == "ASSISTANT:redone two three\n" and kind == ["red"]
    assert [piece for piece, _ in v1] == ["one", " two", " three"]
    assert [meta["completion_tokens"] for _, meta in v1] == [1, 2, 3]
    assert [meta["finish_reason"] is None for _, meta in v1] == [True, True, False]
    assert isinstance(v2, UnknownVariable)


def test_without_streaming_everything_comes_in_one_piece(within: Any) -> None:
    state = branching.run(backend=backend(latency_s=0.01))
    assert list(state.text_iter()) == ["ASSISTANT:redone two three\n"]
    assert list(state.text_iter("v1")) == ["one two three"] and list(state.text_iter("kind")) == ["red"]
    with pytest.raises(UnknownVariable):
        within(5, lambda: list(state.text_iter("v2")))

    async def main() -> list[Any]:
        state = branching.run(backend=backend(latency_s=0.01))
        whole = [text async for text in state.text_async_iter()]
        return whole + [meta["completion_tokens"] async for _, meta in state.text_async_iter("v1", return_meta_data=True)]

    assert within(5, lambda: asyncio.run(main())) == ["ASSISTANT:redone two three\n", 3]


def test_meta_info_of_the_whole_text_is_refused(within: Any) -> None:
    async def main() -> None:
        async for _ in branching.run(backend=backend()).text_async_iter(return_meta_data=True):
            pass

    with pytest.raises(InvalidParams, match="give var_name"):
        within(5, lambda: asyncio.run(main()))


def test_run_returns_before_the_program_and_outside_reads_wait_for_names(within: Any) -> None:
    gate = threading.Event()

    @sgl.function
    def program(s: Any) -> str:
        gate.wait(5)
        s += sgl.gen("a")
        return "value"

    state = program.run(backend=ScriptedBackend(["A"]), stream=True)
    with pytest.raises(AttributeError):
        state.ret_value  # noqa: B018
    assert "a" not in state
    with pytest.raises(TimeoutError):
        state.get_meta_info("a", timeout=0.01)
    gate.set()
    assert within(5, lambda: state["a"]) == "A"
    assert within(5, state.text) == "A" and state.ret_value == "value"


def test_reads_inside_a_streaming_program_do_not_wait_for_its_end(within: Any) -> None:
    @sgl.function
    def program(s: Any) -> list[str]:
        s += "a" + sgl.gen("x")
        with pytest.raises(UnknownVariable):
            s["y"]
        return ["".join(s.text_iter()), "".join(s.text_iter("x")), s.text()]

    state = program.run(backend=ScriptedBackend(["X Y"]), stream=True)
    within(5, state.sync)
    assert state.ret_value == ["aX Y", "X Y", "aX Y"]


@pytest.mark.parametrize("name", [None, "bad"])
def test_a_failure_ends_every_reader(within: Any, name: str | None) -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += "before " + sgl.gen("bad")

    def read() -> list[str]:
        seen = []
        with pytest.raises(StreamFailed, match="no luck"):
            for piece in program.run(backend=ScriptedBackend([RuntimeError("no luck")]), stream=True).text_iter(name):
                seen.append(piece)
        return seen

    assert within(5, read) == (["before "] if name is None else [])


def test_an_error_of_the_function_reaches_the_reader(within: Any) -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += "x"
        raise LookupError("mine")

    state = program.run(backend=ScriptedBackend(), stream=True)
    with pytest.raises(StreamFailed, match="failed at the function program: LookupError: mine"):
        within(5, lambda: state["never"])
    assert isinstance(state.error(), LookupError)


def test_a_failed_program_stops_the_generation_that_runs(within: Any) -> None:
    closed = threading.Event()

    class Endless(ScriptedBackend):
        def generate_stream(self, s: Any, sampling_params: Any) -> Any:
            try:
                while True:
                    time.sleep(0.002)
                    yield "x", {}
            finally:
                closed.set()

    @sgl.function
    def program(s: Any) -> None:
        s += sgl.gen("a")
        time.sleep(0.02)
        raise LookupError("mine")

    state = program.run(backend=Endless(), stream=True)
    within(5, state.error)
    assert closed.wait(5)
