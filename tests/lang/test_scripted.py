"""The scripted backend itself: scripts of every kind, what is honoured, what is recorded."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ramet.errors import InvalidParams, ProgramError, UnsupportedNode
from ramet.lang.backends.scripted import ScriptedBackend
from ramet.lang.choices import token_length_normalized, unconditional_likelihood_normalized
from ramet.lang.prompt import Prompt
from ramet.lang.sampling import SglSamplingParams
from ramet.messages import ChoiceScore


def ask(backend: ScriptedBackend, text: str = "", name: str | None = "x", **params: Any) -> Any:
    """The text of one call."""
    return backend.generate(Prompt(text, name=name), SglSamplingParams(**params))[0]


def test_scripts_by_order_name_pattern_and_function() -> None:
    assert [ask(in_order) for in_order in [ScriptedBackend(["a", "b"])] * 2] == ["a", "b"]
    table = ScriptedBackend({"x": ["first", "second"], "y": "always", re.compile(r"2\+2=$"): "4"})
    assert [ask(table), ask(table), ask(table, name="y"), ask(table, name="y")] == ["first", "second", "always", "always"]
    assert ask(table, "2+2=", name=None) == "4"
    assert ask(ScriptedBackend(lambda prompt, params: f"{prompt.text}{params.n}"), "p") == "p1"
    assert ask(ScriptedBackend({"x": lambda prompt, params: prompt.name})) == "x"


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ([], "the script is over: reply number 1"),
        ({"y": "a"}, "no reply for the variable 'x'"),
        ([5], "where 1 texts are wanted"),
        ([("a", "b")], "where 1 texts are wanted"),
        ([ProgramError("as written")], "as written"),
    ],
)
def test_scripts_that_do_not_answer(script: Any, what: str) -> None:
    with pytest.raises(ProgramError, match=what):
        ask(ScriptedBackend(script))


@pytest.mark.parametrize(
    ("params", "text", "reason"),
    [
        ({}, "one two three", {"type": "stop", "matched": None}),
        ({"max_new_tokens": 2}, "one two", {"type": "length", "length": 2}),
        ({"max_new_tokens": 3}, "one two three", {"type": "stop", "matched": None}),
        ({"max_new_tokens": 0}, "", {"type": "length", "length": 0}),
        ({"stop": ["three", "two"]}, "one ", {"type": "stop", "matched": "two"}),
        ({"stop": "three", "max_new_tokens": 2}, "one two", {"type": "length", "length": 2}),
        ({"stop_regex": "t[h]"}, "one two ", {"type": "stop", "matched": "th"}),
    ],
)
def test_lengths_and_stops(params: dict[str, Any], text: str, reason: dict[str, Any]) -> None:
    got, meta = ScriptedBackend(["one two three"]).generate(Prompt("a b"), SglSamplingParams(**params))
    assert isinstance(meta, dict)
    assert (got, meta["finish_reason"], meta["prompt_tokens"]) == (text, reason, 2)
    assert meta["completion_tokens"] == len(re.findall(r"\S+|\s+$", text)), "a blank at the end counts as a word"


def test_samples() -> None:
    backend = ScriptedBackend([("a", "b"), "c"])
    assert ask(backend, n=2) == ["a", "b"] and ask(backend, n=2) == ["c", "c"]


@pytest.mark.parametrize(
    ("reply", "params", "is_good"),
    [
        ("12", {"dtype": "int"}, True),
        ("x", {"dtype": "int"}, False),
        ("True", {"dtype": "bool"}, True),
        ('"a b"', {"dtype": "str"}, True),
        ("1.5", {"dtype": "float"}, True),
        ("ab", {"regex": "[ab]+"}, True),
        ("abc", {"regex": "[ab]+"}, False),
        ('{"a": 1}', {"json_schema": "{}"}, True),
        ("{", {"json_schema": "{}"}, False),
    ],
)
def test_a_reply_must_fit_its_constraint(reply: str, params: dict[str, Any], is_good: bool) -> None:
    if is_good:
        assert ask(ScriptedBackend([reply]), **params) == reply
    else:
        with pytest.raises(ProgramError, match="the scripted reply"):
            ask(ScriptedBackend([reply]), **params)


@pytest.mark.parametrize(
    "params",
    [{"ebnf": 'root ::= "a"'}, {"lark": 'start: "a"'}, {"structural_tag": "{}"}, {"regex": r"\p{Lu}"}],
    ids=lambda params: next(iter(params)),
)
def test_what_a_script_cannot_check_is_refused(params: dict[str, Any]) -> None:
    (name,) = params
    with pytest.raises(UnsupportedNode, match=rf"ScriptedBackend cannot run Gen\(.*{name}="):
        ask(ScriptedBackend(["a"]), **params)


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({"dtype": "int", "regex": "a"}, "regex='a': cannot be combined with dtype"),
        ({"dtype": "complex"}, "must be one of int, float, str, bool"),
        ({"json_schema": {}}, "must be a JSON text"),
        ({"ebnf": "a", "structural_tag": "{}"}, "structural_tag='{}': cannot be combined with ebnf"),
    ],
)
def test_values_of_a_call_are_checked_at_birth(params: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidParams, match=re.escape(what)):
        SglSamplingParams(**params)


def test_the_label_of_a_long_constraint_is_cut() -> None:
    label = SglSamplingParams(json_schema=" " * 1000 + "{}").constraint_label
    assert label is not None and label.startswith("json_schema='  ") and len(label) < 150
    assert SglSamplingParams(regex="a'b").constraint_label == 'regex="a\'b"' and SglSamplingParams().constraint_label is None


def test_logprobs_of_a_script_are_certain() -> None:
    params = SglSamplingParams(return_logprob=True, logprob_start_len=1, top_logprobs_num=1, return_text_in_logprobs=True)
    _, meta = ScriptedBackend(["c d"]).generate(Prompt("a b"), params)
    assert isinstance(meta, dict)
    assert meta["input_token_logprobs"] == [[0.0, 0, " b"]]
    assert meta["output_token_logprobs"] == [[0.0, 0, "c"], [0.0, 1, " d"]]
    assert meta["output_top_logprobs"] == [[[0.0, 0, "c"]], [[0.0, 1, " d"]]]
    _, plain = ScriptedBackend(["c d"]).generate(Prompt("a b"), SglSamplingParams(return_logprob=True))
    assert isinstance(plain, dict)
    assert plain["input_token_logprobs"] == [] and plain["output_token_logprobs"][0] == [0.0, 0, None]


def test_pieces_join_to_the_reply_and_share_the_latency() -> None:
    slept: list[float] = []
    backend = ScriptedBackend([" a  b\n"], latency_s=0.3, sleep=slept.append)
    pieces = list(backend.generate_stream(Prompt(""), SglSamplingParams()))
    assert [piece for piece, _ in pieces] == [" a", "  b", "\n"] and slept == pytest.approx([0.1] * 3)
    assert [meta["finish_reason"] is None for _, meta in pieces] == [True, True, False]
    assert list(ScriptedBackend([""]).generate_stream(Prompt(""), SglSamplingParams()))[0][0] == ""


@pytest.mark.parametrize(
    ("script", "winner"),
    [
        (None, "a"),
        (["b"], "b"),
        ({"x": "c"}, "c"),
        (lambda prompt, choices: choices[-1], "c"),
        ([[[-3.0], [-1.0, -1.0], [-2.0]]], "b"),
        ([[ChoiceScore((1,), (-3.0,), (-9.0,)), ChoiceScore((2,), (-1.0,), (-1.0,)), ChoiceScore((3,), (-2.0,), (-1.0,))]], "b"),
    ],
)
def test_choices(script: Any, winner: str) -> None:
    backend = ScriptedBackend(choices=script)
    decision = backend.select(Prompt("p", name="x"), ["a", "b", "c"], 0.0, token_length_normalized)
    assert decision.decision == winner and len(decision.meta_info["normalized_prompt_logprobs"]) == 3


def test_written_choices_win_by_every_method() -> None:
    backend = ScriptedBackend(choices={"x": "b"})
    assert backend.select(Prompt("", name="x"), ["a", "b"], 0.0, unconditional_likelihood_normalized).decision == "b"


@pytest.mark.parametrize(
    ("script", "what"),
    [(["z"], "not among"), ([[[-1.0]]], "scores 1 options, there are 2"), ([ProgramError("as written")], "as written")],
)
def test_choices_that_are_none(script: Any, what: str) -> None:
    with pytest.raises(ProgramError, match=what):
        ScriptedBackend(choices=script).select(Prompt(""), ["a", "b"], 0.0, token_length_normalized)


def test_every_call_is_recorded() -> None:
    backend = ScriptedBackend(["a", "b"])
    ask(backend, "p")
    list(backend.generate_stream(Prompt("q", group_id="g"), SglSamplingParams()))
    backend.select(Prompt("r"), ["a"], 0.0, token_length_normalized)
    backend.cache_prefix("prefix")
    assert [(call.kind, call.prompt.text) for call in backend.calls] == [
        ("generate", "p"),
        ("stream", "q"),
        ("select", "r"),
        ("cache_prefix", "prefix"),
    ]
    assert backend.calls[1].prompt.group_id == "g" and backend.calls[2].choices == ("a",)
    assert backend.prefixes == ["prefix"] and backend.flush_cache() and backend.prefixes == []
    assert backend.get_server_info() == {"model_name": "scripted", "num_calls": 4}
