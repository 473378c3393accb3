"""Language-model programs on the engine: what they share is computed once."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import ramet as sgl
from ramet import Engine
from ramet.messages import GenerateRequest

MakeEngine = Callable[..., Engine]
PREFIX = "".join(chr(ord("A") + (i * i) % 26) for i in range(700))  # capital letters: one token each


def record(engine: Engine) -> list[GenerateRequest]:
    """Every request that reaches the engine from now on."""
    seen: list[GenerateRequest] = []
    submit = engine._core.submit

    def spy(messages: Any) -> Any:
        seen.extend(messages)
        return submit(messages)

    engine._core.submit = spy  # type: ignore[method-assign]
    return seen


def num_edges(requests: list[GenerateRequest]) -> int:
    return len({request.prompt_ids[: n + 1] for request in requests for n in range(len(request.prompt_ids))})


@sgl.function
def judge(s: Any, topic: str) -> None:
    s += PREFIX
    s += topic
    forks = s.fork(3)
    forks += lambda i: "XYZ"[i] + "?"
    forks += sgl.gen("answer", max_tokens=4, ignore_eos=True, temperature=0)
    forks.join()


@pytest.mark.parametrize("num_threads", [1, 64])
def test_sixty_four_programs_of_three_forks(make_engine: MakeEngine, num_threads: int) -> None:
    engine = make_engine(num_slots=30_000)
    assert len(engine.tokenizer.encode(PREFIX)) == 700
    requests = record(engine)
    states = judge.run_batch([{"topic": f"<{i:02d}>"} for i in range(64)], backend=engine, num_threads=num_threads)
    stats = engine.get_server_info()["stats"]
    drawing = [request for request in requests if request.params.max_new_tokens]
    assert len(drawing) == 64 * 3 and stats["num_prefix_hints"] == len(requests) - len(drawing) >= 64
    assert stats["num_computed_tokens"] == num_edges(requests)
    cached = [state.get_meta_info("answer")[i]["cached_tokens"] for state in states for i in range(3)]
    prompts = {request.request_id: len(request.prompt_ids) for request in requests}
    metas = [state.get_meta_info("answer")[i] for state in states for i in range(3)]
    assert all(meta["prompt_tokens"] == prompts[meta["id"]] == 706 for meta in metas)
    assert cached == [704] * 192, "each fork finds the whole state it was forked from"


def test_options_of_a_select_are_one_pass_over_a_shared_prefix(make_engine: MakeEngine) -> None:
    @sgl.function
    def choose(s: Any) -> None:
        s += PREFIX
        s += sgl.select("c", ["casio", "cashew nuts", "cash"])

    engine = make_engine()
    requests = record(engine)
    state = choose.run(backend=engine)
    assert state["c"] in ("casio", "cashew nuts", "cash") and state.text().endswith(state["c"])
    stats = engine.get_server_info()["stats"]
    assert stats["num_steps"] == 1 and len({request.group_id for request in requests}) == 1
    # Each option computes its own tokens but the last, and the prompt's last token: their logits are wanted. The rest is computed once.
    assert stats["num_computed_tokens"] == 699 + sum(len(request.prompt_ids) - 1 - 699 for request in requests)


CHOICES = ["casio", "cashew nuts", "cash"]


@pytest.mark.parametrize("wanted", CHOICES)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_every_option_is_reachable_in_every_order(make_engine: MakeEngine, say: Any, wanted: str, order: tuple[int, ...]) -> None:
    """Case FE-06 on the engine: options that are prefixes of each other, one of them far likelier."""

    @sgl.function
    def choose(s: Any) -> None:
        s += "item: " + sgl.select("c", [CHOICES[i] for i in order])

    state = choose.run(backend=make_engine(say("item: ", wanted)))
    assert state["c"] == wanted and state.text() == "item: " + wanted


def test_fork_before_any_text(make_engine: MakeEngine) -> None:
    """Case FE-01 on the engine."""

    @sgl.function
    def early(s: Any) -> None:
        forks = s.fork(3)
        for fork in forks:
            fork += "x" + sgl.gen("v", max_tokens=2, ignore_eos=True)
        forks.join()
        s += "first: " + forks[0]["v"]

    engine = make_engine()
    state = early.run(backend=engine)
    assert len(state["v"]) == 3 and state.text().startswith("first: ")


def test_a_streamed_program_with_a_branch(make_engine: MakeEngine) -> None:
    """Case FE-03 on the engine."""

    @sgl.function
    def branching(s: Any) -> None:
        with s.assistant():
            s += sgl.gen("kind", choices=["red", "green"])
            s += sgl.gen("v1" if s["kind"] == "red" else "v2", max_tokens=3, ignore_eos=True)

    engine = make_engine()
    state = branching.run(backend=engine, stream=True)
    taken = "v1" if state["kind"] == "red" else "v2"
    assert "".join(state.text_iter("kind")) == state["kind"]
    assert "".join(state.text_iter(taken)) == state[taken]
    assert "".join(state.text_iter()) == state.text()


def test_errors_of_the_engine_reach_the_program(make_engine: MakeEngine) -> None:
    """Case FE-11: both lengths are in the message; other rows are unaffected."""

    @sgl.function
    def ask(s: Any, text: str) -> None:
        s += text + sgl.gen("a", max_tokens=2, ignore_eos=True)

    engine = make_engine(context_len=60)
    results = ask.run_batch([{"text": "A" * 80}, {"text": "B"}], backend=engine, return_errors=True)
    assert isinstance(results[0], Exception) and "80 tokens" in str(results[0].__cause__ or results[0])
    assert results[1]["a"] is not None


def test_no_thread_is_left(make_engine: MakeEngine) -> None:
    engine = make_engine(num_slots=30_000)
    judge.run_batch([{"topic": str(i)} for i in range(4)], backend=engine)
    engine.shutdown()
    assert [t.name for t in threading.enumerate() if "ramet" in t.name and t.is_alive()] == []


def test_a_default_backend_may_be_an_engine(make_engine: MakeEngine) -> None:
    @sgl.function
    def one(s: Any) -> None:
        s += "x" + sgl.gen("a", max_tokens=2, ignore_eos=True)

    engine = make_engine()
    sgl.set_default_backend(engine)
    try:
        assert one.run()["a"] is not None
        assert sgl.flush_cache() is True
        assert sgl.get_server_info()["stats"]["num_requests"] == 1
    finally:
        sgl.set_default_backend(None)
