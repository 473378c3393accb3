"""One node for the JSON texts of all values of a schema."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from math import gcd, lcm
from typing import Any, Final

from ramet.constraint.limits import Source
from ramet.constraint.schema.arrays import Arrays
from ramet.constraint.schema.evaluate import Evaluator
from ramet.constraint.schema.formats import FORMATS, INTEGER_BITS
from ramet.constraint.schema.keywords import TYPES
from ramet.constraint.schema.language import TooLarge
from ramet.constraint.schema.numbers import Bounds, Numbers, next_above, next_below, number_tree
from ramet.constraint.schema.objects import Objects
from ramet.constraint.schema.pattern import Rule, read_pattern
from ramet.constraint.schema.read import Value, canonical
from ramet.constraint.schema.refs import References
from ramet.constraint.schema.sites import NOT_PATTERN, NOT_VALUES, NOT_WHOLE, NeedsGrammar, Site
from ramet.constraint.schema.spelling import Style
from ramet.constraint.schema.strings import Conditions, string_tree
from ramet.constraint.schema.terms import Expander, Term
from ramet.constraint.schema.trees import NOTHING, choose
from ramet.constraint.syntax import Node
from ramet.errors import InvalidConstraint

MAX_NESTING: Final = 60
_MAX_PROOF_NESTING: Final = 12
_COUNTED: Final = frozenset(
    ("pattern", "format", "minLength", "maxLength", "multipleOf", "patternProperties", "propertyNames", NOT_PATTERN)
)
_MAX_NODES: Final = 200_000


class Values:
    """Nodes of schemas, each made once.

    `made` has every node with others below it, inner ones first. `emptied` says of places where nothing was left why, the first one first.
    `heeds_formats` is off where it must be shown that two schemas exclude each other: to many readers a format is but a note.
    """

    def __init__(self, source: Source, refs: References, style: Style, heeds_formats: bool = True) -> None:
        self.source = source
        self.refs = refs
        self.style = style
        self.heeds_formats = heeds_formats
        self.evaluator = Evaluator(source, refs, heeds_formats)
        self.made: list[Node] = []
        self.emptied: list[str] = []
        self._prover: Values | None = None
        self._expander = Expander(source, refs, self.excludes)
        self._known: dict[tuple[str, ...], Node] = {}
        self._terms: dict[tuple[str, ...], Node] = {}
        self._open: set[Hashable] = set()
        self._open_terms: set[Hashable] = set()
        self._failed: dict[Hashable, tuple[str, str]] = {}  # nodes and terms, as long as what they need is open, or has failed too
        self._arrays = Arrays(self)
        self._objects = Objects(self)

    def node(self, sites: Sequence[Site]) -> Node:
        """The texts of the values that satisfy all of these schemas; NOTHING when there is none.

        Raises NeedsGrammar where no finite automaton does, InvalidConstraint for what is not offered or too large.
        """
        key = tuple(sorted({site.path for site in sites if site.schema is not True}))
        if key in self._known:
            return self._known[key]
        where = sites[0].path if sites else "#"
        with self._attempt(key, self._open, where):
            if len(self._open) > (MAX_NESTING if self.heeds_formats else _MAX_PROOF_NESTING):
                if self.refs.are_recursive:  # how deep this walk goes says nothing then
                    raise NeedsGrammar(where, "references lead back to where they come from")
                raise self.source.error(f"{where}: values nest deeper than {MAX_NESTING}")
            if len(self.made) > _MAX_NODES:
                raise self.source.error(f"{where}: the schema is too large: more than {_MAX_NODES} parts")
            found = choose(self._term(term, where) for term in self.alternatives(sites))
        self._known[key] = found
        self.made.append(found)
        return found

    def alternatives(self, sites: Sequence[Site]) -> list[Term]:
        """The schemas as alternatives of plain assertions."""
        return self._expander.of_value(sites)

    def empty(self, site: Site, why: str) -> Node:
        """NOTHING, with the reason for the message."""
        self.emptied.append(f"{site.path}: {why}")
        return NOTHING

    def excludes(self, sites: Sequence[Site]) -> bool:
        """Whether it is shown that no value satisfies all of these schemas. Raises NeedsGrammar where a proof leads back to itself."""
        if self._prover is None:
            self._prover = Values(self.source, self.refs, self.style, heeds_formats=False) if self.heeds_formats else self
        try:
            return self._prover.node(sites) is NOTHING
        except NeedsGrammar:
            if not self.heeds_formats:
                raise
            return False
        except InvalidConstraint:
            self.source.check_time()
            return False

    @contextmanager
    def _attempt(self, key: Hashable, attempts: set[Hashable], where: str) -> Iterator[None]:
        """Work on what must not meet itself, and not again on what needed a grammar before."""
        if key in self._failed:
            raise NeedsGrammar(*self._failed[key])
        if key in attempts:
            raise NeedsGrammar(where, "it recurses")
        attempts.add(key)
        num_failed = len(self._failed)
        try:
            yield
        except NeedsGrammar as error:
            self._failed[key] = (error.path, error.why)
            raise
        finally:
            attempts.remove(key)
        while len(self._failed) > num_failed:
            self._failed.popitem()  # it may have failed only because this one was open

    def _term(self, term: Term, where: str) -> Node:
        key = tuple(site.path for site in term)
        if key not in self._terms:
            with self._attempt(frozenset(key), self._open_terms, where):  # by what it says, not by how a reference to it is called
                self._terms[key] = self._make(term, where)
        return self._terms[key]

    def _make(self, term: Term, where: str) -> Node:
        if not term:
            raise NeedsGrammar(where, "any value is allowed")
        lists = [(site, name) for site in term for name in ("const", "enum") if name in site.keywords]
        if lists:
            return self._listed(term, *lists[0])
        types = set(TYPES) - {"integer"}
        for site in term:
            if "type" in site.keywords:
                types = _both_types(types, site.keywords["type"])
        if not types:
            return self.empty(term[-1], "no type is left")
        try:
            return choose([self._of_type(kind, term) for kind in TYPES if kind in types])
        except TooLarge as error:
            asked = sorted({f"{site.path}/{name}" for site in term for name in site.keywords if name in _COUNTED})
            raise self.source.error(
                f"{', '.join(asked) or where}: {error}: give a smaller maxLength or multipleOf, or fewer conditions at once"
            ) from error

    def _listed(self, term: Term, site: Site, keyword: str) -> Node:
        values = {canonical(value): value for value in ([site.keywords["const"]] if keyword == "const" else site.keywords["enum"])}
        kept = [value for value in values.values() if all(self.evaluator.asserts(value, other) for other in term)]
        if not kept:
            return self.empty(site, f"no value of its {keyword} satisfies what else is asked")
        return choose(map(self.style.value, kept))

    def _of_type(self, kind: str, term: Term) -> Node:
        if kind in ("null", "boolean"):
            values: tuple[Value, ...] = (None,) if kind == "null" else (True, False)
            taboo = {canonical(value) for value in _excluded(term)}
            return choose(self.style.value(value) for value in values if canonical(value) not in taboo)
        if kind in ("integer", "number"):
            return self._number(term, kind == "integer")
        if kind == "string":
            conditions = self.conditions(term)
            if conditions.high is not None and conditions.low > conditions.high:
                return self.empty(term[-1], f"minLength {conditions.low} is above maxLength {conditions.high}")
            found = string_tree(self.source, conditions, self.made)
            return found if found is not NOTHING else self.empty(term[-1], "no string satisfies its conditions")
        if any(isinstance(value, list if kind == "array" else dict) for value in _excluded(term)):
            raise self.source.error(f"{term[-1].path}: to exclude single {kind}s is not offered: write what is allowed")
        return self._arrays.node(term) if kind == "array" else self._objects.node(term)

    def _number(self, term: Term, is_integer: bool) -> Node:
        bounds = Bounds()
        multiple: Fraction | None = None
        for site in term:
            get = site.keywords.get
            bounds = bounds.within(
                *(None if name not in site.keywords else Decimal(site.keywords[name]) for name in ("minimum", "maximum"))
            )
            bounds = bounds.within(_above(get("exclusiveMinimum"), is_integer), _below(get("exclusiveMaximum"), is_integer))
            if "multipleOf" in site.keywords:
                step = Fraction(site.keywords["multipleOf"])
                multiple = (
                    step
                    if multiple is None
                    else Fraction(lcm(multiple.numerator, step.numerator), gcd(multiple.denominator, step.denominator))
                )
            bits = INTEGER_BITS.get(self._format(site, is_string=False))
            if bits is not None:
                bounds = bounds.within(Decimal(-(2 ** (bits - 1))), Decimal(2 ** (bits - 1) - 1))
                is_integer = True
        taboo = [Decimal(value) for value in _excluded(term) if isinstance(value, int | Decimal) and not isinstance(value, bool)]
        is_split = any(NOT_WHOLE in site.keywords for site in term)
        found = number_tree(self.source, Numbers(bounds, is_integer, is_split, multiple, tuple(taboo)), self.made)
        if found is not NOTHING:
            return found
        kind = "whole number" if is_integer else "number"
        shown = " ".join(f"{word} {bound}" for word, bound in (("from", bounds.low), ("to", bounds.high)) if bound is not None)
        return self.empty(term[-1], f"no {kind} {shown} satisfies what is asked")

    def conditions(self, term: Term) -> Conditions:
        """What a term asks of a string."""
        low, high = 0, None
        rules: list[Rule] = []
        formats: list[str] = []
        for site in term:
            keywords = site.keywords
            low = max(low, int(keywords.get("minLength", 0)))
            if "maxLength" in keywords:
                high = int(keywords["maxLength"]) if high is None else min(high, int(keywords["maxLength"]))
            if "pattern" in keywords:
                rules += read_pattern(self.source, f"{site.path}/pattern", keywords["pattern"])
            if NOT_PATTERN in keywords:
                rules.append(self._opposite(site, keywords[NOT_PATTERN]))
            name = self._format(site, is_string=True)
            if name in FORMATS:
                formats.append(name)
        excluded = tuple(value for value in _excluded(term) if isinstance(value, str))
        return Conditions(low, high, tuple(rules), tuple(formats), excluded)

    def _opposite(self, site: Site, pattern: str) -> Rule:
        rules = read_pattern(self.source, f"{site.path}/pattern", pattern)
        if len(rules) > 1:
            raise self.source.error(f"{site.path}/pattern: the opposite of a pattern with look-ahead is not offered")
        return Rule(rules[0].node, not rules[0].is_excluded)

    def _format(self, site: Site, is_string: bool) -> str:
        """The format where it counts."""
        name: str = site.keywords.get("format", "")
        return name if self.heeds_formats and (name in FORMATS) == is_string else ""


def _excluded(term: Term) -> list[Value]:
    return [value for site in term for value in site.keywords.get(NOT_VALUES, ())]


def _above(bound: Any, is_integer: bool) -> Decimal | None:
    if bound is None:
        return None
    return Decimal(Fraction(bound).__floor__() + 1) if is_integer else next_above(Decimal(bound))


def _below(bound: Any, is_integer: bool) -> Decimal | None:
    if bound is None:
        return None
    return Decimal(Fraction(bound).__ceil__() - 1) if is_integer else next_below(Decimal(bound))


def _both_types(left: set[str], names: str | list[str]) -> set[str]:
    """The types of both; integers are numbers."""
    right = set(names) if isinstance(names, list) else {names}
    found = left & right
    if "integer" in left and "number" in right or "number" in left and "integer" in right:
        found.add("integer")
    return found - {"integer"} if "number" in found else found
