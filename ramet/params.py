"""What a caller may ask of one generation: sampling and logprob parameters, checked at birth."""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ramet.errors import InvalidParams, UnsupportedFeature
from ramet.json_schema import schema_text

MAX_NUM_STOPS = 32
MAX_STOP_REGEX_BYTES = 256
MAX_NUM_SAMPLES = 1024  # of one prompt
MAX_LOGIT_BIAS = 100.0  # beyond it float32 sums stop meaning anything
LEAST_REPETITION_PENALTY = 1e-3
GREEDY_BELOW = 1e-6  # a temperature under this means argmax

# The constraints on the text, of which a request has one at most. All but `choices` are kinds of `ramet.constraint` by the same name.
CONSTRAINT_FIELDS = ("regex", "json_schema", "ebnf", "lark", "structural_tag", "choices")
_JSON_FIELDS = ("json_schema", "structural_tag")  # their texts are JSON, so that a mapping may stand for one

# Known names of the field that no part of this engine honours yet: asking for one is an error, not a silent no-op.
_REFUSED = {
    "beam_width": "beam search is not offered; use n with a temperature",
    "custom_params": "custom logit processors are not offered",
    "watermark": "watermarking is not offered",
}
_ALIASES = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "seed": "sampling_seed"}


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the tokens of one request are drawn and when it ends.

    Lengths are in tokens. `temperature` below 1e-6 is greedy. `top_k` of -1 or 0 is off. `stop` and `stop_regex` are
    matched against the output text only; the text ends before the leftmost match unless `no_stop_trim`.
    One constraint at most: the whole text matches `regex`, `json_schema` (a JSON text), `ebnf`, `lark` or `structural_tag` (a JSON text),
    or is one of `choices`, unless a stop or `max_new_tokens` ends it before. Only types are checked here; `ramet.constraint` reads them.
    `sampling_seed` makes the draw depend on (seed, position) alone, so the text is the same in any batch.

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
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    sampling_seed: int | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    no_stop_trim: bool = False
    regex: str | None = None
    json_schema: str | None = None
    ebnf: str | None = None
    lark: str | None = None
    structural_tag: str | None = None
    choices: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("stop", "stop_regex"):
            object.__setattr__(self, name, _strings(name, getattr(self, name)))
        object.__setattr__(self, "stop_token_ids", _token_ids("stop_token_ids", self.stop_token_ids))
        object.__setattr__(self, "logit_bias", _bias_pairs(self.logit_bias))
        for name in ("max_new_tokens", "min_new_tokens", "n", "top_k"):
            _check_int(name, getattr(self, name))
        for name in ("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"):
            _check_finite(name, getattr(self, name))
        for name in ("ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidParams(name, getattr(self, name), "must be true or false")
        _require(self.max_new_tokens >= 0, "max_new_tokens", self.max_new_tokens, "must be at least 0")
        _require(
            0 <= self.min_new_tokens <= self.max_new_tokens,
            "min_new_tokens",
            self.min_new_tokens,
            f"must be in [0, max_new_tokens={self.max_new_tokens}]",
        )
        _require(1 <= self.n <= MAX_NUM_SAMPLES, "n", self.n, f"must be in [1, {MAX_NUM_SAMPLES}]")
        _require(self.temperature >= 0, "temperature", self.temperature, "must be at least 0")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "must be in (0, 1]")
        _require(self.top_k >= -1, "top_k", self.top_k, "must be -1 or 0 (off), or at least 1")
        _require(0 <= self.min_p <= 1, "min_p", self.min_p, "must be in [0, 1]")
        for name in ("frequency_penalty", "presence_penalty"):
            _require(-2 <= getattr(self, name) <= 2, name, getattr(self, name), "must be in [-2, 2]")
        _require(
            LEAST_REPETITION_PENALTY <= self.repetition_penalty <= 2,
            "repetition_penalty",
            self.repetition_penalty,
            f"must be in [{LEAST_REPETITION_PENALTY}, 2]",
        )
        if self.sampling_seed is not None:
            _check_int("sampling_seed", self.sampling_seed)
            _require(-(2**63) <= self.sampling_seed < 2**63, "sampling_seed", self.sampling_seed, "must fit in 64 bits")
        self._check_constraints()
        for pattern in self.stop_regex:
            if len(pattern.encode()) > MAX_STOP_REGEX_BYTES:
                raise InvalidParams("stop_regex", pattern, f"is longer than {MAX_STOP_REGEX_BYTES} bytes")
            try:
                re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                raise InvalidParams("stop_regex", pattern, f"is not a regular expression: {error}") from error

    def _check_constraints(self) -> None:
        given = [name for name in CONSTRAINT_FIELDS if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidParams(given[1], getattr(self, given[1]), f"cannot be combined with {given[0]}: give one constraint")
        for name in given:
            value = getattr(self, name)
            if name == "choices":
                object.__setattr__(self, name, _options(value))
            elif not isinstance(value, str) or not value:
                what = "a JSON text" if name in _JSON_FIELDS else "a text"
                raise InvalidParams(name, value, f"must be {what} that is not empty")

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken at each step."""
        return self.temperature < GREEDY_BELOW or self.top_k == 1

    @property
    def constraint(self) -> tuple[str, str] | None:
        """The kind of the constraint and its text, as `ramet.constraint.compile` takes them; None when the text is free."""
        for name in CONSTRAINT_FIELDS:
            value = getattr(self, name)
            if value is not None:
                return ("choice", json.dumps(value, ensure_ascii=False)) if name == "choices" else (name, value)
        return None

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any] | None) -> SamplingParams:
        """Build from the published names (`max_new_tokens`, `stop`, ...) and the aliases max_tokens, min_tokens and seed.

        A null value means the default, and so does an empty text for a constraint (as published). `json_schema` and `structural_tag` may be
        mappings, and a JSON Schema also true, false, a pydantic model, a dataclass or another type (`ramet.json_schema`).

        Raises InvalidParams for an unknown name (with the nearest known one) and UnsupportedFeature for a known one that is not offered.
        """
        known = {f.name for f in fields(cls)}
        chosen: dict[str, Any] = {}
        for name, value in (raw or {}).items():
            if not isinstance(name, str):
                raise InvalidParams("sampling_params", name, "names of parameters are strings")
            target = _ALIASES.get(name, name)
            if target in _REFUSED:
                if value in (None, "", 1 if target == "beam_width" else None):
                    continue
                raise UnsupportedFeature(target, _REFUSED[target])
            if target not in known:
                near = difflib.get_close_matches(name, sorted(known | set(_ALIASES)), n=1)
                raise InvalidParams(name, value, "unknown parameter" + (f", did you mean {near[0]!r}?" if near else ""))
            if target in chosen:
                raise InvalidParams(name, value, f"given twice (it is another name of {target})")
            if value is None or (value == "" and target in CONSTRAINT_FIELDS and target != "choices"):
                continue
            chosen[target] = as_json_text(target, value) if target in _JSON_FIELDS else value
        return cls(**chosen)

    def with_changes(self, **changes: Any) -> SamplingParams:
        """A copy with some fields replaced; checked again."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class LogprobParams:
    """Which log-probabilities come back with a request.

    `start_len` is the first prompt position (in tokens) whose logprob is returned; -1 means output tokens only.
    `top_num` alternatives and the explicit `token_ids` are returned at each position.
    Values are those of the model's own distribution, before temperature, penalties and truncation.
    """

    is_wanted: bool = False
    start_len: int = -1
    top_num: int = 0
    token_ids: tuple[int, ...] = field(default=())

    def __post_init__(self) -> None:
        _check_int("logprob_start_len", self.start_len)
        _check_int("top_logprobs_num", self.top_num)
        _require(self.start_len >= -1, "logprob_start_len", self.start_len, "must be -1 or a prompt position")
        _require(self.top_num >= 0, "top_logprobs_num", self.top_num, "must be at least 0")
        object.__setattr__(self, "token_ids", _token_ids("token_ids_logprob", self.token_ids))


def as_json_text(name: str, value: object) -> str:
    """The JSON text of `json_schema` or `structural_tag`: a text as it is, a mapping in its order, a type as its schema.

    Raises InvalidParams for what has no JSON text, InvalidConstraint for a type that has no schema.
    """
    if isinstance(value, str):
        return value
    is_schema = name == "json_schema"
    if is_schema and not isinstance(value, Mapping | bool | int | float | bytes | list | tuple | set):
        return schema_text(value)
    if not isinstance(value, Mapping) and not (is_schema and isinstance(value, bool)):
        raise InvalidParams(name, value, "must be a JSON text, or a mapping that has one")
    try:
        return json.dumps(dict(value) if isinstance(value, Mapping) else value, ensure_ascii=False, allow_nan=False)
    except RecursionError as error:
        raise InvalidParams(name, "...", "is nested too deeply") from error  # too deep to be printed, too
    except (TypeError, ValueError) as error:
        raise InvalidParams(name, value, f"has no JSON text: {error}") from error


def _options(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise InvalidParams("choices", value, "must be a list of at least one option")
    for item in value:
        if not isinstance(item, str):
            raise InvalidParams("choices", value, f"every option must be a string, not {item!r}")
    return tuple(value)


def _require(is_met: bool, name: str, value: object, why: str) -> None:
    if not is_met:
        raise InvalidParams(name, value, why)


def _check_int(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParams(name, value, "must be an integer")


def _check_finite(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise InvalidParams(name, value, "must be a finite number")


def _strings(name: str, value: object) -> tuple[str, ...]:
    items: tuple[object, ...]
    if value is None:
        items = ()
    elif isinstance(value, str):
        items = (value,)
    elif isinstance(value, list | tuple):
        items = tuple(value)
    else:
        raise InvalidParams(name, value, "must be a string or a list of strings")
    for item in items:
        if not isinstance(item, str) or not item:
            raise InvalidParams(name, value, "every entry must be a string that is not empty")
        if any("\ud800" <= char <= "\udfff" for char in item):
            raise InvalidParams(name, item, "holds half of a surrogate pair, which no text has")
    if len(items) > MAX_NUM_STOPS:
        raise InvalidParams(name, value, f"has more than {MAX_NUM_STOPS} entries")
    return items  # type: ignore[return-value]


def _token_ids(name: str, value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise InvalidParams(name, value, "must be a list of token ids")
    for item in value:
        if isinstance(item, bool) or not isinstance(item, int) or item < 0:
            raise InvalidParams(name, value, "every entry must be a token id (an integer of at least 0)")
    return tuple(value)


def _bias_pairs(value: object) -> tuple[tuple[int, float], ...]:
    """Accept {token id: bias} with ids as ints or decimal strings (JSON keys), or pairs; give sorted pairs."""
    if value is None:
        return ()
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, list | tuple):
        raise InvalidParams("logit_bias", value, "must map token ids to numbers")
    out: dict[int, float] = {}
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise InvalidParams("logit_bias", value, "must map token ids to numbers")
        key, bias = pair
        if isinstance(key, str) and key.isdecimal() and len(key) <= 18:
            key = int(key)
        if isinstance(key, bool) or not isinstance(key, int) or key < 0:
            raise InvalidParams("logit_bias", key, "keys must be token ids")
        _check_finite("logit_bias", bias)
        _require(abs(bias) <= MAX_LOGIT_BIAS, "logit_bias", bias, f"must be in [-{MAX_LOGIT_BIAS:g}, {MAX_LOGIT_BIAS:g}]")
        out[key] = float(bias)
    return tuple(sorted(out.items()))
