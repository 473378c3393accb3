"""Schemas that always need themselves: no value matches them, and a text that begins one cannot end."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from ramet.constraint.limits import Source

Schema = dict[str, Any] | bool


def check_ends(schema: Schema, refs: list[str], source: Source) -> None:
    """Raise InvalidConstraint, with its name, for a reference among `refs` to a schema of which no value has an end."""
    ending: set[str] = set()
    while True:
        source.check_time()
        found = {ref for ref in refs if ref in ending or _can_end(resolved(schema, ref), ending)}
        if found == ending:
            break
        ending = found
    for ref in refs:
        if ref not in ending:
            raise source.error(f"no value matches $ref {ref!r}: it needs itself again and again")


def resolved(schema: Schema, ref: str) -> Schema:
    """The schema that a pointer within it names, which must be there."""
    at: Any = schema
    for part in unquote(ref[1:]).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        at = at[int(name)] if isinstance(at, list) else at[name]
    assert isinstance(at, dict | bool), f"{ref} names no schema"
    return at


def _can_end(schema: Schema, ending: set[str]) -> bool:
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and schema["$ref"] not in ending:
        return False
    if not all(_can_end(part, ending) for part in schema.get("allOf", ())):
        return False
    if any(keyword in schema and not any(_can_end(option, ending) for option in schema[keyword]) for keyword in ("anyOf", "oneOf")):
        return False
    if "const" in schema or "enum" in schema:
        return True
    types = schema.get("type", "null")  # without one there are values that hold no others
    return any(_type_can_end(name, schema, ending) for name in ([types] if isinstance(types, str) else types))


def _type_can_end(name: str, schema: dict[str, Any], ending: set[str]) -> bool:
    if name == "object":
        other = schema.get("additionalProperties", True) if "patternProperties" not in schema else True
        return all(_can_end(schema.get("properties", {}).get(key, other), ending) for key in schema.get("required", ()))
    if name == "array":
        fixed = schema.get("prefixItems", [])
        num_items = schema.get("minItems", 0)
        return all(_can_end(item, ending) for item in fixed[:num_items]) and (
            num_items <= len(fixed) or _can_end(schema.get("items", True), ending)
        )
    return True
