"""The text of a schema as Python values, exact and without surprises."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeAlias

from ramet.constraint.limits import Source

Value: TypeAlias = Any  # None, bool, int, Decimal, str, list or dict: JSON, with exact numbers
_MAX_DIGITS: Final = 400


def read_json(source: Source) -> Value:
    """The value that `source.text` spells; numbers with a point or an exponent are Decimals.

    Raises InvalidConstraint for what is no JSON, a key that comes twice, a number that no float can hold, half of a surrogate pair, and
    what nests too deep.
    """
    try:
        value = json.loads(
            source.text,
            object_pairs_hook=lambda pairs: _object(source, pairs),
            parse_float=lambda text: _decimal(source, text),
            parse_int=lambda text: _integer(source, text),
            parse_constant=lambda text: _refuse(source, f"{text} is no JSON number"),
        )
    except json.JSONDecodeError as error:
        raise source.error(f"a schema is JSON, and this is none: {error.msg}", error.pos) from error
    except RecursionError as error:
        raise _too_deep(source) from error
    _check(source, value)
    return value


def plain_decoder(source: Source) -> json.JSONDecoder:
    """A decoder for other JSON inside constraints: numbers with a point are floats, and the same numbers and keys are refused."""
    return json.JSONDecoder(
        object_pairs_hook=lambda pairs: _object(source, pairs),
        parse_float=lambda text: float(_decimal(source, text)),
        parse_int=lambda text: _integer(source, text),
        parse_constant=lambda text: _refuse(source, f"{text} is no JSON number"),
    )


def _object(source: Source, pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key, value in pairs:
        if key in found:
            raise source.error(f"the key {key!r} comes twice in one object: keep one of them")
        found[key] = value
    return found


def _decimal(source: Source, text: str) -> Decimal:
    number = Decimal(text)
    as_float = float(number)
    if not math.isfinite(as_float) or (as_float == 0 and number != 0):
        raise source.error(f"the number {text} is beyond what a double can hold")
    return number


def _integer(source: Source, text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise source.error(f"a number of {len(text)} digits is longer than the limit of {_MAX_DIGITS}")
    return int(text)


def _refuse(source: Source, why: str) -> Value:
    raise source.error(why)


def _too_deep(source: Source) -> Exception:
    return source.error(f"the JSON of the schema nests deeper than {source.limits.max_nesting}: put parts under $defs and refer to them")


def _check(source: Source, value: Value) -> None:
    level = [value]
    depth = 0
    while level:
        if depth > source.limits.max_nesting:
            raise _too_deep(source)
        depth += 1
        inner: list[Value] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.keys()
                inner += item.values()
            elif isinstance(item, list):
                inner += item
            elif isinstance(item, str) and any("\ud800" <= char <= "\udfff" for char in item):
                raise source.error(f"{item!r} holds half of a surrogate pair, which is no character")
        level = inner


def canonical(value: Value) -> object:
    """A hashable form that is equal for values that JSON Schema takes for equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    if isinstance(value, int | Decimal):
        return ("number", Fraction(value))
    if isinstance(value, str):
        return ("string", value)
    if isinstance(value, list):
        return ("array", tuple(map(canonical, value)))
    return ("object", frozenset((key, canonical(item)) for key, item in value.items()))


def show(value: Value) -> str:
    """A value for a message, shortened."""
    text = json.dumps(value, default=float, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
