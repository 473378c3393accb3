"""A schema and its place; and the assertions that are made up here because another keyword says the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ramet.constraint.schema.keywords import Schema, escape

# Keywords that no author can write, since a text never holds them: `check_schema` refuses every unknown one.
ABSENT: Final = "(absent)"  # names that an object must not have
NOT_VALUES: Final = "(not values)"  # a list of values that are excluded
NOT_WHOLE: Final = "(not whole)"  # a number that is no integer
NOT_PATTERN: Final = "(not pattern)"  # a string in which the pattern is not found

TYPE_OF_KEYWORD: Final = {
    "string": ("minLength", "maxLength", "pattern", "format", NOT_PATTERN),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format", NOT_WHOLE),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains"),
    "object": (
        "properties",
        "patternProperties",
        "additionalProperties",
        "propertyNames",
        "required",
        "minProperties",
        "maxProperties",
        ABSENT,
    ),
}
ASSERTIONS: Final = frozenset(("type", "enum", "const", NOT_VALUES)) | {name for names in TYPE_OF_KEYWORD.values() for name in names}
COMBINERS: Final = frozenset(("$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas"))


@dataclass(frozen=True, slots=True)
class Site:
    """A schema at a pointer; sites with one pointer hold one schema."""

    path: str
    schema: Schema

    @property
    def keywords(self) -> dict[str, Any]:
        """The keywords; only for a schema that is an object."""
        assert isinstance(self.schema, dict), f"{self.path} is {self.schema}"
        return self.schema

    def child(self, keyword: str) -> Site:
        """The schema under a keyword."""
        return Site(f"{self.path}/{escape(keyword)}", self.keywords[keyword])

    def named(self, keyword: str, name: str) -> Site:
        """The schema under a name under a keyword."""
        return Site(f"{self.path}/{escape(keyword)}/{escape(name)}", self.keywords[keyword][name])

    def listed(self, keyword: str) -> Iterator[Site]:
        """The schemas of a list."""
        return (self.numbered(keyword, number) for number in range(len(self.keywords[keyword])))

    def numbered(self, keyword: str, number: int) -> Site:
        """One schema of a list."""
        return Site(f"{self.path}/{escape(keyword)}/{number}", self.keywords[keyword][number])

    def made(self, mark: str, schema: Schema) -> Site:
        """A schema that follows from this one; `mark` says how, and one mark always makes the same."""
        return Site(f"{self.path}({mark})", schema)


class NeedsGrammar(Exception):
    """No finite automaton holds the values of the schema at `path`."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why
