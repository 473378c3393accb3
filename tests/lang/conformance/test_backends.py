"""One suite for every backend. A new one is one more entry of `BACKENDS`.

An entry makes a backend that answers every gen with "one two three four" and likes the option "good" better than any other. A model that
cannot be told what to say fits too: then only the properties that do not name the words hold (`is_scripted=False`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import ramet as sgl
from ramet.errors import UnsupportedNode
from ramet.lang.backends.base import BaseBackend
from ramet.lang.backends.engine import EngineBackend
from ramet.lang.backends.scripted import ScriptedBackend
from ramet.lang.choices import exact_likelihood, greedy_token_selection, token_length_normalized, unconditional_likelihood_normalized
from ramet.lang.prompt import Prompt
from ramet.lang.sampling import SglSamplingParams

ANSWER = "one two three four"


@dataclass(frozen=True)
class Subject:
    """A backend under test."""

    backend: BaseBackend
    is_scripted: bool = True


def _scripted(fake_engine: Any) -> Subject:
    return Subject(
        ScriptedBackend(lambda prompt, params: ANSWER, choices=lambda prompt, choices: "good" if "good" in choices else choices[0])
    )


def _engine(fake_engine: Any) -> Subject:
    return Subject(EngineBackend(fake_engine(lambda prompt: ANSWER, scores={"good": [-0.5, -0.5]})))


def _real_engine(alphabet_engine: Any) -> Subject:
    return Subject(EngineBackend(alphabet_engine()), is_scripted=False)


# How a subject is made, and the fixture that it is made of.
BACKENDS: dict[str, tuple[Callable[[Any], Subject], str]] = {
    "scripted": (_scripted, "fake_engine"),
    "engine": (_engine, "fake_engine"),
    "real engine": (_real_engine, "alphabet_engine"),
}


@pytest.fixture(params=sorted(BACKENDS))
def subject(request: pytest.FixtureRequest) -> Subject:
    make, fixture = BACKENDS[request.param]
    return make(request.getfixturevalue(fixture))


PROMPT = Prompt("Count: ", name="x", stream_id="s")


def test_one_sample_is_a_text_with_meta_info(subject: Subject) -> None:
    text, meta = subject.backend.generate(PROMPT, SglSamplingParams(temperature=0))
    assert isinstance(text, str) and isinstance(meta, dict)
    assert {"id", "finish_reason", "prompt_tokens", "completion_tokens", "cached_tokens"} <= set(meta)
    assert meta["finish_reason"]["type"] in ("stop", "length")
    if subject.is_scripted:
        assert text == ANSWER


def test_n_samples_are_lists(subject: Subject) -> None:
    texts, metas = subject.backend.generate(PROMPT, SglSamplingParams(n=3))
    assert isinstance(texts, list) and isinstance(metas, list)
    assert len(texts) == len(metas) == 3


def test_the_stream_joins_to_the_text(subject: Subject) -> None:
    params = SglSamplingParams(temperature=0, max_new_tokens=3)
    whole, _ = subject.backend.generate(PROMPT, params)
    pieces = list(subject.backend.generate_stream(PROMPT, params))
    assert "".join(delta for delta, _ in pieces) == whole
    assert pieces[-1][1]["finish_reason"] is not None
    assert all(meta["finish_reason"] is None for _, meta in pieces[:-1])
    if subject.is_scripted:
        assert len(pieces) == 3


def test_max_new_tokens_and_stop_shorten(subject: Subject) -> None:
    short, _ = subject.backend.generate(PROMPT, SglSamplingParams(temperature=0, max_new_tokens=2))
    whole, _ = subject.backend.generate(PROMPT, SglSamplingParams(temperature=0))
    assert whole.startswith(short) and len(short) < len(whole)
    if subject.is_scripted:
        assert subject.backend.generate(PROMPT, SglSamplingParams(stop=("three",)))[0].strip() == "one two"


@pytest.mark.parametrize("method", [token_length_normalized, greedy_token_selection, unconditional_likelihood_normalized, exact_likelihood])
def test_select_gives_an_option_and_the_scores_of_all(subject: Subject, method: Any) -> None:
    decision = subject.backend.select(PROMPT, ["bad", "good", "ugly"], 0.0, method)
    assert decision.decision in ("bad", "good", "ugly")
    assert len(decision.meta_info["normalized_prompt_logprobs"]) == 3
    assert [len(tokens) > 0 for tokens in decision.meta_info["input_token_logprobs"]] == [True] * 3
    if subject.is_scripted and method is not unconditional_likelihood_normalized:
        assert decision.decision == "good"


def test_programs_run(subject: Subject) -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += "Q: "
        s += sgl.gen("a", max_tokens=2)
        forks = s.fork(2)
        forks += sgl.select("c", choices=["bad", "good"])
        forks.join()

    states = program.run_batch([{}, {}], backend=subject.backend, temperature=0)
    for state in states:
        assert state.text() == "Q: " + state["a"]
        assert len(state["c"]) == 2 and state["c"][0] == state["c"][1]


def test_streaming_and_whole_programs_agree(subject: Subject) -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += sgl.user("hi")
        s += sgl.assistant(sgl.gen("a", max_tokens=3))

    whole = program.run(backend=subject.backend, temperature=0)
    streamed = program.run(backend=subject.backend, temperature=0, stream=True)
    assert "".join(streamed.text_iter()) == whole.text()
    assert streamed["a"] == whole["a"]


def test_prefixes_can_be_cached_and_flushed(subject: Subject) -> None:
    subject.backend.cache_prefix("a prefix")
    subject.backend.commit_lazy_operations(PROMPT)
    assert subject.backend.flush_cache() is True
    assert subject.backend.get_server_info()["model_name"] == subject.backend.get_model_name()
    assert subject.backend.get_chat_template().name


def test_what_it_cannot_run_names_node_and_backend(subject: Subject) -> None:
    with pytest.raises(UnsupportedNode, match=rf"{subject.backend.name} cannot run Image\('a.png'\)"):
        subject.backend.fill_image(PROMPT, sgl.image("a.png"))
    with pytest.raises(UnsupportedNode, match="position_ids_offset"):
        subject.backend.fork_program(PROMPT, PROMPT, [1])
