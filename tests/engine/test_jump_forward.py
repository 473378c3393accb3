"""Jump-forward changes how many draws a text takes and nothing else: not the text, not the tokens, not the log-probabilities."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ramet import Engine
from ramet.tokenizer import Tokenizer

MakeEngine = Callable[..., Engine]
SHARED = Path(__file__).resolve().parents[2].parent / "shared"
PATTERNS = [
    r"the river is (danube|deep|done)\.",
    r"(today|tomorrow) the hen did cross( when it rained)?",
    r'\{"name": "[a-e]{1,4}", "did": (true|false)\}',
    r"abc",
    r"(a|ab|abc) the river",
    r"[0-9]{2} the [xyz] all done (é|è|ü)!",
    r'\["(娃领|娇领|娱领)"\]',
    r"(\n    the){2,3}\n",
]


def ask(engine: Engine, prompts: list[str], params: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    replies = engine.generate(prompts, params, **more)
    assert isinstance(replies, list)
    return replies


def draws(reply: dict[str, Any]) -> int:
    return int(reply["meta_info"]["completion_tokens_wo_jump_forward"])


@pytest.mark.parametrize("temperature", [0.0, 1.3])
@pytest.mark.parametrize("chunk", [3, 2048])
def test_tokens_are_the_same_with_and_without(make_engine: MakeEngine, temperature: float, chunk: int) -> None:
    prompts = [f"prompt {i % 3} the" for i in range(4 * len(PATTERNS))]
    params = [
        {"regex": PATTERNS[i % len(PATTERNS)], "temperature": temperature, "seed": i, "max_new_tokens": 80} for i in range(len(prompts))
    ]
    found = {}
    for mode in ("off", "heal", "retokenize"):
        engine = make_engine(jump_forward=mode, canonical_masks="always", chunked_prefill_size=chunk)
        found[mode] = ask(engine, prompts, params)
        stats = engine.get_server_info()["stats"]
        assert (stats["num_forced_tokens"] > 0) == (stats["num_jumps"] > 0) == (mode != "off")
        assert stats["num_output_tokens"] == sum(reply["meta_info"]["completion_tokens"] for reply in found[mode])
        assert stats["num_forced_tokens"] == sum(reply["meta_info"].get("forced_tokens", 0) for reply in found[mode])
    for off, heal, again, param in zip(found["off"], found["heal"], found["retokenize"], params, strict=True):
        assert re.fullmatch(param["regex"], off["text"]) and off["meta_info"]["forced_tokens"] == 0
        assert (heal["text"], heal["output_ids"]) == (off["text"], off["output_ids"])
        assert heal["meta_info"]["finish_reason"] == off["meta_info"]["finish_reason"]
        assert draws(heal) < draws(off)
        assert re.fullmatch(param["regex"], again["text"]) and again["meta_info"]["finish_reason"]["type"] == "stop"
        assert 0 <= off["meta_info"]["masked_mass"] <= 1


def test_a_text_without_any_choice_takes_no_step(make_engine: MakeEngine, byte_tokenizer: Tokenizer) -> None:
    engine = make_engine()
    reply = engine.generate("x", {"regex": "all done today", "max_new_tokens": 50})
    assert reply["text"] == "all done today" and draws(reply) == 0
    assert reply["output_ids"] == [*byte_tokenizer.encode("all done today"), byte_tokenizer.eos_token_ids[0]]
    assert engine.get_server_info()["stats"]["num_steps"] == 0
    scored = engine.generate("x", {"regex": "all done today", "max_new_tokens": 50}, return_logprob=True)
    assert scored["output_ids"] == reply["output_ids"] and len(scored["meta_info"]["output_token_logprobs"]) == len(reply["output_ids"])


@pytest.mark.parametrize("mode", ["heal", "retokenize"])
def test_logprobs_of_forced_tokens_are_those_of_drawn_ones(make_engine: MakeEngine, mode: str) -> None:
    """Retokenised tokens may differ from drawn ones; then theirs are those of the model for exactly these tokens."""
    prompts = ["the river", "when it"] * len(PATTERNS)
    params = [{"regex": PATTERNS[i // 2], "temperature": 0, "max_new_tokens": 80} for i in range(len(prompts))]
    more = {"return_logprob": True, "top_logprobs_num": 2, "logprob_start_len": 0}
    jumped = make_engine(jump_forward=mode, canonical_masks="always", chunked_prefill_size=5)
    for reply, prompt in zip(ask(jumped, prompts, params, **more), prompts, strict=True):
        meta = reply["meta_info"]
        assert [value[1] for value in meta["output_token_logprobs"]] == reply["output_ids"]
        whole = [*jumped.tokenizer.encode(prompt), *reply["output_ids"]]
        scored = make_engine().generate(input_ids=whole, sampling_params={"max_new_tokens": 0}, return_logprob=True, logprob_start_len=0)
        expected = scored["meta_info"]["input_token_logprobs"]
        mine = meta["input_token_logprobs"] + meta["output_token_logprobs"]
        assert [value[1] for value in mine] == whole
        assert [value[0] for value in mine[1:]] == pytest.approx([value[0] for value in expected[1:]], abs=1e-5)
        assert len(meta["output_top_logprobs"]) == len(reply["output_ids"])


@pytest.mark.parametrize("with_logprobs", [False, True])
def test_every_token_limit_cuts_at_the_same_place(make_engine: MakeEngine, with_logprobs: bool) -> None:
    pattern = r'\{"name": "[a-e]{1,4}", "did": (true|false)\}'
    params = [{"regex": pattern, "temperature": 0, "max_new_tokens": n} for n in range(1, 40)]
    prompts = ["limit"] * len(params)
    off = ask(make_engine(jump_forward="off"), prompts, params, return_logprob=with_logprobs)
    heal = ask(make_engine(num_slots=300), prompts, params, return_logprob=with_logprobs)
    for left, right in zip(off, heal, strict=True):
        assert (left["text"], left["output_ids"]) == (right["text"], right["output_ids"])
        assert left["meta_info"]["finish_reason"] == right["meta_info"]["finish_reason"]
    again = ask(make_engine(jump_forward="retokenize"), prompts, params, return_logprob=with_logprobs)
    assert all(len(reply["output_ids"]) <= param["max_new_tokens"] for reply, param in zip(again, params, strict=True))


@pytest.mark.parametrize("mode", ["heal", "retokenize"])
@pytest.mark.parametrize("stop", ['"did"', "me", '": "', "a", " "])
def test_stop_strings_inside_forced_text(make_engine: MakeEngine, stop: str, mode: str) -> None:
    params = {"regex": PATTERNS[2], "temperature": 0, "max_new_tokens": 60, "stop": stop}
    off = make_engine(jump_forward="off", canonical_masks="always").generate("s", params)
    jumped = make_engine(jump_forward=mode, canonical_masks="always").generate("s", params)
    assert jumped["text"] == off["text"] and stop not in jumped["text"]
    assert jumped["meta_info"]["finish_reason"] == off["meta_info"]["finish_reason"]
    if mode == "heal":
        assert jumped["output_ids"] == off["output_ids"]


def test_min_tokens_seed_and_penalties_see_forced_tokens(make_engine: MakeEngine) -> None:
    params = {"regex": "(the |river |hen ){2,9}", "seed": 5, "temperature": 1.2, "frequency_penalty": 1.5, "min_new_tokens": 6}
    off, heal = (make_engine(jump_forward=mode, canonical_masks="always").generate("p", params) for mode in ("off", "heal"))
    assert heal["output_ids"] == off["output_ids"] and draws(heal) < draws(off)


@pytest.mark.parametrize("mode", ["heal", "retokenize"])
def test_streams_only_grow_and_end_as_the_whole(make_engine: MakeEngine, mode: str) -> None:
    for pattern in PATTERNS:
        params = {"regex": pattern, "temperature": 0, "max_new_tokens": 80}
        engine = make_engine(jump_forward=mode)
        whole = engine.generate("stream", params)
        seen = list(engine.stream("stream", params))
        for before, after in zip(seen, seen[1:], strict=False):
            assert after["text"].startswith(before["text"])
            if mode == "heal":
                assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
        assert (seen[-1]["text"], seen[-1]["output_ids"]) == (whole["text"], whole["output_ids"])


@pytest.mark.parametrize("mode", ["heal", "retokenize"])
def test_retraction_of_jumping_requests(make_engine: MakeEngine, mode: str) -> None:
    pattern = r"([a-z][a-z] [0-9][0-9] the ){5}"
    params = [{"regex": pattern, "seed": i, "max_new_tokens": 36, "temperature": 1.0} for i in range(8)]
    prompts = [f"{i} retract" for i in range(8)]
    tight = make_engine(num_slots=120, jump_forward=mode)
    found = ask(tight, prompts, params)
    assert tight.get_server_info()["stats"]["num_retractions"] > 0
    calm = ask(make_engine(jump_forward=mode), prompts, params)
    assert [reply["output_ids"] for reply in found] == [reply["output_ids"] for reply in calm]


def test_retokenize_rolls_back_into_the_tree(make_engine: MakeEngine) -> None:
    """The first forced run is part of the tree from the admission on; a later jump spells its end anew."""
    engine = make_engine(jump_forward="retokenize", canonical_masks="never")
    pattern = "(all|al)(l done| )(x|y) today"
    params = [{"regex": pattern, "seed": i, "temperature": 1.0, "max_new_tokens": 60} for i in range(12)]
    replies = ask(engine, ["tree"] * 12, params)
    assert all(re.fullmatch(pattern, reply["text"]) for reply in replies)
    assert any(reply["meta_info"]["forced_tokens"] for reply in replies)


def test_other_ids_of_the_engine_are_not_taken_for_text(make_engine: MakeEngine) -> None:
    """A forced text that spells a special token stays text: its characters, never the id."""
    for mode in ("off", "heal", "retokenize"):
        engine = make_engine(jump_forward=mode)
        reply = engine.generate("s", {"regex": "<eos>(a|b)", "temperature": 0, "max_new_tokens": 20, "skip_special_tokens": False})
        assert reply["text"].startswith("<eos>") and reply["meta_info"]["finish_reason"]["type"] == "stop"
        assert engine.tokenizer.eos_token_ids[0] not in reply["output_ids"][:-1]


@pytest.fixture(scope="module", params=["off", "heal", "retokenize"])
def stories(request: pytest.FixtureRequest) -> Any:
    if not SHARED.exists():
        pytest.skip("the folder of models is not there")
    with Engine(str(SHARED / "models" / "stories260k"), dtype="float32", jump_forward=request.param, canonical_masks="always") as engine:
        yield request.param, engine


def test_text_on_a_real_model_with_sentencepiece(stories: tuple[str, Engine]) -> None:
    mode, engine = stories
    patterns = [
        r"Once upon a time, there was a (girl|boy|dog) named (Lily|Tim|Max)\. (She|He|It) was [a-z]{3,9}\.",
        r"Answer: (yes|no)\. Done",
        r"Lily (and|saw) [a-z ]{1,20}\. The end\.",
    ]
    prompts = ["Once upon", "Q: ok?\n", "One day,"]
    params = [{"regex": pattern, "temperature": 0, "max_new_tokens": 90} for pattern in patterns]
    replies = ask(engine, prompts, params)
    for pattern, reply in zip(patterns, replies, strict=True):
        assert re.fullmatch(pattern, reply["text"]), reply["text"]
        assert reply["meta_info"]["noncanonical"] == 0
        assert (reply["meta_info"]["forced_tokens"] > 0) == (mode != "off")
    if mode == "heal":  # spelling anew changes what the model saw last, and with it what it says next
        off = Engine(str(SHARED / "models" / "stories260k"), dtype="float32", jump_forward="off", canonical_masks="always")
        with off:
            again = ask(off, prompts, params)
        assert [reply["output_ids"] for reply in again] == [reply["output_ids"] for reply in replies]
