"""What hostile callers did to an engine through constraints: each of these once went wrong."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from ramet import Engine
from ramet.errors import InvalidParams

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
