"""Nodes: joining them, their printed forms, and what is refused where it is written."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

import ramet as sgl
from ramet.errors import InvalidConstraint, InvalidParams, InvalidPattern, UnsupportedNode
from ramet.lang.choices import exact_likelihood
from ramet.lang.nodes import (
    Argument,
    CommitLazy,
    ConstantText,
    ExprList,
    Fork,
    Gen,
    GetForkItem,
    Join,
    Select,
    Variable,
    VarScopeBegin,
    VarScopeEnd,
)
from ramet.lang.settings import GlobalConfig


@dataclasses.dataclass
class Source:
    node_id: str = "7"


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (ConstantText("a'b\n"), 'Constant("a\'b\\n")'),
        (ConstantText("…"), "Constant('…')"),
        (Argument("q"), "Argument(name=q, value=None)"),
        (sgl.gen("a"), "Gen('a')"),
        (sgl.gen(), "Gen(None)"),
        (sgl.select("n", choices=["x", "y"]), "Select(n, choices=['x', 'y'])"),
        (sgl.image("a.png"), "Image('a.png')"),
        (sgl.video("a.mp4", 4), "Video('a.mp4', num_frames=4)"),
        (sgl.user_begin(), "RoleBegin(user)"),
        (sgl.assistant_end(), "RoleEnd(assistant)"),
        (VarScopeBegin("v"), "VarScopeBegin('v')"),
        (VarScopeEnd("v"), "VarScopeEnd('v')"),
        (Variable("x", Source()), "Variable('x', source=%7)"),
        (Fork(Source(), 3), "Fork(%7, number=3, position_ids_offset=None)"),
        (GetForkItem(Source(), 1), "GetForkItem(%7, index=1)"),
        (Join((Source("1"), Source("2"))), "Join(%1, %2, mode='gather_variable')"),
        (CommitLazy(), "CommitLazy()"),
        (sgl.user("hi"), "ExprList([RoleBegin(user), Constant('hi'), RoleEnd(user)])"),
    ],
)
def test_printed_forms(node: Any, text: str) -> None:
    assert repr(node) == text


def test_plus_works_on_both_sides_and_stays_flat() -> None:
    joined = "a" + sgl.gen("x") + "b" + (sgl.gen("y") + sgl.select("z", ["1"]))
    assert isinstance(joined, ExprList)
    assert [type(item) for item in joined] == [ConstantText, Gen, ConstantText, Gen, Select]
    with pytest.raises(TypeError):
        sgl.gen("x") + 5  # type: ignore[operator]
    with pytest.raises(TypeError):
        None + sgl.gen("x")  # type: ignore[operator]


def test_nodes_are_frozen_and_keep_the_callers_lists() -> None:
    stop, choices = ["a"], ["x", "y"]
    node, pick = sgl.gen("n", stop=stop), sgl.select("s", choices)
    stop.append("b")
    choices.append("z")
    assert node.stop == ("a",) and pick.choices == ("x", "y")  # type: ignore[union-attr]
    with pytest.raises(dataclasses.FrozenInstanceError):
        node.name = "m"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: sgl.gen("a", choices=[]), "at least one option"),
        (lambda: sgl.select("a", choices=[]), "at least one option"),
        (lambda: sgl.select("a"), "at least one option"),
        (lambda: sgl.select("a", choices="yes"), "at least one option"),
        (lambda: sgl.select("a", choices=["x", ""]), "not empty"),
        (lambda: sgl.select("a", choices=["x", 3]), "not 3"),
        (lambda: sgl.select("a", choices=["x"], temperature=0.7), "best-scored"),
        (lambda: sgl.select("a", choices=["x"], choices_method="greedy"), "ChoicesSamplingMethod"),
        (lambda: sgl.gen("a", choices=["x"], max_tokens=3), "no meaning for a choice"),
        (lambda: sgl.gen("a", choices_method=sgl.greedy_token_selection), "give choices"),
        (lambda: sgl.gen("a", dtype=int, regex="[0-9]"), "cannot be combined with dtype"),
        (lambda: sgl.gen("a", json_schema="{}", regex="[0-9]"), "cannot be combined"),
        (lambda: sgl.gen("a", dtype=list), "must be one of int, float, str, bool"),
        (lambda: sgl.gen("a", temperature=-1), "temperature=-1"),
        (lambda: sgl.gen("a", max_tokens=-1), "max_new_tokens=-1"),
        (lambda: sgl.gen("a", min_tokens=5, max_tokens=4), "min_new_tokens=5"),
        (lambda: sgl.gen("a", n=0), "n=0"),
        (lambda: sgl.gen("a", stop=[""]), "not empty"),
        (lambda: sgl.gen("a", return_logprob="yes"), "true or false"),
        (lambda: sgl.gen("a", top_logprobs_num=-2), "top_logprobs_num"),
        (lambda: sgl.gen("a", dtype=[int]), "must be one of int, float, str, bool"),
        (lambda: sgl.gen("a", ebnf="root ::= 'a'", lark='start: "a"'), "lark='start: \"a\"': cannot be combined with ebnf"),
        (lambda: sgl.gen("a", dtype=int, structural_tag={"type": "structural_tag"}), "cannot be combined with dtype"),
        (lambda: sgl.gen("a", json_schema="not json"), "is no JSON"),
        (lambda: sgl.gen("a", json_schema=""), "is no JSON"),
        (lambda: sgl.gen("a", json_schema=5), "must be a JSON text"),
        (lambda: sgl.gen("a", json_schema=["object"]), "must be a JSON text"),
        (lambda: sgl.gen("a", json_schema={"enum": [float("nan")]}), "has no JSON text"),
        (lambda: sgl.gen("a", structural_tag=True), "must be a JSON text"),
        (lambda: sgl.gen("a", structural_tag="<tool>"), "is no JSON"),
        (lambda: sgl.gen("a", ebnf=""), "not empty"),
        (lambda: sgl.gen("a", lark=5), "must be a text"),
        (lambda: sgl.gen("a", choices=["x"], ebnf="root ::= 'a'"), "no meaning for a choice"),
        (lambda: sgl.gen("a", exact=True), "give choices"),
        (lambda: sgl.select("a", ["x"], exact="yes"), "true or false"),
        (lambda: sgl.select("a", ["x"], choices_method=sgl.greedy_token_selection, exact=True), "cannot be combined with exact"),
        (lambda: sgl.gen(5), "must be a string"),
        (lambda: sgl.gen("a", regex=5), "must be a string"),
        (lambda: sgl.user(5), "takes a str or a node"),
    ],
)
def test_refused_where_it_is_written(make: Any, what: str) -> None:
    with pytest.raises(InvalidParams, match=re.escape(what)):
        make()


def test_a_large_minimum_alone_is_no_contradiction() -> None:
    assert sgl.gen("a", min_tokens=500).min_new_tokens == 500  # type: ignore[union-attr]


@pytest.mark.parametrize("pattern", ["(", "", "[a", "*"])
def test_a_bad_pattern_is_also_a_re_error(pattern: str) -> None:
    with pytest.raises(re.error) as caught:
        sgl.gen("a", regex=pattern)
    assert isinstance(caught.value, InvalidPattern)
    assert isinstance(caught.value.__cause__, re.error) == bool(pattern)


def test_unicode_properties_are_for_the_engine_to_read() -> None:
    assert sgl.gen("a", regex=r"[\p{Lu}\d]+\P{L}").regex == r"[\p{Lu}\d]+\P{L}"  # type: ignore[union-attr]
    with pytest.raises(InvalidPattern):
        sgl.gen("a", regex=r"\p{Lu}(")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ('{"type":  "object"}', '{"type":  "object"}'),
        ({"type": "object", "properties": {"ñ": {}, "a": {}}}, '{"type": "object", "properties": {"ñ": {}, "a": {}}}'),
        (True, "true"),
    ],
)
def test_a_schema_is_kept_as_its_json_text(given: Any, text: str) -> None:
    assert sgl.gen("a", json_schema=given).json_schema == text  # type: ignore[union-attr]


def test_a_schema_may_be_a_type() -> None:
    text = sgl.gen("a", json_schema=Source).json_schema  # type: ignore[union-attr]
    assert json.loads(text)["properties"]["node_id"]["type"] == "string"
    assert json.loads(sgl.gen("a", json_schema=list[int]).json_schema)["items"] == {"type": "integer"}  # type: ignore[union-attr]
    with pytest.raises(InvalidConstraint, match="a schema is"):
        sgl.gen("a", json_schema=object())


def test_exact_is_a_method_of_choice() -> None:
    assert sgl.gen("a", choices=["x"], exact=True) == sgl.select("a", ["x"], choices_method=exact_likelihood)
    assert sgl.select("a", ["x"], choices_method=exact_likelihood, exact=True) == sgl.select("a", ["x"], exact=True)


@pytest.mark.parametrize(("dtype", "name"), [(int, "int"), ("float", "float"), (str, "str"), (bool, "bool")])
def test_types_are_kept_by_name(dtype: Any, name: str) -> None:
    assert sgl.gen("a", dtype=dtype).dtype == name  # type: ignore[union-attr]


def test_typed_gens() -> None:
    assert sgl.gen_int("a", max_tokens=3) == sgl.gen("a", max_tokens=3, dtype=int)
    assert sgl.gen_string("a", n=2, stop="x") == sgl.gen("a", n=2, stop=["x"], dtype=str)


def test_arguments_hand_through_what_is_known() -> None:
    known = Argument("q", "12")
    assert (len(known), known[0], int(known), bool(known), str(known), f"{known:>3}", known == "12") == (
        2,
        "1",
        12,
        True,
        "12",
        " 12",
        True,
    )
    assert list(known) == ["1", "2"]


@pytest.mark.parametrize("use", [len, int, bool, str, list, lambda a: f"{a}", lambda a: a[0], lambda a: a == "x", lambda a: a != "x"])
def test_unknown_arguments_fail_instead_of_guessing(use: Any) -> None:
    with pytest.raises(TypeError):
        use(Argument("q"))


def test_unknown_arguments_can_still_be_held() -> None:
    argument = Argument("q")
    assert argument in {argument} and argument == argument
    assert repr("a" + argument) == "ExprList([Constant('a'), Argument(name=q, value=None)])"


def test_reasoning_is_refused_at_use() -> None:
    with pytest.raises(UnsupportedNode, match="qwen3"):
        sgl.separate_reasoning(sgl.gen("a"), model_type="qwen3")


def test_unknown_settings_raise() -> None:
    settings = GlobalConfig()
    settings.verbosity = 1
    for name in ("enable_parallel_encoding", "verbosty"):
        with pytest.raises(AttributeError, match=name):
            setattr(settings, name, False)
        with pytest.raises(AttributeError, match=name):
            getattr(settings, name)
    with pytest.raises(AttributeError, match="did you mean 'verbosity'"):
        settings.verbosty = 1
