"""The engine as a backend: what is sent, what comes back, and one wrapper an engine."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import ramet as sgl
from ramet.errors import InvalidParams, PromptTooLong, StreamFailed
from ramet.lang.backends.engine import EngineBackend
from ramet.lang.connect import as_backend
from ramet.lang.sampling import REGEX_FLOAT, REGEX_INT
from ramet.params import CONSTRAINT_FIELDS


@sgl.function
def branching(s: Any) -> None:
    s += "root "
    s += sgl.gen("a")
    forks = s.fork(3)
    forks += sgl.gen("b")
    inner = forks[0].copy()
    with inner as c:
        c += sgl.gen("c")
    forks.join()
    s += sgl.gen("d")


def test_siblings_share_a_group_and_the_prefix_is_committed_first(fake_engine: Any) -> None:
    engine = fake_engine()
    branching.run(backend=engine, temperature=0).sync()
    groups = {}
    for _, prompt, arguments in engine.calls:
        groups.setdefault(arguments["group_id"], []).append(prompt)
    assert len(groups.pop(None)) == 2  # before the fork and after the join
    assert [len(prompts) for prompts in groups.values()] == [4]  # three siblings, and the copy of one of them
    assert engine.prefixes == ["root one two three four"]


def test_sampling_reaches_the_engine_as_its_raw_parameters(fake_engine: Any) -> None:
    engine = fake_engine(chat_template_name="chatml")

    @sgl.function
    def program(s: Any) -> None:
        s += "x" + sgl.gen("a", max_tokens=5, stop=["END"], top_k=3, return_logprob=True, top_logprobs_num=2)

    program.run(backend=engine, temperature=0.5, ignore_eos=True, stop="RUN").sync()
    (_, _, arguments), params = engine.calls[0], engine.calls[0][2]["params"]
    assert params["max_new_tokens"] == 5 and params["top_k"] == 3 and params["temperature"] == 0.5 and params["ignore_eos"] is True
    assert params["stop"] == ["END", "<|im_end|>"]
    assert params["skip_special_tokens"] is True and params["spaces_between_special_tokens"] is True
    assert arguments["return_logprob"] is True and arguments["top_logprobs_num"] == 2 and "logprob_start_len" not in arguments


def test_special_token_settings_are_honoured(fake_engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sgl.global_config.__dict__, "skip_special_tokens_in_output", False)
    engine = fake_engine()
    branching.run(backend=engine).sync()
    assert engine.calls[0][2]["params"]["skip_special_tokens"] is False


@pytest.mark.parametrize(
    ("constraint", "sent"),
    [
        ({}, {}),
        ({"regex": "[0-9]+"}, {"regex": "[0-9]+"}),
        ({"dtype": int}, {"regex": REGEX_INT}),
        ({"dtype": "float"}, {"regex": REGEX_FLOAT}),
        ({"json_schema": {"type": "object"}}, {"json_schema": '{"type": "object"}'}),
        ({"json_schema": "{}"}, {"json_schema": "{}"}),
        ({"ebnf": 'root ::= "a"'}, {"ebnf": 'root ::= "a"'}),
        ({"lark": 'start: "a"'}, {"lark": 'start: "a"'}),
        ({"structural_tag": {"type": "structural_tag"}}, {"structural_tag": '{"type": "structural_tag"}'}),
    ],
)
@pytest.mark.parametrize("is_streaming", [False, True])
def test_constraints_are_handed_to_the_engine(
    fake_engine: Any, constraint: dict[str, Any], sent: dict[str, str], is_streaming: bool
) -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += "x" + sgl.gen("a", **constraint)

    engine = fake_engine()
    program.run(backend=engine, stream=is_streaming).sync()
    params = engine.calls[0][2]["params"]
    assert {name: params[name] for name in CONSTRAINT_FIELDS if name in params} == sent
    assert params["stop"] == ([" ", "\n"] if constraint.get("dtype") in (int, "float") else [])


def test_unconditional_scores_are_asked_for_only_when_needed(fake_engine: Any) -> None:
    engine = fake_engine(scores={"x": [-1.0], "y": [-2.0]})

    @sgl.function
    def program(s: Any) -> None:
        s += sgl.select("a", ["x", "y"])
        s += sgl.select("b", ["x", "y"], choices_method=sgl.unconditional_likelihood_normalized)
        s += sgl.select("c", ["x", "y"], exact=True)

    state = program.run(backend=engine)
    assert state["a"] == state["b"] == state["c"] == "x"
    assert [call[2]["unconditional"] for call in engine.calls] == [False, True, False]
    assert state.get_meta_info("a")["normalized_prompt_logprobs"] == [-1.0, -2.0]


def test_errors_of_the_engine_are_the_cause(fake_engine: Any) -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += "too many words for this context" + sgl.gen("a")

    state = program.run(backend=fake_engine(context_len=3))
    with pytest.raises(StreamFailed, match="6 tokens.*3 tokens") as caught:
        state["a"]
    assert isinstance(caught.value.__cause__, PromptTooLong)


def test_an_engine_is_wrapped_once(fake_engine: Any) -> None:
    engine = fake_engine()
    first = as_backend(engine)
    assert isinstance(first, EngineBackend) and as_backend(engine) is first and as_backend(first) is first
    sgl.set_default_backend(engine)
    assert sgl.global_config.default_backend is first
    assert sgl.get_server_info()["model_name"] == "fake" and sgl.flush_cache() is True
    other = as_backend(fake_engine())
    assert other is not first
    del other
    gc.collect()
    first.shutdown()
    assert engine.is_shut_down


@pytest.mark.parametrize("thing", [5, "engine", object()])
def test_other_things_are_no_backend(thing: object) -> None:
    with pytest.raises(InvalidParams, match="must be a backend or an Engine"):
        as_backend(thing)


def test_the_template_comes_from_the_name_when_none_is_configured(fake_engine: Any) -> None:
    assert EngineBackend(fake_engine(model_name="models/SmolLM2-135M-Instruct")).get_chat_template().name == "chatml"
    assert EngineBackend(fake_engine(chat_template_name="qwen")).get_chat_template().name == "qwen"
