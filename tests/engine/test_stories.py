"""A real little model: the text never depends on batch, chunk size, cache or retraction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ramet import Engine

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "models" / "stories260k"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the shared model stories260k is not beside the checkout")

PROMPTS = [
    "Once upon a time",
    "Once upon a time, there was a little girl named Lily.",
    "Once upon a time, there was a little girl named Lily. She had a",
    "One day, Tom and",
    "The dog was very",
    "One day, Tom and his dog",
    "Lily",
]
PARAMS: dict[str, Any] = {"temperature": 0, "max_new_tokens": 40}


def engine(**options: Any) -> Engine:
    return Engine(str(FOLDER), dtype="float32", num_threads=1, **{"max_total_tokens": 4096, **options})


@pytest.fixture(scope="module")
def plain() -> list[tuple[str, list[int]]]:
    """Each prompt alone, nothing cached, no chunks."""
    with engine(disable_radix_cache=True, max_running_requests=1) as alone:
        replies = [alone.generate(prompt, PARAMS) for prompt in PROMPTS]
    assert all(len(reply["text"]) > 20 for reply in replies)
    return [(reply["text"], reply["output_ids"]) for reply in replies]


@pytest.fixture(scope="module")
def warm() -> Iterator[Engine]:
    with engine() as one:
        yield one


@pytest.mark.parametrize("chunk", [1, 5, 2048])
@pytest.mark.parametrize("batch", [1, 2, 7])
def test_batches_and_chunks(plain: list[tuple[str, list[int]]], batch: int, chunk: int) -> None:
    with engine(max_running_requests=batch, chunked_prefill_size=chunk) as one:
        cold = one.generate(PROMPTS, PARAMS)
        hot = one.generate(PROMPTS, PARAMS)
    for replies in (cold, hot):
        assert [(reply["text"], reply["output_ids"]) for reply in replies] == plain
    assert all(reply["meta_info"]["cached_tokens"] == reply["meta_info"]["prompt_tokens"] - 1 for reply in hot)


def test_too_little_memory_changes_no_text(plain: list[tuple[str, list[int]]]) -> None:
    with engine(max_total_tokens=130) as tight:
        replies = tight.generate(PROMPTS, PARAMS)
        assert tight.get_server_info()["stats"]["num_retractions"] > 0
    assert [(reply["text"], reply["output_ids"]) for reply in replies] == plain


def test_streamed_text(plain: list[tuple[str, list[int]]], warm: Engine) -> None:
    for prompt, (text, _) in zip(PROMPTS, plain, strict=True):
        assert list(warm.stream(prompt, PARAMS))[-1]["text"] == text


def test_prompt_logprobs_do_not_depend_on_the_cache(warm: Engine) -> None:
    def values(one: Engine) -> list[float]:
        meta = one.generate(PROMPTS[2], {"max_new_tokens": 0}, return_logprob=True, logprob_start_len=1)["meta_info"]
        return [value[0] for value in meta["input_token_logprobs"]]

    with engine(disable_radix_cache=True, chunked_prefill_size=3) as cold:
        expected = values(cold)
    assert values(warm) == pytest.approx(expected, abs=1e-4) == values(warm)


def test_an_engine_takes_the_models_end_of_text() -> None:
    with engine() as one:
        assert one._core._eos_ids == (1, 2), "the tokenizer's and the generation config's"
