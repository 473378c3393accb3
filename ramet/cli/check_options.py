"""What `ramet check` is asked for; nothing here needs what a check needs, so that `--help` is quick."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

from ramet.errors import InvalidParams


class CheckKind(StrEnum):
    """The sorts of constraint, as the command line calls them."""

    regex = "regex"
    schema = "schema"
    ebnf = "ebnf"
    lark = "lark"
    choice = "choice"
    tag = "tag"


class Whitespace(StrEnum):
    """The white space between the parts of JSON: `", "` and `": "`, none, or free within bounds."""

    fixed = "fixed"
    compact = "compact"
    flexible = "flexible"


_KINDS: Final = {CheckKind.schema: "json_schema", CheckKind.tag: "structural_tag"}
_SCHEMA_KINDS: Final = {
    Whitespace.fixed: "json_schema",
    Whitespace.compact: "json_schema_compact",
    Whitespace.flexible: "json_schema_flexible",
}


def constraint_kind(kind: CheckKind, whitespace: Whitespace | None) -> str:
    """The row of KINDS for what was asked for. Raises InvalidParams for white space of anything but a schema."""
    if whitespace is None:
        return _KINDS.get(kind, kind.value)
    if kind is not CheckKind.schema:
        raise InvalidParams("--whitespace", whitespace.value, f"says how JSON is spaced, and {kind.value} has no use for it: leave it out")
    return _SCHEMA_KINDS[whitespace]


def read_text(option: str, name: str, read_input: Callable[[str], str]) -> str:
    """The text in a file, `-` being standard input, without a line break at its very end. Raises InvalidParams when it cannot be read."""
    if name == "-":
        text = read_input(option)
    else:
        try:
            text = Path(name).read_bytes().decode("utf-8")
        except OSError as error:
            raise InvalidParams(
                option, name, f"cannot be read ({error.strerror or error}); --inline takes the constraint itself"
            ) from error
        except UnicodeDecodeError as error:
            raise InvalidParams(option, name, f"is no UTF-8 text ({error.reason} at byte {error.start})") from error
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
