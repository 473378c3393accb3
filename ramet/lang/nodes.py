"""What a program is made of: frozen nodes, joined with `+` (paper, section 2 and appendix D).

Node
├── ConstantText, Argument, Image, Video     what the prompt is told
├── Gen, Select                              what the model is asked
├── RoleBegin, RoleEnd                       turns of a chat
├── VarScopeBegin, VarScopeEnd, Variable     names
├── Fork, GetForkItem, Join, CommitLazy      branches
└── ExprList                                 several of them in a row
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NoReturn, Protocol

from ramet.errors import InvalidParams, InvalidPattern
from ramet.lang.choices import ChoicesSamplingMethod, token_length_normalized
from ramet.lang.sampling import DTYPE_PATTERNS, check_overrides
from ramet.params import as_json_text


class Node:
    """A piece of a program; `+` with a str or another node on either side gives an ExprList."""

    __slots__ = ()

    def __add__(self, other: object) -> ExprList:
        tail = _as_items(other)
        return ExprList(_as_items(self) + tail) if tail else NotImplemented

    def __radd__(self, other: object) -> ExprList:
        head = _as_items(other)
        return ExprList(head + _as_items(self)) if head else NotImplemented


class VariableSource(Protocol):
    """Whoever holds variables: a stream when the program runs, a node when it is only described."""

    @property
    def node_id(self) -> str:
        """How the source is printed."""


@dataclass(frozen=True, slots=True, repr=False)
class ExprList(Node):
    """Nodes in a row; never nested."""

    items: tuple[Node, ...]

    def __repr__(self) -> str:
        return f"ExprList([{', '.join(map(repr, self.items))}])"

    def __iter__(self) -> Iterator[Node]:
        return iter(self.items)


@dataclass(frozen=True, slots=True, repr=False)
class ConstantText(Node):
    """Text that is there before the program runs."""

    value: str

    def __repr__(self) -> str:
        return f"Constant({self.value!r})"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Argument(Node):
    """An argument of the program; its value is None while it is unknown (tracing).

    `len`, indexing, `int`, `bool`, `str` and `==` hand through a known value and raise TypeError for an unknown one, so that a
    trace never records what depends on it in silence.
    """

    name: str
    value: Any = None

    def __repr__(self) -> str:
        return f"Argument(name={self.name}, value={self.value!r})"

    def _known(self, what: str) -> Any:
        if self.value is None:
            raise TypeError(f"{what} of the argument {self.name!r} is not known while the program is traced")
        return self.value

    def __len__(self) -> int:
        return len(self._known("the length"))

    def __getitem__(self, key: Any) -> Any:
        return self._known("an item")[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._known("the items"))

    def __int__(self) -> int:
        return int(self._known("the number"))

    def __bool__(self) -> bool:
        return bool(self._known("the truth"))

    def __str__(self) -> str:
        return str(self._known("the text"))

    def __eq__(self, other: object) -> bool:
        return self is other or bool(self._known("the equality") == other)

    def __hash__(self) -> int:
        return id(self)

    def __format__(self, spec: str) -> str:
        if self.value is None:
            raise TypeError("Cannot put argument inside a f-string. This is not compatible with the tracer. ")
        return format(self.value, spec)


@dataclass(frozen=True, slots=True, repr=False)
class Gen(Node):
    """Ask the model for text and store it under `name`; a field that is None takes the value of the run.

    `max_new_tokens` and `min_new_tokens` are in tokens. With `n` > 1 the variable is a list and the first sample goes into the text.
    `stop` and `stop_regex` become tuples, so the caller's list stays as it was. `dtype` is kept as the name of the type, `json_schema` (a
    text, a mapping, a pydantic model, a dataclass or another type) and `structural_tag` (a text or a mapping) as their JSON texts.

    Raises InvalidParams for a value out of range, a contradiction or what is no JSON, InvalidPattern (also a re.error) for a bad regex,
    InvalidConstraint for a type that has no schema.
    """

    name: str | None = None
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    n: int | None = None
    stop: tuple[str, ...] | None = None
    stop_token_ids: tuple[int, ...] | None = None
    stop_regex: tuple[str, ...] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    ignore_eos: bool | None = None
    return_logprob: bool | None = None
    logprob_start_len: int | None = None
    top_logprobs_num: int | None = None
    return_text_in_logprobs: bool | None = None
    dtype: str | None = None
    regex: str | None = None
    json_schema: str | None = None
    ebnf: str | None = None
    lark: str | None = None
    structural_tag: str | None = None

    def __post_init__(self) -> None:
        _check_name("gen", self.name)
        for field in ("stop", "stop_regex"):
            value = getattr(self, field)
            object.__setattr__(self, field, (value,) if isinstance(value, str) else _as_tuple(value))
        object.__setattr__(self, "stop_token_ids", _as_tuple(self.stop_token_ids))
        object.__setattr__(self, "dtype", _dtype_name(self.dtype))
        if self.regex is not None:
            check_pattern(self.regex)
        for field in ("json_schema", "structural_tag"):
            if getattr(self, field) is not None:
                object.__setattr__(self, field, _json_text(field, getattr(self, field)))
        check_overrides(self.overrides())

    def overrides(self) -> dict[str, Any]:
        """The sampling fields that were given."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "name" and getattr(self, f.name) is not None}

    def __repr__(self) -> str:
        return f"Gen({self.name!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Select(Node):
    """Let the model choose the most probable of `choices` and store it under `name`.

    Raises InvalidParams for no choices, a choice that is empty or no string, and a temperature above 1e-5 (the best-scored wins).
    """

    name: str | None
    choices: tuple[str, ...]
    temperature: float = 0.0
    choices_method: ChoicesSamplingMethod = token_length_normalized

    def __post_init__(self) -> None:
        _check_name("select", self.name)
        if isinstance(self.choices, str) or not isinstance(self.choices, list | tuple) or not self.choices:
            raise InvalidParams("choices", self.choices, "give a list of at least one option")
        for choice in self.choices:
            if not isinstance(choice, str) or not choice:
                raise InvalidParams("choices", self.choices, f"every option must be a string that is not empty, not {choice!r}")
        object.__setattr__(self, "choices", tuple(self.choices))
        if not isinstance(self.temperature, int | float) or not 0 <= self.temperature <= 1e-5:
            raise InvalidParams("temperature", self.temperature, "a select takes the best-scored option: leave the temperature at 0")
        if not isinstance(self.choices_method, ChoicesSamplingMethod):
            raise InvalidParams(
                "choices_method", self.choices_method, "must be a ChoicesSamplingMethod, an object such as ramet.token_length_normalized"
            )

    def __repr__(self) -> str:
        return f"Select({self.name}, choices={list(self.choices)})"


@dataclass(frozen=True, slots=True, repr=False)
class Image(Node):
    """An image: a path, bytes or a PIL image."""

    path: Any

    def __repr__(self) -> str:
        return f"Image({self.path!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Video(Node):
    """`num_frames` frames of a video file, evenly spaced."""

    path: str
    num_frames: int

    def __repr__(self) -> str:
        return f"Video({self.path!r}, num_frames={self.num_frames})"


@dataclass(frozen=True, slots=True, repr=False)
class RoleBegin(Node):
    """Open a turn."""

    role: str

    def __repr__(self) -> str:
        return f"RoleBegin({self.role})"


@dataclass(frozen=True, slots=True, repr=False)
class RoleEnd(Node):
    """Close the turn and record its message."""

    role: str

    def __repr__(self) -> str:
        return f"RoleEnd({self.role})"


@dataclass(frozen=True, slots=True, repr=False)
class VarScopeBegin(Node):
    """From here on, text belongs to the variable `name`."""

    name: str

    def __repr__(self) -> str:
        return f"VarScopeBegin({self.name!r})"


@dataclass(frozen=True, slots=True, repr=False)
class VarScopeEnd(Node):
    """The variable `name` is the text since its VarScopeBegin."""

    name: str

    def __repr__(self) -> str:
        return f"VarScopeEnd({self.name!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Variable(Node):
    """The value of a variable of `source`, appended as text; an edge between streams when the source is another one."""

    name: str
    source: VariableSource

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, source=%{self.source.node_id})"


@dataclass(frozen=True, slots=True, repr=False)
class Fork(Node):
    """`number` copies of the state `source`."""

    source: VariableSource
    number: int
    position_ids_offset: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        return f"Fork(%{self.source.node_id}, number={self.number}, position_ids_offset={self.position_ids_offset})"


@dataclass(frozen=True, slots=True, repr=False)
class GetForkItem(Node):
    """Copy number `index` of a fork."""

    source: VariableSource
    index: int

    def __repr__(self) -> str:
        return f"GetForkItem(%{self.source.node_id}, index={self.index})"


@dataclass(frozen=True, slots=True, repr=False)
class Join(Node):
    """The copies of a fork come together; each name they set becomes a list."""

    sources: tuple[VariableSource, ...]
    mode: str = "gather_variable"

    def __repr__(self) -> str:
        return f"Join({', '.join('%' + source.node_id for source in self.sources)}, mode={self.mode!r})"


@dataclass(frozen=True, slots=True, repr=False)
class CommitLazy(Node):
    """The frontend hint: compute the prefix now, because copies of it follow (paper, section 3)."""

    def __repr__(self) -> str:
        return "CommitLazy()"


# `\p{..}` is for engines to read, Python's re has none; a pair of backslashes is matched so that what follows it is not taken for one.
_PROPERTY = re.compile(r"(\\\\)|\\[pP]\{[^{}]*\}")


def check_pattern(pattern: object) -> None:
    """Raise InvalidPattern unless this is a regular expression that is not the empty text."""
    if not isinstance(pattern, str):
        raise InvalidParams("regex", pattern, "must be a string")
    if not pattern:
        raise InvalidPattern("regex", pattern, "matches only the empty text; leave regex out to generate freely")
    try:
        re.compile(_PROPERTY.sub(lambda match: match[1] or "x", pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidPattern("regex", pattern, f"is not a regular expression: {error}") from error


def _json_text(field: str, value: object) -> str:
    text = as_json_text(field, value)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidParams(field, text, f"is no JSON: {error}") from error
    return text


def as_node(value: object, where: str) -> Node:
    """A str or a node as a node; raises InvalidParams for anything else, and for None."""
    if isinstance(value, str):
        return ConstantText(value)
    if isinstance(value, Node):
        return value
    if value is None:
        raise InvalidParams(where, value, "Tried to append None to state.")
    _refuse(value, where)


def _refuse(value: object, where: str) -> NoReturn:
    raise InvalidParams(where, value, f"takes a str or a node such as gen(...), not {type(value).__name__}; use str(...)")


def _as_items(value: object) -> tuple[Node, ...]:
    if isinstance(value, ExprList):
        return value.items
    if isinstance(value, str):
        return (ConstantText(value),)
    return (value,) if isinstance(value, Node) else ()


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _check_name(what: str, name: object) -> None:
    if name is not None and not isinstance(name, str):
        raise InvalidParams("name", name, f"the name of a {what} must be a string")


def _dtype_name(dtype: object) -> str | None:
    if dtype is None:
        return None
    name = dtype.__name__ if isinstance(dtype, type) else dtype
    if not isinstance(name, str) or name not in DTYPE_PATTERNS:
        raise InvalidParams("dtype", dtype, f"must be one of {', '.join(DTYPE_PATTERNS)}")
    return name
