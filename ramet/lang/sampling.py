"""How the language asks for text: sampling values of a run, overridden field by field by a `gen`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ramet.errors import InvalidParams
from ramet.params import LogprobParams, SamplingParams

REGEX_INT = r"[-+]?[0-9]+[ \n]*"
REGEX_FLOAT = r"[-+]?[0-9]*\.?[0-9]+[ \n]*"
REGEX_BOOL = r"(True|False)"
REGEX_STR = r"\"[\w\d\s]*\""
DTYPE_PATTERNS = {"int": REGEX_INT, "float": REGEX_FLOAT, "str": REGEX_STR, "bool": REGEX_BOOL}
# The constraints of one gen, of which it has one at most.
CONSTRAINT_FIELDS = ("dtype", "regex", "json_schema", "ebnf", "lark", "structural_tag")
MAX_LABEL_LEN = 100  # characters of a constraint in a message
_NUMBER_STOPS = (" ", "\n")  # a number is over at the first blank
_TOKEN_FIELDS = (
    "max_new_tokens",
    "min_new_tokens",
    "n",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "ignore_eos",
)


@dataclass(frozen=True, slots=True)
class SglSamplingParams:
    """The sampling values of a run or of one call; lengths are in tokens.

    `dtype` is the name of a type (int, float, str, bool), `regex` a pattern, `json_schema` and `structural_tag` are JSON texts, `ebnf` and
    `lark` grammars: at most one of them is set.

    Raises InvalidParams at construction when a value is out of its range.
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    stop_regex: tuple[str, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    ignore_eos: bool = False
    return_logprob: bool | None = None
    logprob_start_len: int | None = None
    top_logprobs_num: int | None = None
    return_text_in_logprobs: bool | None = None
    json_schema: str | None = None
    dtype: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    lark: str | None = None
    structural_tag: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in CONSTRAINT_FIELDS if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidParams(given[1], getattr(self, given[1]), f"cannot be combined with {given[0]}: give one constraint")
        if self.dtype is not None and self.dtype not in DTYPE_PATTERNS:
            raise InvalidParams("dtype", self.dtype, f"must be one of {', '.join(DTYPE_PATTERNS)}")
        values: dict[str, Any] = {name: getattr(self, name) for name in _TOKEN_FIELDS} | self.to_engine_constraint()
        checked = SamplingParams(**values)
        for name in ("stop", "stop_token_ids", "stop_regex"):
            object.__setattr__(self, name, getattr(checked, name))
        for name in ("return_logprob", "return_text_in_logprobs"):
            if not isinstance(getattr(self, name), bool | None):
                raise InvalidParams(name, getattr(self, name), "must be true or false")
        LogprobParams(
            start_len=-1 if self.logprob_start_len is None else self.logprob_start_len,
            top_num=0 if self.top_logprobs_num is None else self.top_logprobs_num,
        )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> SglSamplingParams:
        """The defaults with the values that are not None; names that are no sampling fields are passed over."""
        return cls(**{name: values[name] for name in SAMPLING_FIELDS if values.get(name) is not None})

    def overridden_by(self, changes: Mapping[str, Any]) -> SglSamplingParams:
        """A copy in which the given fields win; checked again."""
        return replace(self, **changes)

    def with_stops(self, more: tuple[str, ...]) -> SglSamplingParams:
        """A copy that also stops at these strings, and at a blank where a number is asked for."""
        if self.dtype in ("int", "float"):
            more = more + _NUMBER_STOPS
        return replace(self, stop=self.stop + tuple(stop for stop in more if stop not in self.stop))

    @property
    def pattern(self) -> str | None:
        """The regular expression that the text must match, from `regex` or `dtype`."""
        return self.regex if self.dtype is None else DTYPE_PATTERNS[self.dtype]

    @property
    def constraint_label(self) -> str | None:
        """How the constraint is written in a gen, if there is one: for messages."""
        for name in CONSTRAINT_FIELDS:
            value = getattr(self, name)
            if value is not None:
                return f"{name}={value if len(value) <= MAX_LABEL_LEN else value[:MAX_LABEL_LEN] + '...'!r}"
        return None

    def to_engine(self) -> dict[str, Any]:
        """The engine's raw sampling parameters: every field that an engine takes, without constraints and logprobs."""
        raw = {name: getattr(self, name) for name in _TOKEN_FIELDS}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in raw.items()}

    def to_engine_constraint(self) -> dict[str, Any]:
        """The engine's raw sampling parameter for the constraint, if there is one; a type is its pattern."""
        texts = {name: getattr(self, name) for name in CONSTRAINT_FIELDS if name not in ("dtype", "regex")} | {"regex": self.pattern}
        return {name: text for name, text in texts.items() if text is not None}

    def to_engine_logprobs(self) -> dict[str, Any]:
        """The logprob arguments of `Engine.generate` that were given."""
        names = ("return_logprob", "logprob_start_len", "top_logprobs_num", "return_text_in_logprobs")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def check_overrides(overrides: Mapping[str, Any]) -> None:
    """Raise InvalidParams if these values alone are wrong, whatever the run brings."""
    changes = dict(overrides)
    if "max_new_tokens" not in changes and isinstance(changes.get("min_new_tokens"), int):
        # The run decides the longest length, so a large minimum alone is no contradiction yet.
        changes["max_new_tokens"] = max(changes["min_new_tokens"], 0)
    SglSamplingParams(**changes)


SAMPLING_FIELDS = tuple(field.name for field in fields(SglSamplingParams))
