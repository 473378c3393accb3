"""The kind "structural_tag": free text with regions of JSON in it; the text is the JSON object that says which.

{"type": "structural_tag",
 "structures": [{"begin": "<function=f>", "schema": {...}, "end": "</function>"}],
 "triggers": ["<function="]}
"""

from __future__ import annotations

import json
from typing import Any, Final

from ramet.constraint.base import Compiled
from ramet.constraint.grammar.matcher import GrammarConstraint
from ramet.constraint.grammar.tags import Region, tags_grammars
from ramet.constraint.limits import Source
from ramet.constraint.schema.read import plain_decoder
from ramet.constraint.vocabulary import Vocabulary

_KEYS: Final = ("type", "structures", "triggers")
_REGION_KEYS: Final = ("begin", "schema", "end")


def compile_structural_tag(source: Source, vocabulary: Vocabulary) -> Compiled:
    """Compile tags; `constraint.grammar.tags` says what they mean. Raises InvalidConstraint for another form and for unknown keys."""
    try:
        tag = plain_decoder(source).decode(source.text)
    except json.JSONDecodeError as error:
        raise source.error(f"the structural tag is no JSON: {error.msg}", error.pos) from error
    except RecursionError as error:
        raise source.error("the structural tag nests too deep") from error
    if not isinstance(tag, dict):
        raise source.error("a structural tag is a JSON object")
    if "format" in tag:
        raise source.error('the form with "format" is not offered: use "structures" and "triggers"')
    _check_keys(tag, _KEYS, "a structural tag", source)
    if tag["type"] != "structural_tag":
        raise source.error(f'"type" must be "structural_tag", not {tag["type"]!r}')
    structures, triggers = tag["structures"], tag["triggers"]
    if not isinstance(structures, list) or not structures:
        raise source.error('"structures" must be a list that is not empty')
    if not isinstance(triggers, list) or not triggers or not all(isinstance(trigger, str) for trigger in triggers):
        raise source.error('"triggers" must be a list of strings that is not empty')
    regions = [_region(structure, triggers, source) for structure in structures]
    return GrammarConstraint(tags_grammars(regions, list(dict.fromkeys(triggers)), source), source, vocabulary)


def _region(structure: object, triggers: list[str], source: Source) -> Region:
    if not isinstance(structure, dict):
        raise source.error('each of "structures" is an object with begin, schema and end')
    _check_keys(structure, _REGION_KEYS, 'one of "structures"', source)
    begin, schema, end = structure["begin"], structure["schema"], structure["end"]
    for name, text in (("begin", begin), ("end", end)):
        if not isinstance(text, str) or any(0xD800 <= ord(char) <= 0xDFFF for char in text):
            raise source.error(f'"{name}" must be a string of whole characters, not {text!r}')
    if not any(begin.startswith(trigger) for trigger in triggers):
        raise source.error(f"the begin {begin!r} starts with none of the triggers: a region could never begin")
    if not isinstance(schema, dict | bool):
        raise source.error(f"the schema behind {begin!r} is an object, true or false")
    return Region(begin, schema, end)


def _check_keys(value: dict[str, Any], keys: tuple[str, ...], what: str, source: Source) -> None:
    for key in value:
        if key not in keys:
            raise source.error(f"{what} has no key {key!r}; known are " + ", ".join(keys))
    for key in keys:
        if key not in value:
            raise source.error(f"{what} needs the key {key!r}")
