from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ramet import Engine
from ramet.errors import (
    ConfigError,
    EngineBusy,
    EngineClosed,
    EngineDied,
    InvalidParams,
    InvalidRequest,
    PromptTooLong,
    RametError,
    UnsupportedFeature,
)
from ramet.tokenizer import Tokenizer

MakeEngine = Callable[..., Engine]
Say = Callable[..., Callable[[Sequence[int]], int | None]]
GREEDY = {"temperature": 0}


@pytest.mark.parametrize("by_character", [False, True])
@pytest.mark.parametrize(
    ("case", "literal", "stop", "text", "reason"),
    [
        ("ST-01", "The river is Danube today.", ["Danu"], "The river is ", "Danu"),
        ("ST-03", "Result\n\nmore", ["\n"], "Result", "\n"),
        ("ST-05", "abc STOP def ghi jkl", ["STOP"], "abc ", "STOP"),
        ("ST-10", "Why did the hen cross when it rained", ["when it rained"], "Why did the hen cross ", "when it rained"),
        ("ST-14", "all done", ["zzz"], "all done", None),
        ("SD-04", "Bye<|end|>tail", ["<|end|>"], "Bye", "<|end|>"),
        ("SD-02", "天地玄黄，宇宙洪荒🙂", [], "天地玄黄，宇宙洪荒🙂", None),
    ],
)
def test_stop_strings(
    make_engine: MakeEngine, say: Say, case: str, literal: str, stop: list[str], text: str, reason: str | None, by_character: bool
) -> None:
    engine = make_engine(say("Go:", literal, by_character=by_character))
    params = {**GREEDY, "stop": stop, "max_new_tokens": 200}
    reply = engine.generate("Go:", params)
    assert reply["text"] == text
    assert reply["meta_info"]["finish_reason"]["type"] == "stop"
    assert reason is None or reply["meta_info"]["finish_reason"]["matched"] == reason
    assert reply["meta_info"]["completion_tokens"] == len(reply["output_ids"])
    pieces = []
    before = ""
    for part in engine.stream("Go:", params):
        assert part["text"].startswith(before), "the text only grows"
        pieces.append(part["text"][len(before) :])
        before = part["text"]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    if case == "SD-04":
        assert not any("<" in piece for piece in pieces)
    if case == "ST-05":
        assert not any("def" in piece for piece in pieces)


def test_completion_tokens_end_with_the_stop(make_engine: MakeEngine, say: Say, byte_tokenizer: Tokenizer) -> None:
    engine = make_engine(say("Go:", "abc STOP def", by_character=True))
    reply = engine.generate("Go:", {**GREEDY, "stop": "STOP"})
    assert reply["output_ids"] == [i for c in "abc STOP" for i in byte_tokenizer.encode(c)]


def test_ignore_eos_is_not_defeated_by_more_eos_ids(make_engine: MakeEngine) -> None:
    """Case ST-06: eos ids of the generation config are no stop ids of the user's."""
    engine = make_engine(eos_token_ids=[0, 7])
    reply = engine.generate("x", {"ignore_eos": True, "max_new_tokens": 40, "logit_bias": {"7": 100}})
    assert reply["output_ids"] == [7] * 40
    assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 40}
    assert engine.generate("x", {"logit_bias": {"7": 100}})["meta_info"]["finish_reason"] == {"type": "stop", "matched": 7}


def test_a_stop_string_that_is_a_special_token_stops_by_its_id(make_engine: MakeEngine, byte_tokenizer: Tokenizer) -> None:
    pad = byte_tokenizer.token_to_id("<pad>")
    engine = make_engine(lambda tokens: pad if len(tokens) > 4 else 9)
    reply = engine.generate(input_ids=[8, 8], sampling_params={**GREEDY, "stop": ["<pad>"]})
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": pad}
    assert reply["output_ids"] == [9, 9, 9, pad] and "<pad>" not in reply["text"]


def test_no_tokens_wanted(make_engine: MakeEngine) -> None:
    """Case ST-08: max_new_tokens = 0 computes the prompt, draws nothing and leaks nothing."""
    engine = make_engine()
    free = engine.get_server_info()["num_free_tokens"]
    reply = engine.generate("hello", {"max_new_tokens": 0})
    assert (reply["text"], reply["output_ids"]) == ("", [])
    assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 0}
    with_logprobs = engine.generate("hello", {"max_new_tokens": 0}, return_logprob=True, logprob_start_len=0)
    values = with_logprobs["meta_info"]["input_token_logprobs"]
    assert len(values) == with_logprobs["meta_info"]["prompt_tokens"] and values[0][0] is None
    assert all(isinstance(value[0], float) and value[0] <= 0 for value in values[1:])
    engine.flush_cache()
    assert engine.get_server_info()["num_free_tokens"] == free


def test_prompt_that_ends_inside_a_character(make_engine: MakeEngine, say: Say, byte_tokenizer: Tokenizer) -> None:
    """Case SD-01: nothing of the prompt leaks into the first delta."""
    whole = byte_tokenizer.encode("Good morning ค")
    prompt = whole[:-1]
    engine = make_engine(lambda tokens: whole[-1] if len(tokens) == len(prompt) else 0)
    plain = engine.generate(input_ids=prompt, sampling_params={**GREEDY, "max_new_tokens": 4})["text"]
    parts = [part["text"] for part in engine.generate(input_ids=prompt, sampling_params={**GREEDY, "max_new_tokens": 4}, stream=True)]
    assert parts[-1] == plain == "ค"
    assert not any("Good" in part for part in parts)


def test_limit_inside_a_character(make_engine: MakeEngine, say: Say) -> None:
    """Case SD-07: an incomplete character at the limit is one U+FFFD, streamed or not."""
    engine = make_engine(say("x", "🙂🙂🙂", by_character=True))
    params = {**GREEDY, "max_new_tokens": 2}
    reply = engine.generate("x", params)
    assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 2}
    assert reply["text"] == "\ufffd"
    assert list(engine.stream("x", params))[-1]["text"] == "\ufffd"


def test_high_temperature_gives_valid_text(make_engine: MakeEngine) -> None:
    """Case SD-08: twenty seeds at temperature 5."""
    engine = make_engine()
    for seed in range(20):
        params = {"temperature": 5, "top_k": 0, "max_new_tokens": 200, "ignore_eos": True, "seed": seed}
        reply = engine.generate("x", params)
        assert reply["meta_info"]["completion_tokens"] == 200
        reply["text"].encode("utf-8")
        if seed < 3:
            assert list(engine.stream("x", params))[-1]["text"] == reply["text"]


def test_prompt_logprobs_from_a_position(make_engine: MakeEngine) -> None:
    """Case LP-05: the values of logprob_start_len = 8 are those of the full run from there on."""
    engine = make_engine()
    ids = list(range(10, 30))
    full = engine.generate(input_ids=ids, sampling_params={"max_new_tokens": 1}, return_logprob=True, logprob_start_len=0)
    part = engine.generate(input_ids=ids, sampling_params={"max_new_tokens": 1}, return_logprob=True, logprob_start_len=8)
    expected = full["meta_info"]["input_token_logprobs"]
    assert len(expected) == 20 and expected[0] == [None, 10, None]
    found = part["meta_info"]["input_token_logprobs"]
    assert [v[1] for v in found] == ids[8:] and len(found) == 12
    assert [v[0] for v in found] == pytest.approx([v[0] for v in expected[8:]], abs=1e-4)


@pytest.mark.parametrize("chunk", [3, 2048])
def test_prompt_logprobs_when_the_prefix_is_cached(make_engine: MakeEngine, chunk: int) -> None:
    """Case LP-06."""
    engine = make_engine(chunked_prefill_size=chunk)
    ids = list(range(10, 40))
    ask: dict[str, Any] = {"sampling_params": {"max_new_tokens": 2, **GREEDY}, "return_logprob": True, "logprob_start_len": 0}
    first, second = (engine.generate(input_ids=ids, **ask)["meta_info"]["input_token_logprobs"] for _ in range(2))
    third = engine.generate(input_ids=[*ids, 50, 51, 52], **ask)["meta_info"]["input_token_logprobs"]
    assert len(first) == len(second) == 30 and len(third) == 33
    for other in (second, third[:30]):
        assert [v[1] for v in other] == ids
        assert [v[0] for v in other[1:]] == pytest.approx([v[0] for v in first[1:]], abs=1e-4)


def test_output_logprobs_and_alternatives(make_engine: MakeEngine) -> None:
    """Case LP-01 at the engine: lists differ between positions, sorted, the chosen token first when greedy."""
    reply = make_engine().generate("hi", {**GREEDY, "max_new_tokens": 6}, return_logprob=True, top_logprobs_num=3, token_ids_logprob=[5, 6])
    meta = reply["meta_info"]
    assert meta["output_token_logprobs_length"] == len(reply["output_ids"]) == 6
    assert [v[1] for v in meta["output_token_logprobs"]] == reply["output_ids"]
    for chosen, top in zip(meta["output_token_logprobs"], meta["output_top_logprobs"], strict=True):
        assert len(top) == 3 and [v[0] for v in top] == sorted((v[0] for v in top), reverse=True)
        assert top[0][:2] == chosen[:2] and top[0][0] <= 0
    assert len({tuple(v[1] for v in top) for top in meta["output_top_logprobs"]}) > 1
    assert [[v[1] for v in picked] for picked in meta["output_token_ids_logprobs"]] == [[5, 6]] * 6


def test_the_whole_prompt_is_cached(make_engine: MakeEngine) -> None:
    """Case RC-07 with pages of one token: 63 of 64 are cached, the outputs are equal, and a longer prompt hits all of it."""
    engine = make_engine()
    ids = [20 + i % 50 for i in range(64)]
    replies = [engine.generate(input_ids=ids, sampling_params={**GREEDY, "max_new_tokens": 8}) for _ in range(3)]
    assert [reply["meta_info"]["cached_tokens"] for reply in replies] == [0, 63, 63]
    assert replies[0]["output_ids"] == replies[1]["output_ids"] == replies[2]["output_ids"]
    longer = [*ids, *replies[0]["output_ids"], 99, 98]
    reply = engine.generate(input_ids=longer, sampling_params={**GREEDY, "max_new_tokens": 1})
    assert reply["meta_info"]["cached_tokens"] == 64 + 7, "all but the last drawn token have keys and values"


def test_short_prompt(make_engine: MakeEngine) -> None:
    """Case RC-06: 29 tokens. Pages hold one token here, so all but the last are found again."""
    engine = make_engine()
    for cached in (0, 28):
        reply = engine.generate(input_ids=list(range(30, 59)), sampling_params={**GREEDY, "max_new_tokens": 1})
        assert reply["meta_info"]["cached_tokens"] == cached


def test_a_b_a(make_engine: MakeEngine) -> None:
    """Case RC-13: an unrelated request in between does not hide the cached prompt."""
    engine = make_engine()
    a, b = [i % 200 for i in range(300)], [i % 7 for i in range(300)]
    cached = [
        engine.generate(input_ids=ids, sampling_params={**GREEDY, "max_new_tokens": 1})["meta_info"]["cached_tokens"] for ids in (a, b, a)
    ]
    assert cached[0] == 0 and cached[2] == 299


def test_without_the_radix_cache(make_engine: MakeEngine) -> None:
    """Case RC-19: the same outputs, nothing cached, an empty pool when idle."""
    rng = random.Random(1)
    prompts = [[10] * 20] * 5 + [[rng.randrange(250) for _ in range(rng.randint(1, 60))] for _ in range(20)]
    on, off = make_engine(), make_engine(disable_radix_cache=True)
    params = {**GREEDY, "max_new_tokens": 5}
    with_cache = on.generate(input_ids=prompts, sampling_params=params)
    without = off.generate(input_ids=prompts, sampling_params=params)
    assert [r["output_ids"] for r in with_cache] == [r["output_ids"] for r in without]
    assert {r["meta_info"]["cached_tokens"] for r in without} == {0}
    assert off.get_server_info()["num_free_tokens"] == 4096


def test_flush_while_a_request_is_alive(make_engine: MakeEngine) -> None:
    """Case RC-11: refused as busy; the stream is undisturbed; an idle flush empties the cache."""
    engine = make_engine()
    params = {**GREEDY, "max_new_tokens": 300, "ignore_eos": True}
    expected = engine.generate("long", params)["text"]
    stream = engine.stream("long", params)
    next(stream)
    with pytest.raises(EngineBusy, match="1 requests are open"):
        engine.flush_cache()
    assert list(stream)[-1]["text"] == expected
    assert engine.flush_cache() is True
    assert engine.generate("long", params)["meta_info"]["cached_tokens"] == 0


def test_nothing_leaks_over_500_requests(make_engine: MakeEngine) -> None:
    """Case RC-17: mixed endings, 10 % aborted, 16 at a time, a pool that is too small for all of them."""
    engine = make_engine(num_slots=600)
    rng = random.Random(0)

    def one(index: int) -> None:
        local = random.Random(index)
        prompt = [local.randrange(2, 250) for _ in range(local.randint(1, 80))]
        kind = local.randrange(10)
        params = {"max_new_tokens": local.randint(1, 60), "seed": index, "ignore_eos": True, "temperature": 1.0}
        if kind == 0:
            stream = engine.generate(input_ids=prompt, sampling_params=params, stream=True)
            for _ in range(local.randint(1, 5)):
                next(stream, None)
            stream.close()
        else:
            if kind == 1:
                params["stop"] = ["a", "e"]
            engine.generate(input_ids=prompt, sampling_params=params)

    todo = list(range(500))
    rng.shuffle(todo)

    def work() -> None:
        while todo:
            one(todo.pop())

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    wait_until(lambda: not engine._core.has_work)
    info = engine.get_server_info()
    assert (info["num_running"], info["num_waiting"]) == (0, 0)
    assert info["num_free_tokens"] + info["num_cached_tokens"] == 600 and info["num_cached_tokens"] == info["num_evictable_tokens"]
    engine.flush_cache()
    assert engine.get_server_info()["num_free_tokens"] == 600


def wait_until(is_true: Callable[[], bool], limit_s: float = 10) -> None:
    end = time.monotonic() + limit_s
    while not is_true():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)


def test_a_prompt_that_does_not_fit_the_pool(make_engine: MakeEngine) -> None:
    """Case SC-01: refused at once with both lengths; the next request runs."""
    engine = make_engine(num_slots=1000, context_len=4096)
    with pytest.raises(PromptTooLong, match=r"1500 tokens.*1000 tokens"):
        engine.generate(input_ids=[5] * 1500)
    assert engine.generate(input_ids=[5] * 10, sampling_params={"max_new_tokens": 1})["output_ids"]


def test_prompts_at_the_context_length(make_engine: MakeEngine) -> None:
    """Case SC-03."""
    engine = make_engine(context_len=100)
    for length in (101, 100):
        with pytest.raises(PromptTooLong, match=f"{length} tokens"):
            engine.generate(input_ids=[5] * length)
    reply = engine.generate(input_ids=[5] * 99, sampling_params={"max_new_tokens": 5, "ignore_eos": True})
    assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 1}
    assert engine.generate(input_ids=[5] * 100, sampling_params={"max_new_tokens": 0})["output_ids"] == []


def test_the_last_request_uses_up_the_pool(make_engine: MakeEngine) -> None:
    """Case SC-04: it ends with `length` and what it has; the next one runs."""
    engine = make_engine(num_slots=128)
    reply = engine.generate(input_ids=[9] * 100, sampling_params={"max_new_tokens": 100, "ignore_eos": True})
    assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 29}
    assert len(engine.generate("next", {"max_new_tokens": 3, "ignore_eos": True})["output_ids"]) == 3


def test_batches_in_a_row_and_inside_a_running_event_loop(make_engine: MakeEngine) -> None:
    """Case SC-13."""
    engine = make_engine()
    prompts = [f"prompt {i}" for i in range(64)]
    params = {**GREEDY, "max_new_tokens": 4, "ignore_eos": True}
    first = [reply["text"] for reply in engine.generate(prompts, params)]
    for _ in range(2):
        assert [reply["text"] for reply in engine.generate(prompts, params)] == first

    async def inside() -> list[str]:
        return [reply["text"] for reply in engine.generate(prompts, params)]

    async def awaited() -> list[str]:
        replies = await asyncio.gather(*(engine.async_generate(prompt, params) for prompt in prompts))
        return [reply["text"] for reply in replies]

    assert asyncio.run(inside()) == first == asyncio.run(awaited())


def test_async_stream_and_cancelling(make_engine: MakeEngine) -> None:
    engine = make_engine()
    params = {**GREEDY, "max_new_tokens": 20, "ignore_eos": True}
    expected = engine.generate("hi", params)["text"]

    async def streamed() -> str:
        last = ""
        async for part in await engine.async_generate("hi", params, stream=True):
            assert part["text"].startswith(last)
            last = part["text"]
        return last

    async def cancelled() -> None:
        task = asyncio.create_task(engine.async_generate("hi", {**params, "max_new_tokens": 2000}))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert asyncio.run(streamed()) == expected
    asyncio.run(cancelled())
    wait_until(lambda: not engine._core.has_work)
    assert engine.get_server_info()["stats"]["num_aborted"] == 1


def test_abort_ends_with_what_there_is(make_engine: MakeEngine) -> None:
    engine = make_engine()
    stream = engine.stream("hi", {**GREEDY, "max_new_tokens": 2000, "ignore_eos": True}, rid="mine")
    seen = next(stream)
    with pytest.raises(InvalidParams, match="open request"):
        engine.generate("again", rid="mine")
    engine.abort("mine")
    last = list(stream)[-1]
    assert last["meta_info"]["finish_reason"] == {"type": "abort"}
    assert last["text"].startswith(seen["text"]) and len(last["output_ids"]) < 2000
    engine.abort("mine")  # it is gone: nothing happens


def test_sixty_four_programs_of_three_forks_share_one_prefix(make_engine: MakeEngine) -> None:
    """Each token of the prompts' tree is computed once, within one pass and over all; `cached_tokens` says so exactly."""
    prefix = [11 + i % 200 for i in range(700)]
    prompts = [[*prefix, 2 + p, 2 + p, 100 + f, 101, 102] for p in range(64) for f in range(3)]
    edges = len({tuple(prompt[: n + 1]) for prompt in prompts for n in range(len(prompt))})
    engine = make_engine(num_slots=20_000, chunked_prefill_size=8192)
    replies = engine.generate(input_ids=prompts, sampling_params={**GREEDY, "max_new_tokens": 4, "ignore_eos": True})
    stats = engine.get_server_info()["stats"]
    assert stats["num_computed_tokens"] == edges == 700 + 64 * 2 + 64 * 3 * 3
    assert sum(r["meta_info"]["cached_tokens"] for r in replies) == sum(map(len, prompts)) - edges == stats["num_cached_tokens"]
    assert stats["num_shared_in_pass"] > 0
    plain = make_engine(num_slots=200_000, chunked_prefill_size=8192, disable_radix_cache=True)
    expected = plain.generate(input_ids=prompts, sampling_params={**GREEDY, "max_new_tokens": 4, "ignore_eos": True})
    assert [r["output_ids"] for r in replies] == [r["output_ids"] for r in expected]
    assert plain.get_server_info()["stats"]["num_shared_in_pass"] == 0


def test_samples_of_one_prompt(make_engine: MakeEngine) -> None:
    engine = make_engine()
    params = {"n": 4, "max_new_tokens": 12, "seed": 5, "ignore_eos": True, "temperature": 2.0}
    replies = engine.generate("sample", params)
    again = engine.generate("sample", params)
    assert len(replies) == 4 and len({tuple(r["output_ids"]) for r in replies}) == 4
    unseeded = engine.generate("sample", {**params, "seed": None})
    assert len({tuple(r["output_ids"]) for r in unseeded}) == 4
    assert [r["output_ids"] for r in replies] == [r["output_ids"] for r in again], "a seed gives the same text"
    parts = list(engine.stream("sample", params))
    assert {part["index"] for part in parts} == {0, 1, 2, 3}
    assert [[p for p in parts if p["index"] == i][-1]["output_ids"] for i in range(4)] == [r["output_ids"] for r in replies]


def test_a_seed_gives_the_same_text_in_any_batch(make_engine: MakeEngine) -> None:
    params = {"max_new_tokens": 10, "seed": 3, "temperature": 1.5, "top_p": 0.9, "ignore_eos": True}
    alone = make_engine().generate("seeded", params)["output_ids"]
    busy = make_engine(chunked_prefill_size=5, num_slots=300)
    replies = busy.generate(["other one", "seeded", "third of them", "seeded"], params)
    assert replies[1]["output_ids"] == replies[3]["output_ids"] == alone


def test_retraction_changes_no_output(make_engine: MakeEngine) -> None:
    prompts = [[10 + i] * 10 for i in range(8)]
    params = {**GREEDY, "max_new_tokens": 40, "ignore_eos": True}
    tight, roomy = make_engine(num_slots=100), make_engine()
    replies = tight.generate(input_ids=prompts, sampling_params=params)
    assert [r["output_ids"] for r in replies] == [r["output_ids"] for r in roomy.generate(input_ids=prompts, sampling_params=params)]
    assert tight.get_server_info()["stats"]["num_retractions"] > 0
    assert any(r["meta_info"]["num_retractions"] for r in replies)


def test_salts_separate_tenants(make_engine: MakeEngine) -> None:
    engine = make_engine()
    params = {**GREEDY, "max_new_tokens": 1}
    cached = [engine.generate("the same text", params, cache_salt=salt)["meta_info"]["cached_tokens"] for salt in ("a", "b", "a", None)]
    assert cached[0] == cached[1] == cached[3] == 0 and cached[2] > 0


def test_a_cached_prefix_is_found(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.cache_prefix("The river is Danube")
    engine.cache_prefix("The river is Danube")
    stats = engine.get_server_info()["stats"]
    length = len(engine.tokenizer.encode("The river is Danube"))
    assert stats["num_prefix_hints"] == 2 and stats["num_computed_tokens"] == length
    reply = engine.generate("The river is Danube", {**GREEDY, "max_new_tokens": 1})
    assert reply["meta_info"]["cached_tokens"] == length - 1


def test_score_is_the_sum_of_single_steps(make_engine: MakeEngine) -> None:
    engine = make_engine()
    prompt, choices = "item: ", ["cash", "casio", "cashew nuts"]
    scores = engine.score(prompt, choices, unconditional=True)
    prompt_ids = engine.tokenizer.encode(prompt)
    for choice, score in zip(choices, scores, strict=True):
        assert tuple(engine.tokenizer.encode(prompt + choice)) == (*prompt_ids, *score.token_ids)
        so_far = list(prompt_ids)
        for token_id, logprob in zip(score.token_ids, score.logprobs, strict=True):
            step = engine.generate(
                input_ids=so_far, sampling_params={**GREEDY, "max_new_tokens": 1}, return_logprob=True, token_ids_logprob=[token_id]
            )
            assert step["meta_info"]["output_token_ids_logprobs"][0][0][0] == pytest.approx(logprob, abs=1e-4)
            so_far.append(token_id)
        assert score.unconditional_logprobs is not None
        assert len(score.unconditional_logprobs) == len(score.token_ids) and score.unconditional_logprobs[0] is None


def test_score_re_tokenises_where_an_option_merges_with_the_prompt(make_engine: MakeEngine) -> None:
    """Case LP-10: every option is scored in the canonical tokens of prompt + option, from the first token that differs."""
    engine = make_engine()
    encode = engine.tokenizer.encode
    prompt, choices = "the river is da", ["nube", "rk"]
    assert encode(prompt + "nube") != [*encode(prompt), *encode("nube")], "the option merges with the end of the prompt"
    scores = engine.score(prompt, choices)
    merged = zip(encode(prompt), encode(prompt + "nube"), strict=False)
    shared = next(i for i, (own, whole) in enumerate(merged) if own != whole)
    for choice, score in zip(choices, scores, strict=True):
        ids = encode(prompt + choice)
        assert list(score.token_ids) == ids[shared:]
        for i, logprob in enumerate(score.logprobs):
            step = engine.generate(
                input_ids=ids[: shared + i],
                sampling_params={**GREEDY, "max_new_tokens": 1},
                return_logprob=True,
                token_ids_logprob=[ids[shared + i]],
            )
            assert step["meta_info"]["output_token_ids_logprobs"][0][0][0] == pytest.approx(logprob, abs=1e-4)


def test_prompt_logprobs_equal_single_steps(make_engine: MakeEngine) -> None:
    """Case LP-04 at the engine: all prompt logprobs beside one drawn token, each equal to what one step at a time gives."""
    engine = make_engine()
    meta = engine.generate("The sky is blue", {**GREEDY, "max_new_tokens": 1}, return_logprob=True, logprob_start_len=0)["meta_info"]
    ids = engine.tokenizer.encode("The sky is blue")
    assert len(meta["input_token_logprobs"]) == meta["prompt_tokens"] == len(ids) and len(meta["output_token_logprobs"]) == 1
    for i in range(1, len(ids)):
        step = engine.generate(
            input_ids=ids[:i], sampling_params={**GREEDY, "max_new_tokens": 1}, return_logprob=True, token_ids_logprob=[ids[i]]
        )
        assert step["meta_info"]["output_token_ids_logprobs"][0][0][0] == pytest.approx(meta["input_token_logprobs"][i][0], abs=1e-4)


def test_labels_reach_the_scheduler(make_engine: MakeEngine) -> None:
    engine = make_engine(chunked_prefill_size=3)
    seen: list[Any] = []
    submit = engine._core.scheduler.submit
    engine._core.scheduler.submit = lambda requests: (seen.extend(requests), submit(requests))[1]  # type: ignore[method-assign,func-returns-value]
    long = {"temperature": 0, "max_new_tokens": 30, "ignore_eos": True}
    engine.generate("abcdefgh", long, priority=3, group_id="g", cache_salt="s")
    assert [(request.priority, request.group_id, request.salt) for request in seen] == [(3, "g", "s")]
    engine.generate(["first one here", "second one here"], long)
    stats = engine.get_server_info()["stats"]
    assert stats["num_chunked_rows"] > 0 and stats["num_mixed_steps"] > 0


def test_score_without_a_prompt_uses_an_anchor(make_engine: MakeEngine) -> None:
    scores = make_engine().score("", ["yes", "no"])
    assert all(len(score.logprobs) == len(score.token_ids) > 0 for score in scores)


def test_a_dead_loop_fails_every_open_request(byte_tokenizer: Tokenizer, make_engine: MakeEngine) -> None:
    def breaks(tokens: Sequence[int]) -> int | None:
        if len(tokens) > 40:
            raise RuntimeError("the machine is on fire")
        return 5

    engine = make_engine(breaks)
    errors: list[BaseException] = []

    def ask(i: int) -> None:
        try:
            engine.generate(input_ids=[i, i], sampling_params={"max_new_tokens": 100, "ignore_eos": True})
        except RametError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, args=(i + 1,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
        assert not thread.is_alive(), "no one waits for a dead loop"
    assert len(errors) == 20 and all(isinstance(error, EngineDied) and "on fire" in str(error) for error in errors)
    with pytest.raises(EngineDied):
        engine.generate("more")
    with pytest.raises(EngineDied):
        engine.flush_cache()


def test_shutdown_fails_open_requests_and_may_be_repeated(make_engine: MakeEngine) -> None:
    with make_engine() as engine:
        stream = engine.stream("hi", {"max_new_tokens": 2000, "ignore_eos": True})
        next(stream)
    with pytest.raises(EngineClosed):
        list(stream)
    engine.shutdown()
    with pytest.raises(EngineClosed):
        engine.generate("hi")
    assert not any(thread.name == "ramet-engine" and thread is engine._loop and thread.is_alive() for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, InvalidRequest, "exactly one"),
        ({"prompt": "a", "input_ids": [1]}, InvalidRequest, "exactly one"),
        ({"prompt": ""}, InvalidParams, "empty"),
        ({"prompt": 5}, InvalidParams, "string"),
        ({"prompt": ["a", ""]}, InvalidParams, "empty"),
        ({"input_ids": []}, InvalidRequest, "no tokens"),
        ({"input_ids": [1, -1]}, InvalidParams, "vocabulary"),
        ({"input_ids": [1, 10**6]}, InvalidParams, "vocabulary"),
        ({"input_ids": [1.5]}, InvalidParams, "integers"),
        ({"prompt": "a", "sampling_params": {"max_tokenz": 1}}, InvalidParams, "max_tokens"),
        ({"prompt": "a", "sampling_params": {"temperature": float("nan")}}, InvalidParams, "finite"),
        ({"prompt": "a", "sampling_params": {"top_p": 0}}, InvalidParams, "top_p"),
        ({"prompt": "a", "sampling_params": {"max_new_tokens": -1}}, InvalidParams, "at least 0"),
        ({"prompt": "a", "sampling_params": {"min_new_tokens": 5, "max_new_tokens": 4}}, InvalidParams, "min_new_tokens"),
        ({"prompt": "a", "sampling_params": {"stop_regex": "("}}, InvalidParams, "regular expression"),
        ({"prompt": "a", "sampling_params": {"logit_bias": {"100000": 1}}}, InvalidParams, "vocabulary"),
        ({"prompt": "a", "sampling_params": {"stop_token_ids": [100_000]}}, InvalidParams, "vocabulary"),
        ({"prompt": "a", "return_logprob": True, "token_ids_logprob": [1, 100_000]}, InvalidParams, "vocabulary"),
        ({"prompt": "a", "sampling_params": {"stop": [1]}}, InvalidParams, "stop"),
        ({"prompt": "a", "sampling_params": {"beam_width": 2}}, UnsupportedFeature, "beam"),
        ({"prompt": "a", "sampling_params": [{}, {}]}, InvalidParams, "2 entries for 1"),
        ({"prompt": "a", "sampling_params": "hot"}, InvalidParams, "sampling_params"),
        ({"prompt": "a", "image_data": "x.png"}, UnsupportedFeature, "image_data"),
        ({"prompt": "a", "colour": 1}, InvalidParams, "unknown argument"),
        ({"prompt": "a", "return_logprob": True, "logprob_start_len": 50}, InvalidParams, "beyond the prompt"),
        ({"prompt": "a", "return_logprob": "yes"}, InvalidParams, "return_logprob"),
        ({"prompt": ["a", "b"], "rid": "one"}, InvalidParams, "2 prompts"),
        ({"prompt": ["a", "b"], "rid": ["one", "one"]}, InvalidParams, "twice"),
        ({"prompt": "a", "priority": "high"}, InvalidParams, "priority"),
        ({"prompt": "a", "cache_salt": 7}, InvalidParams, "cache_salt"),
    ],
)
def test_refused(make_engine: MakeEngine, arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    engine = make_engine()
    with pytest.raises(error, match=message):
        engine.generate(**arguments)
    assert engine.get_server_info()["stats"]["num_requests"] == 0, "refused before anything is queued"


def test_one_bad_prompt_refuses_the_batch_and_harms_no_other(make_engine: MakeEngine) -> None:
    """Case FE-11 at the engine: the message has both lengths and the error is a ValueError."""
    engine = make_engine(context_len=50)
    with pytest.raises(ValueError, match=r"60 tokens.*49 tokens"):
        engine.generate(input_ids=[[5] * 60, [5] * 5])
    assert engine.generate(input_ids=[5] * 5, sampling_params={"max_new_tokens": 1})["output_ids"]


def test_the_queue_has_a_limit(make_engine: MakeEngine) -> None:
    """Case SC-09: each of fifty requests gets an answer; those beyond the limit an error at once."""
    engine = make_engine(max_running_requests=2, max_queued_requests=4)
    outcomes: list[str] = []

    def ask(i: int) -> None:
        try:
            engine.generate(input_ids=[i + 2], sampling_params={"max_new_tokens": 300, "ignore_eos": True})
            outcomes.append("ok")
        except RametError as error:
            assert "max_queued_requests" in str(error) and error.http_status == 429
            outcomes.append("full")

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(outcomes) == 50 and outcomes.count("ok") >= 6 and outcomes.count("full") > 0
    wait_until(lambda: not engine._core.has_work)


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="chunked_prefill_size"):
        Engine("x", chunked_prefil_size=5)
    with pytest.raises(ConfigError, match="at least 1"):
        Engine("x", max_total_tokens=0)
