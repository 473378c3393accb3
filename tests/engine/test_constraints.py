"""Every kind of constraint through engine and language, on logits that know nothing of it, and the handed cases of the engine."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
import torch

import ramet as sgl
from ramet import Engine
from ramet.constraint.compile import KINDS
from ramet.constraint.vocabulary import Vocabulary
from ramet.engine.constraints import JSON_KINDS, Constraints
from ramet.errors import ConfigError, InvalidConstraint, InvalidParams, InvalidRequest, RametError
from ramet.execute.scripted import ScriptedRunner
from ramet.params import SamplingParams
from ramet.tokenizer import Tokenizer, load_tokenizer

MakeEngine = Callable[..., Engine]

RX13 = ["Mt. Fuji", "C++ (17)", "a|b", "50% off?"]
JS17 = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["a"],
    "additionalProperties": False,
}
JS29 = (
    '{"type":"object","properties":{"ciudad_\\u00f1":{"enum":["caf\\u00e9","\\u6771\\u4eac","\\ud83d\\ude42"]}},'
    '"required":["ciudad_\\u00f1"],"additionalProperties":false}'
)
JF07 = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}


def is_js17(text: str) -> bool:
    value = json.loads(text)
    return list(value) == ["a"] and value["a"] in range(10)


@pytest.mark.parametrize(
    ("constraint", "is_right"),
    [
        ({"regex": "[a-f]{4}"}, re.compile("[a-f]{4}").fullmatch),
        ({"choices": RX13}, RX13.__contains__),
        ({"json_schema": JS17}, is_js17),
        ({"json_schema": json.dumps(JS17)}, is_js17),
        ({"ebnf": 'root ::= [0-9] [0-9] "-" ("x" | "y")'}, re.compile("[0-9]{2}-[xy]").fullmatch),
        ({"lark": 'start: /[0-9]{2}/ "-" ("x" | "y")'}, re.compile("[0-9]{2}-[xy]").fullmatch),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_every_kind_holds_on_any_logits(make_engine: MakeEngine, constraint: dict[str, Any], is_right: Callable[[str], object]) -> None:
    params = [{**constraint, "seed": seed, "temperature": 1.5, "max_new_tokens": 100} for seed in range(8)]
    replies = make_engine().generate(["Say: "] * 8, params)
    for reply in replies:
        assert is_right(reply["text"]), reply["text"]
        assert reply["meta_info"]["finish_reason"]["type"] == "stop"
    assert len({reply["text"] for reply in replies}) > 1


@dataclasses.dataclass
class Point:
    x: int
    is_far: bool


def model_of_a_point() -> Any:
    pydantic = pytest.importorskip("pydantic")
    return pydantic.create_model("Point", x=(int, ...), is_far=(bool, ...))


def is_point(text: str) -> bool:
    return {name: type(value) for name, value in json.loads(text).items()} == {"x": int, "is_far": bool}


def test_a_schema_may_be_a_pydantic_model(make_engine: MakeEngine) -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += "Say: " + sgl.gen("a", json_schema=model_of_a_point())

    engine = make_engine()
    for state in program.run_batch([{}] * 4, backend=engine, temperature=1.0):
        assert is_point(state["a"]), state["a"]
    assert is_point(engine.generate("x", {"json_schema": model_of_a_point(), "seed": 1})["text"])


@pytest.mark.parametrize(
    ("constraint", "is_right"),
    [
        ({"json_schema": JS17}, is_js17),
        (
            {"json_schema": Point},
            is_point,
        ),
        ({"ebnf": 'root ::= "ab" | "cd"'}, ["ab", "cd"].__contains__),
        ({"lark": 'start: "ab" | "cd"'}, ["ab", "cd"].__contains__),
        ({"regex": "[ab]{3}"}, re.compile("[ab]{3}").fullmatch),
        ({"dtype": bool}, ["True", "False"].__contains__),
        ({"dtype": int, "max_tokens": 9}, int),
        ({"dtype": float, "max_tokens": 9}, lambda text: isinstance(float(text), float)),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "holds",
)
@pytest.mark.parametrize("is_streaming", [False, True])
def test_programs_hold_constraints(
    make_engine: MakeEngine, constraint: dict[str, Any], is_right: Callable[[str], object], is_streaming: bool
) -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += "Say: " + sgl.gen("a", **{"max_tokens": 200, **constraint})

    state = program.run(backend=make_engine(), temperature=0, stream=is_streaming)
    assert is_right(state["a"]) is not False, state["a"]
    assert state.text() == "Say: " + state["a"]


def test_a_tag_holds_what_it_begins(make_engine: MakeEngine, byte_tokenizer: Tokenizer) -> None:
    begin, end = "<call=f>", "</call>"
    tag = {"type": "structural_tag", "structures": [{"begin": begin, "schema": JS17, "end": end}], "triggers": ["<call="]}
    prompt_len = len(byte_tokenizer.encode("Do it. "))
    free = byte_tokenizer.encode("Now <call=")

    def next_id(tokens: Sequence[int]) -> int | None:
        done = len(tokens) - prompt_len
        if 0 <= done < len(free):
            return free[done]
        return byte_tokenizer.eos_token_ids[0] if end in byte_tokenizer.decode(tokens[prompt_len:]) else None

    @sgl.function
    def program(s: Any) -> None:
        s += "Do it. " + sgl.gen("a", structural_tag=tag)

    for state in program.run_batch([{}] * 3, backend=make_engine(next_id), temperature=1.5):
        text = state["a"]
        assert text.startswith("Now " + begin) and text.endswith(end)
        assert is_js17(text.removeprefix("Now " + begin).removesuffix(end))


def test_a_string_has_its_quotes(make_engine: MakeEngine, say: Callable[..., Any]) -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += "Name: " + sgl.gen_string("a") + "."

    state = program.run(backend=make_engine(say("Name: ", '"Ada 9" said')), temperature=0)
    assert state["a"] == '"Ada 9"' and json.loads(state["a"]) == "Ada 9" and state.text() == 'Name: "Ada 9".'


@pytest.mark.parametrize("wanted", RX13)
def test_rx_13_every_option_can_be_reached(make_engine: MakeEngine, say: Callable[..., Any], wanted: str) -> None:
    @sgl.function
    def program(s: Any, exact: bool) -> None:
        s += "Who? " + sgl.gen("who", choices=RX13, exact=exact)

    engine = make_engine(say("Who? ", wanted))
    for exact in (False, True):
        state = program.run(exact, backend=engine)
        assert state["who"] == wanted and state.text() == "Who? " + wanted
    assert engine.generate("Who? ", {"choices": RX13, "temperature": 0})["text"] == wanted


def test_js_26_what_is_no_schema_is_an_error_of_its_caller(make_engine: MakeEngine) -> None:
    engine = make_engine()
    for schema, error in (
        ("not json", InvalidConstraint),
        (5, InvalidParams),
        ({"type": "object", "properties": {"a": {"type": "foo"}}}, InvalidConstraint),
    ):
        with pytest.raises(error) as caught:
            engine.generate("x", {"json_schema": schema})
        assert isinstance(caught.value, InvalidRequest) and caught.value.http_status == 400
    assert engine.get_server_info()["stats"]["num_requests"] == 0
    assert engine.generate("x", {"max_new_tokens": 3, "ignore_eos": True})["meta_info"]["completion_tokens"] == 3


@pytest.mark.parametrize("kind", ["regex", "json_schema", "ebnf", "lark", "structural_tag"])
@pytest.mark.parametrize("text", ["(", "\0", "\ud800", "{" * 50_000, "[[[", '{"a": ', "::= ::=", "start: ("])
def test_garbage_is_a_typed_error_and_the_engine_lives(make_engine: MakeEngine, kind: str, text: str) -> None:
    engine = make_engine()
    try:
        engine.generate("x", {kind: text, "max_new_tokens": 2})
    except RametError as error:
        assert isinstance(error, InvalidRequest), error
    else:
        assert kind == "regex" and re.compile(text), "most of these are patterns"
    assert engine.generate("x", {"max_new_tokens": 2, "ignore_eos": True})["meta_info"]["completion_tokens"] == 2


def test_rx_19_masks_stay_in_their_rows(make_engine: MakeEngine) -> None:
    free = {"temperature": 0, "max_new_tokens": 30, "ignore_eos": True}
    alone = {prompt: make_engine().generate(prompt, free)["output_ids"] for prompt in ("B", "D")}
    bound = {"A": {"regex": "[0-9]{6}", "temperature": 0}, "C": {"regex": "[a-f]{6}", "temperature": 0}}
    long = {**free, "max_new_tokens": 800}
    long_alone = make_engine().generate("long", long)["output_ids"]

    engine = make_engine()
    stream = engine.stream("long", long)
    next(stream)
    for round_number in range(6):  # joining and leaving while another request runs
        prompts = ["A", "B", "C", "D"][round_number % 4 :] + ["A", "B", "C", "D"][: round_number % 4]
        leaving = engine.stream("leaves", {"regex": "[xyz]{100}", "temperature": 0})
        next(leaving)
        replies = dict(zip(prompts, engine.generate(prompts, [bound.get(prompt, free) for prompt in prompts]), strict=True))
        leaving.close()
        assert re.fullmatch("[0-9]{6}", replies["A"]["text"]) and re.fullmatch("[a-f]{6}", replies["C"]["text"])
        assert {prompt: replies[prompt]["output_ids"] for prompt in ("B", "D")} == alone
    assert engine.get_server_info()["stats"]["max_running"] >= 6
    assert list(stream)[-1]["output_ids"] == long_alone


def test_rx_23_padded_ids_are_never_drawn(byte_tokenizer: Tokenizer) -> None:
    runner = ScriptedRunner(512, lambda tokens: 505)
    with Engine(runner=runner, tokenizer=byte_tokenizer) as engine:
        bound = engine.generate("x", {"regex": "[ab]{4}", "temperature": 0})
        free = engine.generate("x", {"temperature": 1.0, "seed": 1, "max_new_tokens": 50, "ignore_eos": True})
    assert re.fullmatch("[ab]{4}", bound["text"])
    assert max(bound["output_ids"] + free["output_ids"]) < byte_tokenizer.vocab_size


@pytest.mark.parametrize(("max_tokens", "num_digits", "reason"), [(32, 8, "stop"), (3, 3, "length")])
def test_rx_25_no_end_before_the_pattern_is_complete(
    make_engine: MakeEngine, byte_tokenizer: Tokenizer, max_tokens: int, num_digits: int, reason: str
) -> None:
    (eos,) = byte_tokenizer.eos_token_ids
    reply = make_engine().generate("x", {"regex": r"\d{8}", "logit_bias": {eos: 100}, "max_tokens": max_tokens})
    assert re.fullmatch(rf"\d{{{num_digits}}}", reply["text"])
    assert reply["meta_info"]["finish_reason"]["type"] == reason


@pytest.mark.parametrize("whitespace", JSON_KINDS)
def test_js_17_blanks_never_go_on_for_ever(make_engine: MakeEngine, byte_tokenizer: Tokenizer, whitespace: str) -> None:
    blank = [
        i for i in range(byte_tokenizer.vocab_size) if i not in byte_tokenizer.special_ids and not byte_tokenizer.token_bytes(i).strip()
    ]
    assert byte_tokenizer.encode(" ")[0] in blank
    params = {"json_schema": JS17, "logit_bias": {i: 100 for i in blank}, "max_tokens": 200}
    engine = make_engine(json_whitespace=whitespace)
    for seed in range(4):
        reply = engine.generate("x", {**params, "seed": seed})
        assert reply["meta_info"]["finish_reason"]["type"] == "stop" and is_js17(reply["text"])
        assert (" " in reply["text"]) == (whitespace != "compact")
        assert max(len(run) for run in re.findall(r"\s*", reply["text"])) <= 8


def test_js_29_escapes_in_a_schema_are_characters(make_engine: MakeEngine) -> None:
    params = [{"json_schema": JS29, "seed": seed, "temperature": 1.5} for seed in range(12)]
    replies = make_engine().generate(["x"] * 12, params)
    assert all("?" not in reply["text"] for reply in replies)
    values = {json.loads(reply["text"])["ciudad_ñ"] for reply in replies}
    assert len(values) > 1 and values <= {"café", "東京", "🙂"}


@pytest.fixture
def marked_tokenizer(tmp_path: Path) -> Tokenizer:
    """Words with a mark for the blank before them, as of SentencePiece; decoding takes the first blank away."""
    marks = "\u2581"
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), marks, *'{":truefals}a', marks + "{", ":" + marks, '{"']
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(words))}
    merges = [(marks, "{"), (":", marks), ("{", '"')]
    model = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    model.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.Prepend(marks), tokenizers.normalizers.Replace(" ", marks)])
    decoders = tokenizers.decoders
    model.decoder = decoders.Sequence([decoders.Replace(marks, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    model.add_special_tokens(["<unk>", "<s>", "</s>"])
    model.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    model.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    return load_tokenizer(tmp_path)


@pytest.mark.parametrize("constraint", [{"json_schema": JF07}, {"regex": r'\{"a": (true|false)\}'}], ids=["json_schema", "regex"])
def test_jf_07_the_first_character_is_there(marked_tokenizer: Tokenizer, constraint: dict[str, Any]) -> None:
    runner = ScriptedRunner(marked_tokenizer.vocab_size, lambda tokens: None)
    with Engine(runner=runner, tokenizer=marked_tokenizer) as engine:
        for prompt in ([1], marked_tokenizer.encode("Say "), marked_tokenizer.encode("Say")):
            for seed in range(3):
                params = {**constraint, "seed": seed, "temperature": 1.5}
                text = engine.generate(input_ids=prompt, sampling_params=params)["text"]
                assert json.loads(text)["a"] in (True, False) and text.startswith("{")
                assert list(engine.stream(input_ids=prompt, sampling_params=params))[-1]["text"] == text


def test_exact_select_is_the_product_over_the_tree(make_engine: MakeEngine, byte_tokenizer: Tokenizer) -> None:
    choices = ["yes", "yes, please", "yesterday", "no", "nobody", "maybe"]
    prompt, width = "Answer:", byte_tokenizer.vocab_size
    runner = ScriptedRunner(width, lambda tokens: None)
    start = len(byte_tokenizer.encode(prompt))

    def logprob(tokens: Sequence[int], start: int) -> float:
        rows = [torch.log_softmax(torch.from_numpy(runner._logits(list(tokens[:i]))), 0)[tokens[i]] for i in range(start, len(tokens))]
        return float(sum(rows))

    ids = {choice: byte_tokenizer.encode(prompt + choice) for choice in choices}
    mass = {choice: math.exp(logprob(tokens, start)) for choice, tokens in ids.items()}
    exact = dict(mass)
    for short in choices:  # the mass of what goes on to another option, no option between
        for long in choices:
            if long != short and ids[long][: len(ids[short])] == ids[short]:
                exact[short] -= mass[long]
    assert exact["yes"] < mass["yes"], "the test nests options"

    @sgl.function
    def program(s: Any) -> None:
        s += prompt + sgl.select("a", choices, exact=True)

    state = program.run(backend=make_engine())
    meta = state.get_meta_info("a")
    assert [math.exp(value) for value in meta["choice_logprobs"]] == pytest.approx([exact[choice] for choice in choices], rel=1e-4)
    assert meta["choice_probabilities"] == pytest.approx([exact[choice] / sum(exact.values()) for choice in choices], rel=1e-4)
    assert state["a"] == max(choices, key=exact.__getitem__)


def test_a_longer_option_can_win(make_engine: MakeEngine, say: Callable[..., Any]) -> None:
    @sgl.function
    def program(s: Any) -> None:
        s += "Answer:" + sgl.select("a", ["yes", "yes, please"], exact=True)

    assert program.run(backend=make_engine(say("Answer:", "yes, please")))["a"] == "yes, please"
    assert program.run(backend=make_engine(say("Answer:", "yes indeed")))["a"] == "yes"


def test_a_constraint_is_compiled_once_and_by_its_caller(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_regex, threads = KINDS.get("regex"), []

    def spy(source: Any, vocabulary: Any) -> Any:
        threads.append(threading.current_thread())
        return compile_regex(source, vocabulary)

    monkeypatch.setitem(KINDS._rows, "regex", spy)
    engine = make_engine()
    for _ in range(2):
        engine.generate(["x", "y"], {"regex": "[ab]{3}", "n": 2})
    assert threads == [threading.current_thread()]


@pytest.fixture
def spied_kinds(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Kinds that record what they are asked for and compile nothing."""
    seen: list[tuple[str, str]] = []

    def spy(source: Any, vocabulary: Any) -> Any:
        seen.append((source.kind, source.text))
        return SimpleNamespace(num_bytes=0)

    for kind in KINDS.names():
        monkeypatch.setitem(KINDS._rows, kind, spy)
    return seen


@pytest.mark.parametrize("whitespace", JSON_KINDS)
def test_kinds_and_white_space(spied_kinds: list[tuple[str, str]], whitespace: str) -> None:
    constraints = Constraints(lambda: Vocabulary([b"a"], eos_ids=()), json_whitespace=whitespace)
    assert constraints.compile(SamplingParams()) is None
    text = '["a"]'
    fields: dict[str, Any] = {"regex": text, "json_schema": text, "ebnf": text, "lark": text, "structural_tag": text, "choices": ("a",)}
    made = [constraints.compile(SamplingParams(**{name: value})) for name, value in fields.items()]
    assert len(set(map(id, made))) == len(fields), "the kind tells equal texts apart"
    json_kind = {"fixed": "json_schema", "compact": "json_schema_compact", "flexible": "json_schema_flexible"}[whitespace]
    assert [kind for kind, _ in spied_kinds] == ["regex", json_kind, "ebnf", "lark", "structural_tag", "choice"]
    assert constraints.compile(SamplingParams(ebnf=text)) is made[2]


def test_unknown_white_space_is_our_fault() -> None:
    with pytest.raises((AssertionError, ConfigError)):
        Constraints(lambda: Vocabulary([b"a"], eos_ids=()), json_whitespace="loose")
