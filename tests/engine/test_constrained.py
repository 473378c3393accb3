"""Text that must match a pattern, on an engine whose logits know nothing of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import ramet as sgl
from ramet import Engine
from ramet.errors import InvalidConstraint, InvalidParams

MakeEngine = Callable[..., Engine]


@pytest.mark.parametrize(
    ("case", "regex", "stop", "text"),
    [
        ("ST-01", r"The river is Danube today\.", ["Danu"], "The river is "),
        ("ST-03", r"Result\n\nmore", ["\n"], "Result"),
        ("ST-05", r"abc STOP def ghi jkl", ["STOP"], "abc "),
        ("ST-10", r"Why did the hen cross when it rained", ["when it rained"], "Why did the hen cross "),
        ("ST-14", r"all done", ["zzz"], "all done"),
        ("SD-02", "天地玄黄，宇宙洪荒🙂", [], "天地玄黄，宇宙洪荒🙂"),
        ("SD-04", r"Bye<\|end\|>tail", ["<|end|>"], "Bye"),
    ],
)
def test_a_literal_regex_forces_the_text(make_engine: MakeEngine, case: str, regex: str, stop: list[str], text: str) -> None:
    engine = make_engine()
    params = {"regex": regex, "stop": stop, "max_new_tokens": 100, "temperature": 1.0}
    reply = engine.generate("Go:", params)
    assert reply["text"] == text and reply["meta_info"]["finish_reason"]["type"] == "stop"
    parts = [part["text"] for part in engine.stream("Go:", params)]
    assert parts[-1] == text and not any("\ufffd" in part or (case == "SD-04" and "<" in part) for part in parts)


PATTERNS = [r"[-+]?[0-9]{1,5}", r"(yes|no|maybe)", r"[a-z]{3,8}@[a-z]{2,5}\.(com|org)", r"\d{4}-\d\d-\d\d", r"(ä|ö|ü|天){2,3}"]


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_random_logits_under_patterns(make_engine: MakeEngine, ignore_eos: bool) -> None:
    engine = make_engine(chunked_prefill_size=7)
    asked = PATTERNS * 6
    params = [{"regex": p, "seed": i, "temperature": 1.5, "max_new_tokens": 60, "ignore_eos": ignore_eos} for i, p in enumerate(asked)]
    replies = engine.generate([f"prompt {i % 4}" for i in range(len(asked))], params)
    for pattern, reply in zip(asked, replies, strict=True):
        assert re.fullmatch(pattern, reply["text"]), (pattern, reply["text"])
        assert reply["meta_info"]["finish_reason"]["type"] == "stop"


def test_free_requests_beside_constrained_ones_are_unchanged(make_engine: MakeEngine) -> None:
    free = {"temperature": 0, "max_new_tokens": 20, "ignore_eos": True}
    alone = make_engine().generate("free", free)["text"]
    replies = make_engine().generate(["free", "bound", "free"], [free, {"regex": "[ab]{9}", "seed": 1}, free])
    assert [replies[0]["text"], replies[2]["text"]] == [alone, alone]
    assert re.fullmatch("[ab]{9}", replies[1]["text"])


def test_retraction_keeps_the_place_in_the_pattern(make_engine: MakeEngine) -> None:
    engine = make_engine(num_slots=60, jump_forward="off", canonical_masks="never")
    params = [{"regex": "(ab|cd){12}", "seed": i, "max_new_tokens": 60} for i in range(6)]
    replies = engine.generate(input_ids=[[10 + i] * 8 for i in range(6)], sampling_params=params)
    assert engine.get_server_info()["stats"]["num_retractions"] > 0
    assert all(re.fullmatch("(ab|cd){12}", reply["text"]) for reply in replies)


def test_a_bad_pattern_is_refused_before_anything_runs(make_engine: MakeEngine) -> None:
    engine = make_engine()
    for pattern in ("(", r"(a)\1", "(?=a)b", r"\bword\b"):
        with pytest.raises(InvalidConstraint, match="regex"):
            engine.generate("x", {"regex": pattern})
    assert engine.get_server_info()["stats"]["num_requests"] == 0
    assert len(engine.generate("x", {"regex": "", "max_new_tokens": 2, "ignore_eos": True})["output_ids"]) == 2, "empty: none"


def test_a_model_without_an_end_of_text(make_engine: MakeEngine) -> None:
    engine = make_engine(eos_token_ids=[])
    assert engine.generate("x", {"regex": "abc", "max_new_tokens": 50})["text"] == "abc"


def test_typed_gens_parse(make_engine: MakeEngine) -> None:
    @sgl.function
    def record(s: Any) -> None:
        s += "age " + sgl.gen_int("age", max_tokens=6)
        s += " height " + sgl.gen("height", dtype=float, max_tokens=8)
        s += " alive " + sgl.gen("alive", dtype=bool)
        s += " house " + sgl.gen("house", regex="(north|south)")

    engine = make_engine()
    for state in record.run_batch([{}] * 8, backend=engine, temperature=1.0):
        assert isinstance(int(state["age"]), int) and state["alive"] in ("True", "False") and state["house"] in ("north", "south")
        assert re.fullmatch(r"[-+]?[0-9]*\.?[0-9]*", state["height"].strip())


def test_an_empty_regex_never_hangs() -> None:  # case FE-02
    with pytest.raises(InvalidParams):
        sgl.gen("a", regex="")
