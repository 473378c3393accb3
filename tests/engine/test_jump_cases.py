"""The handed cases about jump-forward, through the whole engine: what other engines got wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ramet import Engine

MakeEngine = Callable[..., Engine]
MODES = ("heal", "retokenize", "off")
STORIES = Path(__file__).resolve().parents[3] / "shared" / "models" / "stories260k"

JF01 = r'\["(娃领|娇领|娱领)"\]'
JF02 = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "population": {"type": "integer"}},
    "required": ["name", "population"],
}
JF04 = r"Answer: (yes|no)\. Done"
JF10_NAMES = [
    "is_a_citizen_of_the_country",
    "has_a_valid_driving_licence",
    "was_employed_during_the_last_year",
    "speaks_more_than_one_language",
    "lives_in_a_house_with_a_garden",
    "has_travelled_to_another_continent",
    "owns_at_least_one_bicycle",
    "would_like_to_be_asked_again",
]
JF10 = {"type": "object", "properties": {name: {"type": "boolean"} for name in JF10_NAMES}, "required": JF10_NAMES}


def replies_of(engine: Engine, prompts: list[str], params: dict[str, Any]) -> list[dict[str, Any]]:
    replies = engine.generate(prompts, params)
    assert isinstance(replies, list)
    assert all(reply["meta_info"]["finish_reason"]["type"] == "stop" for reply in replies)
    return replies


def test_jf_01_forced_bytes_end_inside_a_character(make_engine: MakeEngine) -> None:
    prompts = [f"{number}: " for number in range(12)]
    params = {"regex": JF01, "temperature": 0}
    texts: dict[str, list[str]] = {}
    for mode in MODES:
        engine = make_engine(jump_forward=mode)
        replies = replies_of(engine, prompts, params)
        texts[mode] = [reply["text"] for reply in replies]
        for text in texts[mode]:
            assert text in ('["娃领"]', '["娇领"]', '["娱领"]')
            assert len(json.loads(text)) == 1
        assert all("\ufffd" not in part["text"] for part in engine.stream(prompts[0], params))
        assert (engine.get_server_info()["stats"]["num_forced_tokens"] > 0) == (mode != "off")
        free = engine.generate("alive", {"max_new_tokens": 2, "ignore_eos": True})
        assert free["meta_info"]["completion_tokens"] == 2
    assert len(set(texts["off"])) > 1
    assert texts["heal"] == texts["off"]


@pytest.mark.parametrize("canonical_masks", ["finite", "always"])
@pytest.mark.parametrize(("whitespace", "comma", "colon"), [("compact", ",", ":"), ("fixed", ", ", ": ")])
def test_jf_02_spacing_does_not_change(make_engine: MakeEngine, whitespace: str, comma: str, colon: str, canonical_masks: str) -> None:
    prompts = [f"City {number} as JSON: " for number in range(8)]
    shape = re.compile(rf'\{{"name"{colon}"(?:[^"\\]|\\.)*"{comma}"population"{colon}-?(?:0|[1-9][0-9]*)\}}', re.DOTALL)
    found: dict[str, list[dict[str, Any]]] = {}
    for mode in ("heal", "off"):
        engine = make_engine(jump_forward=mode, json_whitespace=whitespace, canonical_masks=canonical_masks)
        likely = {engine.tokenizer.encode('"')[0]: 0.5}  # so that names end
        found[mode] = replies_of(engine, prompts, {"json_schema": JF02, "temperature": 0, "max_new_tokens": 600, "logit_bias": likely})
        for reply in found[mode]:
            assert shape.fullmatch(reply["text"]), reply["text"]
            value = json.loads(reply["text"])
            assert [(name, type(item)) for name, item in value.items()] == [("name", str), ("population", int)]
    for heal, off in zip(found["heal"], found["off"], strict=True):
        assert (heal["meta_info"]["forced_tokens"] > 0, off["meta_info"]["forced_tokens"]) == (True, 0)
        assert heal["text"] == off["text"]
        assert heal["meta_info"]["noncanonical"] == off["meta_info"]["noncanonical"] == 0
        if canonical_masks == "always":
            assert heal["output_ids"] == off["output_ids"]
    assert len({off["text"] for off in found["off"]}) > 1


def test_jf_04_no_blank_before_a_jump_with_sentencepiece() -> None:
    if not STORIES.is_dir():
        pytest.skip("the shared model stories260k is not beside the checkout")
    params = {"regex": JF04, "temperature": 0, "max_new_tokens": 40}
    texts = {}
    for mode in MODES:
        with Engine(str(STORIES), dtype="float32", num_threads=1, max_total_tokens=256, jump_forward=mode) as engine:
            reply = engine.generate("Q: ok?\n", params)
            whole = engine.tokenizer.decode([*engine.tokenizer.encode("Q: ok?\n"), *reply["output_ids"]], skip_special_tokens=True)
            parts = list(engine.stream("Q: ok?\n", params))
        texts[mode] = reply["text"]
        assert re.fullmatch(JF04, reply["text"]), reply["text"]
        assert (reply["text"].count(" "), reply["text"].startswith(" ")) == (2, False)
        assert whole == "Q: ok?\n" + reply["text"] == "Q: ok?\n" + parts[-1]["text"]
        assert (reply["meta_info"]["forced_tokens"] > 0) == (mode != "off")
    assert texts["heal"] == texts["off"]


def test_jf_10_jumps_are_there_and_save_passes(make_engine: MakeEngine) -> None:
    params = {"json_schema": JF10, "max_tokens": 400, "temperature": 0}
    passes, forced, texts = {}, {}, {}
    for mode in MODES:
        engine = make_engine(jump_forward=mode)
        (reply,) = replies_of(engine, ["Fill the form: "], params)
        stats = engine.get_server_info()["stats"]
        passes[mode], forced[mode], texts[mode] = stats["num_steps"], stats["num_forced_tokens"], reply["text"]
        assert reply["meta_info"]["forced_tokens"] == stats["num_forced_tokens"]
        assert [type(item) for item in json.loads(reply["text"]).values()] == [bool] * 8
        assert list(json.loads(reply["text"])) == JF10_NAMES
    assert texts["heal"] == texts["off"]
    assert forced["off"] == 0 < min(forced["heal"], forced["retokenize"])
    assert max(passes["heal"], passes["retokenize"]) <= 0.6 * passes["off"]
