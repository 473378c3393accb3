"""Schemas from classes and types, with pydantic where it is installed and without."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import typing
import uuid
from typing import Any, Literal, Optional, TypedDict

import pytest

from ramet import json_schema
from ramet.constraint.testing import accepts
from ramet.errors import InvalidConstraint
from ramet.json_schema import schema_of_type, schema_text


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: float | None = None
    colors: list[Color] = dataclasses.field(default_factory=list)
    hidden: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass
class Tree:
    value: int
    children: list[Tree]


class Movie(TypedDict):
    title: str
    year: typing.NotRequired[int]


POINT = {
    "$ref": "#/$defs/Point",
    "$defs": {
        "Point": {
            "type": "object",
            "properties": {
                "x": {"type": "integer"},
                "y": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                "colors": {"type": "array", "items": {"enum": ["red", "blue"]}},
            },
            "required": ["x"],
            "additionalProperties": False,
        }
    },
}


@pytest.mark.parametrize(
    ("source", "schema"),
    [
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, True),
        (list, {"type": "array"}),
        (dict, {"type": "object"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, list[str]], {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Literal["a", 1, None, Color.RED], {"enum": ["a", 1, None, "red"]}),
        (Color, {"enum": ["red", "blue"]}),
        (typing.Annotated[int, {"unhashable": []}], {"type": "integer"}),
        (tuple[int, str], {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2}),
        (Point, POINT),
    ],
)
def test_types_without_pydantic(source: object, schema: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert schema_of_type(source) == schema
    monkeypatch.setattr(json_schema.importlib.util, "find_spec", lambda name: None)
    assert json.loads(schema_text(source)) == schema


def test_a_class_that_refers_to_itself_and_a_typed_dict() -> None:
    tree = schema_of_type(Tree)
    assert isinstance(tree, dict)
    assert tree["$defs"]["Tree"]["properties"]["children"] == {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    movie = schema_of_type(Movie)
    assert isinstance(movie, dict)
    assert movie["$defs"]["Movie"]["required"] == ["title"]
    assert movie["$defs"]["Movie"]["properties"] == {"title": {"type": "string"}, "year": {"type": "integer"}}


@pytest.mark.parametrize("source", ['{"type": "string"}', "not looked at"])
def test_a_text_is_itself(source: str) -> None:
    assert schema_text(source) == source


def test_dicts_and_bools_are_dumped() -> None:
    assert schema_text({"const": "é"}) == '{"const": "é"}'
    assert (schema_text(True), schema_text(False)) == ("true", "false")


@pytest.mark.parametrize("source", [5, 1.5, object(), print, [], {"a": {1}}, {"a": float("nan")}, lambda: 0, Point(1)])
def test_what_is_no_schema_is_refused(source: object) -> None:
    with pytest.raises(InvalidConstraint):
        schema_text(source)


@pytest.mark.parametrize("source", [complex, dict[int, str], tuple[int, ...], bytes, list["nowhere"]])  # type: ignore[name-defined]  # noqa: F821
def test_types_that_are_not_known_without_pydantic(source: object) -> None:
    with pytest.raises(InvalidConstraint, match="install pydantic"):
        schema_of_type(source)


def test_a_type_with_a_schema_of_its_own() -> None:
    class Own:
        @classmethod
        def model_json_schema(cls) -> dict[str, Any]:
            return {"type": "null"}

    assert schema_text(Own) == '{"type": "null"}'


def test_a_pydantic_model_compiles() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Cat(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        kind: Literal["cat"]
        lives: int

    class Dog(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        kind: Literal["dog"]
        tail: float | None = None

    owner = pydantic.create_model(
        "Owner",
        __config__=pydantic.ConfigDict(extra="forbid"),
        name=(str, pydantic.Field(description="x", min_length=1, max_length=20, examples=["a"])),
        pet=(Cat | Dog, pydantic.Field(discriminator="kind")),
        color=(Color, Color.RED),
        tags=(list[str], []),
        scores=(dict[str, float], {}),
        born=(datetime.date, ...),
        at=(datetime.datetime, ...),
        took=(datetime.timedelta, ...),
        id=(uuid.UUID, ...),
        count=(pydantic.PositiveInt, ...),
        ratio=(pydantic.PositiveFloat, ...),
        url=(pydantic.HttpUrl, ...),
        code=(typing.Annotated[str, pydantic.Field(pattern=r"^\d{3}$")], ...),
        pair=(tuple[int, str], ...),
        price=(decimal.Decimal, ...),
        secret=(pydantic.SecretStr, ...),
        data=(bytes, ...),
        choices=(dict[Literal["a", "b"], int], ...),
        some=(set[Color], ...),
    )
    value = {
        "name": "é",
        "pet": {"kind": "dog", "tail": None},
        "color": "red",
        "tags": ["a"],
        "scores": {"x": 1.5},
        "born": "2024-02-29",
        "at": "2020-01-31T23:20:50Z",
        "took": "PT36H",
        "id": "2eb8aa08-aa98-11ea-b4aa-73b441d16380",
        "count": 1,
        "ratio": 0.5,
        "url": "https://example.com/a?b=c",
        "code": "042",
        "pair": [1, "a"],
        "price": "1.50",
        "secret": "s",
        "data": "b",
        "choices": {"a": 1},
        "some": ["blue"],
    }
    text = schema_text(owner)
    owner.model_validate_json(json.dumps(value))
    assert accepts("json_schema", text, json.dumps(value, ensure_ascii=False))
    for name, wrong in (("pet", {"kind": "dog", "lives": 1}), ("born", "2023-02-29"), ("count", 0), ("ratio", 0), ("some", ["red", "red"])):
        assert not accepts("json_schema", text, json.dumps({**value, name: wrong}, ensure_ascii=False)), name


def test_pydantic_makes_schemas_of_types_where_it_is_installed() -> None:
    pydantic = pytest.importorskip("pydantic")
    annotated = typing.Annotated[int, pydantic.Field(gt=3)]
    assert json.loads(schema_text(annotated)) == {"exclusiveMinimum": 3, "type": "integer"}
    assert "$ref" in schema_text(Tree)
    assert accepts("json_schema", schema_text(Movie), '{"title": "x"}')
    with pytest.raises(InvalidConstraint, match="pydantic makes no schema of it"):
        schema_text(type("Plain", (), {}))
