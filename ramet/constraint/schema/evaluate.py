"""Whether a value satisfies a schema: for the values of enums and the names of properties, where that can be told at once."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

from ramet.constraint.limits import Source
from ramet.constraint.schema.formats import FORMATS, INTEGER_BITS, format_tree
from ramet.constraint.schema.language import matches
from ramet.constraint.schema.pattern import read_pattern
from ramet.constraint.schema.read import Value, canonical
from ramet.constraint.schema.refs import References
from ramet.constraint.schema.sites import ABSENT, NOT_PATTERN, NOT_VALUES, NOT_WHOLE, Site

_MAX_DEPTH = 60


class Evaluator:
    """Every keyword that `check_schema` lets through; formats only if told so, since to many readers they are notes."""

    def __init__(self, source: Source, refs: References, heeds_formats: bool) -> None:
        self._source = source
        self._heeds_formats = heeds_formats
        self._refs = refs
        self._depth = 0
        self._sets: dict[tuple[str, str], frozenset[object]] = {}

    def satisfies(self, value: Value, site: Site) -> bool:
        """Whether the value satisfies the whole schema. Raises InvalidConstraint when references go round without end."""
        if isinstance(site.schema, bool):
            return site.schema
        if self._depth >= _MAX_DEPTH:
            raise self._source.error(f"{site.path}: schemas nest deeper than {_MAX_DEPTH} for one value, or refer to themselves")
        self._depth += 1
        try:
            return self.asserts(value, site) and self._applies(value, site)
        finally:
            self._depth -= 1

    def asserts(self, value: Value, site: Site) -> bool:
        """Whether the value satisfies what the schema says itself, without those that it combines."""
        keywords = site.keywords
        if "type" in keywords and not has_type(value, keywords["type"]):
            return False
        if "enum" in keywords and canonical(value) not in self._set_of(site, "enum"):
            return False
        if "const" in keywords and canonical(value) != canonical(keywords["const"]):
            return False
        if NOT_VALUES in keywords and canonical(value) in self._set_of(site, NOT_VALUES):
            return False
        if isinstance(value, str):
            return self._string(value, site)
        if isinstance(value, int | Decimal) and not isinstance(value, bool):
            return _number(value, keywords) and (not self._heeds_formats or _has_bits(value, keywords.get("format", "")))
        if isinstance(value, list):
            return self._array(value, site)
        return self._object(value, site) if isinstance(value, dict) else True

    def _set_of(self, site: Site, keyword: str) -> frozenset[object]:
        key = (site.path, keyword)
        if key not in self._sets:
            self._sets[key] = frozenset(map(canonical, site.keywords[keyword]))
        return self._sets[key]

    def _applies(self, value: Value, site: Site) -> bool:
        keywords = site.keywords
        if "$ref" in keywords and not self.satisfies(value, self.target(site)):
            return False
        if not all(self.satisfies(value, inner) for inner in (site.listed("allOf") if "allOf" in keywords else ())):
            return False
        if "anyOf" in keywords and not any(self.satisfies(value, inner) for inner in site.listed("anyOf")):
            return False
        if "oneOf" in keywords and sum(self.satisfies(value, inner) for inner in site.listed("oneOf")) != 1:
            return False
        if "not" in keywords and self.satisfies(value, site.child("not")):
            return False
        if "if" in keywords:
            branch = "then" if self.satisfies(value, site.child("if")) else "else"
            if branch in keywords and not self.satisfies(value, site.child(branch)):
                return False
        if isinstance(value, dict):
            for name, others in keywords.get("dependentRequired", {}).items():
                if name in value and not all(other in value for other in others):
                    return False
            for name in keywords.get("dependentSchemas", ()):
                if name in value and not self.satisfies(value, site.named("dependentSchemas", name)):
                    return False
        return True

    def target(self, site: Site) -> Site:
        """Where the `$ref` of a schema leads."""
        return self._refs.site(site.keywords["$ref"], site.path)

    def finds(self, text: str, pattern: str, path: str) -> bool:
        """Whether a pattern is found in a string."""
        return all(matches(rule.node, text) != rule.is_excluded for rule in read_pattern(self._source, path, pattern))

    def _string(self, value: str, site: Site) -> bool:
        keywords = site.keywords
        if not keywords.get("minLength", 0) <= len(value) <= keywords.get("maxLength", len(value)):
            return False
        if "pattern" in keywords and not self.finds(value, keywords["pattern"], f"{site.path}/pattern"):
            return False
        if NOT_PATTERN in keywords and self.finds(value, keywords[NOT_PATTERN], f"{site.path}/pattern"):
            return False
        return not self._heeds_formats or keywords.get("format") not in FORMATS or matches(format_tree(keywords["format"]), value)

    def _array(self, value: list[Value], site: Site) -> bool:
        keywords = site.keywords
        if not keywords.get("minItems", 0) <= len(value) <= keywords.get("maxItems", len(value)):
            return False
        if keywords.get("uniqueItems") and len({canonical(item) for item in value}) < len(value):
            return False
        prefix = list(site.listed("prefixItems")) if "prefixItems" in keywords else []
        if not all(self.satisfies(item, inner) for item, inner in zip(value, prefix, strict=False)):
            return False
        if "items" in keywords and not all(self.satisfies(item, site.child("items")) for item in value[len(prefix) :]):
            return False
        if "contains" in keywords:
            count = sum(self.satisfies(item, site.child("contains")) for item in value)
            return bool(keywords.get("minContains", 1) <= count <= keywords.get("maxContains", count))
        return True

    def _object(self, value: dict[str, Value], site: Site) -> bool:
        keywords = site.keywords
        if not keywords.get("minProperties", 0) <= len(value) <= keywords.get("maxProperties", len(value)):
            return False
        if not all(name in value for name in keywords.get("required", ())) or any(name in value for name in keywords.get(ABSENT, ())):
            return False
        if "propertyNames" in keywords and not all(self.satisfies(name, site.child("propertyNames")) for name in value):
            return False
        return all(self.satisfies(item, inner) for name, item in value.items() for inner in self.sites_of_property(site, name))

    def sites_of_property(self, site: Site, name: str) -> list[Site]:
        """The schemas that one schema has for the value under a name."""
        keywords = site.keywords
        found = [site.named("properties", name)] if name in keywords.get("properties", ()) else []
        for pattern in keywords.get("patternProperties", ()):
            if self.finds(name, pattern, f"{site.path}/patternProperties"):
                found.append(site.named("patternProperties", pattern))
        if not found and "additionalProperties" in keywords:
            found.append(site.child("additionalProperties"))
        return found


def has_type(value: Value, types: Any) -> bool:
    """Whether a value is of a type, or of one in a list; a number without a fraction is an integer."""
    if isinstance(types, list):
        return any(has_type(value, name) for name in types)
    if types in ("integer", "number"):
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        return is_number and (types == "number" or value == int(value))
    kinds: dict[str, type] = {"null": type(None), "boolean": bool, "string": str, "array": list, "object": dict}
    return isinstance(value, kinds[types])


def _number(value: int | Decimal, keywords: dict[str, Any]) -> bool:
    if "minimum" in keywords and value < keywords["minimum"] or "maximum" in keywords and value > keywords["maximum"]:
        return False
    if "exclusiveMinimum" in keywords and value <= keywords["exclusiveMinimum"]:
        return False
    if "exclusiveMaximum" in keywords and value >= keywords["exclusiveMaximum"]:
        return False
    if NOT_WHOLE in keywords and value == int(value):
        return False
    return "multipleOf" not in keywords or (Fraction(value) / Fraction(keywords["multipleOf"])).denominator == 1


def _has_bits(value: int | Decimal, name: str) -> bool:
    bits = INTEGER_BITS.get(name)
    return bits is None or -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
