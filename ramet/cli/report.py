"""What a run made, as JSON: whatever a program returns can be written, in the nearest form that JSON has."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 50  # of lists and objects within each other; what lies deeper is written as text
MAX_INT_BITS = 4096  # larger integers are written as text, in hexadecimal


def to_json(value: Any) -> str:
    """The value as indented JSON. Raises nothing; what cannot be copied, hashed or compared is only looked at."""
    return json.dumps(plain(value), ensure_ascii=False, indent=2)


def plain(value: Any, depth: int = 0) -> Any:
    """The value in strings, numbers, lists and dicts with string keys; anything else becomes its text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() <= MAX_INT_BITS else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth < MAX_DEPTH and isinstance(value, Mapping):
        return {key if isinstance(key, str) else _text(key): plain(item, depth + 1) for key, item in value.items()}
    if depth < MAX_DEPTH and isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    return _text(value)


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:  # of the value's own making, or because it is nested too deep
        return f"<{type(value).__name__} without a text: {type(error).__name__}>"
