"""What a careless or hostile caller does to an engine, and what it must not do to others."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ramet import Engine
from ramet.engine.mailbox import AsyncMailbox, Feeder
from ramet.errors import EngineClosed, InvalidParams, InvalidRequest, StopPatternTooSlow
from ramet.execute.scripted import ScriptedRunner
from ramet.messages import Chunk, Counts
from ramet.tokenizer import Tokenizer

MakeEngine = Callable[..., Engine]
LONG = {"temperature": 0, "max_new_tokens": 1500, "ignore_eos": True}


@pytest.mark.parametrize(
    "call",
    [
        lambda e: e.generate("a", {"stop": ["\ud800"]}),
        lambda e: e.generate("a", {"stop_regex": ["\ud800"]}),
        lambda e: e.generate("a", {"stop_regex": "a{99999999999}"}),
        lambda e: e.generate("a", group_id=[1]),
        lambda e: e.generate("a", group_id=7),
        lambda e: e.score("a", ["b"], group_id=[1]),
        lambda e: e.score("a", ["b"], cache_salt=[1]),
        lambda e: e.score(None, ["b"]),
        lambda e: e.score("a", "bc"),
        lambda e: e.score("a", {"b": 1}),
        lambda e: e.score("a", (c for c in "bc")),
        lambda e: e.score("a", []),
        lambda e: e.abort([1]),
        lambda e: e.generate("a", rid=5),
        lambda e: e.generate("a", token_ids_logprob=5, return_logprob=True),
        lambda e: e.generate(["a", "b"], token_ids_logprob=[[1], 5], return_logprob=True),
        lambda e: e.generate("a", {1: 2}),
        lambda e: e.generate("a", {"temperature": 10**400}),
        lambda e: e.generate("a", {"logit_bias": {5: 10**400}}),
        lambda e: e.generate("a", {"logit_bias": {"9" * 5000: 1}}),
        lambda e: e.generate("a", {"logit_bias": {5: 1e308}}),
        lambda e: e.generate("a", {"repetition_penalty": 1e-300}),
        lambda e: e.generate("a", {"n": 200_000}),
        lambda e: e.generate(input_ids=b"abc"),
        lambda e: e.generate(input_ids=[b"abc"]),
        lambda e: e.generate("\ud800"),
        lambda e: e.generate("a", {"regex": 5}),
        lambda e: e.generate(["x", "y"], [{"n": 2}, {}], rid=["a", "a-0"]),
    ],
)
def test_a_bad_argument_harms_its_caller_alone(make_engine: MakeEngine, call: Callable[[Engine], Any]) -> None:
    engine = make_engine()
    with pytest.raises(InvalidRequest):
        call(engine)
    assert engine.generate("fine", {"max_new_tokens": 1, "ignore_eos": True})["output_ids"]


def test_a_slow_stop_pattern_ends_its_request_and_no_other(make_engine: MakeEngine, byte_tokenizer: Tokenizer) -> None:
    letter = byte_tokenizer.encode("a")[0]
    engine = make_engine(lambda tokens: letter)
    free: list[float] = []

    def bystander() -> None:
        start = time.monotonic()
        engine.generate("b", {"temperature": 0, "max_new_tokens": 30, "ignore_eos": True})
        free.append(time.monotonic() - start)

    thread = threading.Thread(target=bystander)
    thread.start()
    with pytest.raises(StopPatternTooSlow, match="nested"):
        engine.generate("a", {**LONG, "stop_regex": r"(a|aa)+#"})
    thread.join(timeout=10)
    assert free and free[0] < 5


def test_an_event_loop_that_closes_takes_no_one_with_it() -> None:
    async def make() -> AsyncMailbox:
        return AsyncMailbox(Feeder(asyncio.get_running_loop()))

    mailbox = asyncio.run(make())
    mailbox.put(Chunk("gone", "", (), Counts(1, 0, 0)))


def test_a_forked_child_is_told(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.generate("a", {"max_new_tokens": 1})
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        answer = b"no error"
        try:
            engine.generate("b", {"max_new_tokens": 1})
        except EngineClosed as error:
            answer = str(error).encode()
        os.write(write, answer)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert b"after the fork" in pipe.read()
    os.waitpid(child, 0)
    assert engine.generate("c", {"max_new_tokens": 1, "ignore_eos": True})["output_ids"]


def test_an_engine_that_is_forgotten_ends_its_loop(byte_tokenizer: Tokenizer) -> None:
    engine = Engine(runner=ScriptedRunner(byte_tokenizer.vocab_size, lambda tokens: None), tokenizer=byte_tokenizer)
    loop = engine._loop
    del engine
    gc.collect()
    loop.join(timeout=5)
    assert not loop.is_alive()


def test_a_process_may_end_with_a_request_open() -> None:
    program = """
import threading, time
import tokenizers
from ramet import Engine
from ramet.execute.scripted import ScriptedRunner
from ramet.tokenizer import load_tokenizer
import tempfile, pathlib
folder = pathlib.Path(tempfile.mkdtemp())
tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({chr(33 + i): i for i in range(64)}, []))
tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = tokenizers.decoders.ByteLevel()
tokenizer.save(str(folder / "tokenizer.json"))
engine = Engine(runner=ScriptedRunner(64, lambda tokens: 5, num_slots=100000, context_len=100000), tokenizer=load_tokenizer(folder))
ask = lambda: engine.generate(input_ids=[1], sampling_params={"max_new_tokens": 50000, "ignore_eos": True})
threading.Thread(target=ask, daemon=True).start()
time.sleep(0.3)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_an_id_is_taken_once_and_given_back(make_engine: MakeEngine) -> None:
    engine = make_engine()
    first, second = engine.stream("x", LONG, rid="q"), engine.stream("y", LONG, rid="q")
    next(first)
    with pytest.raises(InvalidParams, match="open request"):
        next(second)
    first.close()
    for _ in range(100):
        if engine._channel.num_open == 0:
            break
        time.sleep(0.02)
    assert engine.generate("z", {"max_new_tokens": 1, "ignore_eos": True}, rid="q")["output_ids"]


def test_aborting_an_id_ends_all_its_samples(make_engine: MakeEngine) -> None:
    engine = make_engine()
    stream = engine.stream("x", {**LONG, "n": 3}, rid="many")
    next(stream)
    engine.abort("many")
    last: dict[int, Any] = {}
    for part in stream:
        last[part["index"]] = part["meta_info"]["finish_reason"]
    assert last == {i: {"type": "abort"} for i in range(3)}


def test_errors_of_a_closed_engine_are_objects_of_their_own(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.shutdown()
    errors = []
    for _ in range(2):
        with pytest.raises(EngineClosed) as caught:
            engine.generate("x")
        errors.append(caught.value)
    assert errors[0] is not errors[1]


def test_many_waiting_requests_are_not_sorted_at_every_step(make_engine: MakeEngine) -> None:
    engine = make_engine(max_running_requests=4)
    waiting = engine._core.scheduler.waiting
    sorts: list[int] = []
    order = waiting._order
    waiting._order = lambda requests, view: (sorts.append(len(requests)), order(requests, view))[1]  # type: ignore[func-returns-value]
    engine.generate(["same"] * 100, {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True})
    assert 0 < len(sorts) <= 40, "once an admission, not once a step"
