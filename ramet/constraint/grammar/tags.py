"""Structural tags: free text in which a trigger begins a region, and a region holds JSON.

    free text   <function=   get_weather>   {"city": "Paris"}   </function>   free text ...
                trigger      rest of begin  JSON                end

A piece of free text that a region follows ends with a trigger and holds none before; the last piece holds none at all. Nothing but the rest
of a begin may follow a trigger. That is a grammar with a lexer of these two pieces, the begins and the ends; the JSON has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ramet.constraint.grammar.json import json_grammar
from ramet.constraint.grammar.regex_text import literal_regex
from ramet.constraint.limits import Source

Schema = dict[str, Any] | bool

_ANY: Final = r"[\x{0}-\x{10FFFF}]"
_NUMBER_GOES_ON: Final = frozenset("0123456789.eE")
_HOLDS_NO_NUMBER: Final = frozenset(("object", "array", "string", "boolean", "null"))


@dataclass(frozen=True, slots=True)
class Region:
    """What stands in one kind of region: `begin`, a JSON value, `end`."""

    begin: str
    schema: Schema
    end: str


def tags_grammars(regions: Sequence[Region], triggers: Sequence[str], source: Source) -> list[dict[str, Any]]:
    """The grammars for llguidance. Raises InvalidConstraint for tags that cannot be told apart and schemas not done exactly."""
    _check_triggers(regions, triggers, source)
    _check_regions(regions, source)
    any_trigger = "(?:" + "|".join(map(literal_regex, triggers)) + ")"
    lines = [f"start: ({' | '.join(f'tag{number}' for number in range(len(triggers)))})* LAST?"]
    lines += [f"LAST: /{_ANY}+/ & ~/{_ANY}*{any_trigger}{_ANY}*/"]
    lines += [f"GOES_ON: /{_ANY}*{any_trigger}{_ANY}+/"]  # once: written out for each trigger it grows with their square
    grammars: list[dict[str, Any]] = []
    for number, trigger in enumerate(triggers):
        options = []
        for index, region in enumerate(regions):
            if region.begin.startswith(trigger):
                options.append(" ".join((_literal(region.begin[len(trigger) :]), f"@json{index}", _literal(region.end))))
                grammars.append({"name": f"json{index}", **json_grammar(source, region.schema, "json_schema")})
        lines.append(f"tag{number}: TEXT{number} ({' | '.join(options)})")
        lines.append(f"TEXT{number}: /{_ANY}*{literal_regex(trigger)}/ & ~GOES_ON")
    return [{"lark_grammar": "\n".join(lines) + "\n"}, *grammars]


def _check_triggers(regions: Sequence[Region], triggers: Sequence[str], source: Source) -> None:
    for trigger in triggers:
        if not trigger:
            raise source.error("a trigger must not be empty: any text holds it")
        if not any(region.begin.startswith(trigger) for region in regions):
            raise source.error(f"no begin starts with the trigger {trigger!r}")
        for other in triggers:
            if other is not trigger and other in trigger:
                raise source.error(f"the trigger {trigger!r} holds the trigger {other!r}: the shorter one is enough")


def _check_regions(regions: Sequence[Region], source: Source) -> None:
    for number, region in enumerate(regions):
        for other in regions[number + 1 :]:
            short, long = sorted((region.begin, other.begin), key=len)
            if long.startswith(short):
                raise source.error(f"the begin {short!r} is also how {long!r} begins: it cannot be told which is meant")
        if (not region.end or region.end[0] in _NUMBER_GOES_ON) and not _holds_no_number(region.schema):
            raise source.error(
                f"the end {region.end!r} behind {region.begin!r} could be taken for the rest of a number: "
                "give the schema a type that is none, or begin the end with another character"
            )


def _holds_no_number(schema: Schema) -> bool:
    kinds = schema.get("type", ()) if isinstance(schema, dict) else ()
    names = [kinds] if isinstance(kinds, str) else kinds
    return bool(names) and isinstance(names, list) and all(isinstance(name, str) and name in _HOLDS_NO_NUMBER for name in names)


def _literal(text: str) -> str:
    return f"/{literal_regex(text)}/" if text else ""
