"""What holds where a schema does not."""

from __future__ import annotations

from typing import Any, Final

from ramet.constraint.limits import Source
from ramet.constraint.schema.keywords import TYPES
from ramet.constraint.schema.refs import References
from ramet.constraint.schema.sites import ABSENT, ASSERTIONS, COMBINERS, NOT_PATTERN, NOT_VALUES, NOT_WHOLE, Site

_OPPOSITE_BOUND: Final = {
    "minimum": "exclusiveMaximum",
    "maximum": "exclusiveMinimum",
    "exclusiveMinimum": "maximum",
    "exclusiveMaximum": "minimum",
}
_OPPOSITE_COUNT: Final = {
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1),
    "maxProperties": ("object", "minProperties", 1),
}
_MAX_REFS: Final = 50


def negated(source: Source, refs: References, site: Site, num_refs: int = 0) -> list[Site]:
    """Schemas of which one holds exactly where `site` does not. Raises InvalidConstraint for a keyword whose opposite is not offered."""
    if isinstance(site.schema, bool):
        return [] if site.schema else [site.made("not", True)]
    options: list[Site] = []
    for keyword, value in site.keywords.items():
        if keyword == "$ref":
            if num_refs > _MAX_REFS:
                raise source.error(f"{site.path}/$ref: it refers to itself without a value in between")
            options += negated(source, refs, refs.site(value, site.path), num_refs + 1)
        elif keyword in ASSERTIONS or keyword in COMBINERS:
            options += _opposites(source, site, keyword, value)
    return options


def _opposites(source: Source, site: Site, keyword: str, value: Any) -> list[Site]:
    def option(schema: dict[str, Any], detail: str = "") -> Site:
        return site.made(f"not {keyword}{detail}", schema)

    if keyword == "not":
        return [site.child("not")]
    if keyword == "allOf":
        return [option({"not": inner.schema}, inner.path) for inner in site.listed("allOf")]
    if keyword == "anyOf":
        return [option({"allOf": [{"not": inner} for inner in value]})]
    if keyword == "type":
        names = set(value if isinstance(value, list) else [value])
        is_split = "integer" in names and "number" not in names  # then numbers that are none remain
        rest = [name for name in TYPES if name not in names and name != "integer" and not (is_split and name == "number")]
        return [option({"type": rest})] * bool(rest) + [option({"type": "number", NOT_WHOLE: True}, " integer")] * is_split
    if keyword in ("enum", "const"):
        return [option({NOT_VALUES: value if keyword == "enum" else [value]})]
    if keyword == "pattern":
        return [option({"type": "string", NOT_PATTERN: value})]
    if keyword in _OPPOSITE_BOUND:
        return [option({"type": "number", _OPPOSITE_BOUND[keyword]: value})]
    if keyword in _OPPOSITE_COUNT:
        kind, other, step = _OPPOSITE_COUNT[keyword]
        return [option({"type": kind, other: int(value) + step})] if int(value) + step >= 0 else []
    if keyword == "required":
        return [option({"type": "object", ABSENT: [name]}, " " + name) for name in value]
    if keyword == "properties":
        return [
            option({"type": "object", "required": [name], "properties": {name: {"not": inner}}}, " " + name)
            for name, inner in value.items()
        ]
    raise source.error(f"{site.path}/{keyword}: the opposite of {keyword} is not offered: write the cases under anyOf")
