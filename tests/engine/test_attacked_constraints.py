"""What hostile callers did to an engine through constraints: each of these once went wrong."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ramet import Engine
from ramet.engine import constraints
from ramet.errors import InvalidConstraint, InvalidParams

MakeEngine = Callable[..., Engine]


def test_a_taken_name_does_not_take_the_constraint_of_its_owner(make_engine: MakeEngine) -> None:
    engine = make_engine()
    stream = engine.stream("x", {"regex": "[ab]{300}", "max_new_tokens": 400}, rid="one")
    next(stream)
    with pytest.raises(InvalidParams, match="an open request has this id"):
        engine.generate("x", {"regex": "[cd]{3}"}, rid="one")
    *_, last = stream
    assert set(last["text"]) <= {"a", "b"}
    assert len(last["text"]) == 300


def test_what_is_prepared_and_never_sent_is_not_kept(make_engine: MakeEngine) -> None:
    engine = make_engine()
    for number in range(20):
        engine.prepare_now("x", {"regex": f"[ab]{{{number + 1}}}"})
    gc.collect()
    assert len(engine._guides._pinned) == 0


@pytest.mark.parametrize("mode", ["heal", "retokenize"])
def test_forced_text_behind_a_stop_is_not_computed(make_engine: MakeEngine, mode: str) -> None:
    engine = make_engine(jump_forward=mode)
    reply = engine.generate("x", {"regex": "the river is danube and nothing else", "stop": "is"})
    assert reply["text"] == "the river "
    info = engine.get_server_info()
    assert info["num_cached_tokens"] <= reply["meta_info"]["prompt_tokens"] + reply["meta_info"]["completion_tokens"]


def test_a_closed_engine_ends_its_mask_threads_with_work_left(make_engine: MakeEngine) -> None:
    engine = make_engine()
    for number in range(100):
        engine.prepare_now("x", {"regex": f".{{0,{1000 + number}}}"})
    engine.shutdown()
    assert engine._guides.filler.num_ahead == 0


@pytest.mark.parametrize("mode", ["heal", "retokenize"])
def test_a_stop_inside_forced_text_with_logprobs(make_engine: MakeEngine, mode: str) -> None:
    engine = make_engine(jump_forward=mode)  # this once ended the engine: logits came for tokens that a stop had cut off
    reply = engine.generate("x", {"regex": "the river is danube[ab]the river is done", "stop": ["is da", "er is do"]}, return_logprob=True)
    assert reply["text"] == "the river "
    assert len(reply["meta_info"]["output_token_logprobs"]) == len(reply["output_ids"]) == reply["meta_info"]["completion_tokens"]
    assert engine.generate("x", {"regex": "[ab]{3}"})["meta_info"]["finish_reason"]["type"] == "stop"


def test_threads_take_short_turns_only_while_someone_compiles(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    usual_s = sys.getswitchinterval()
    seen: list[float] = []
    make = constraints.compile_constraint

    def spy(*args: Any, **options: Any) -> Any:
        seen.append(sys.getswitchinterval())
        return make(*args, **options)

    monkeypatch.setattr(constraints, "compile_constraint", spy)
    engine.generate("x", {"regex": "[ab]{3}"})
    with pytest.raises(InvalidConstraint):
        engine.generate("x", {"regex": "("})
    assert max(seen) < 0.001 <= usual_s
    assert sys.getswitchinterval() == usual_s
