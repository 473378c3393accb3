"""A schema as alternatives, each a list of plain assertions that must all hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from ramet.constraint.limits import Source
from ramet.constraint.schema.negate import negated
from ramet.constraint.schema.refs import References
from ramet.constraint.schema.sites import ABSENT, ASSERTIONS, Site
from ramet.errors import InvalidConstraint

Term: TypeAlias = tuple[Site, ...]  # read only their assertions; what they combine stands in the list as sites of its own

_MAX_TERMS: Final = 1000
_MAX_CHAIN: Final = 60  # of references and combining keywords that lead to each other
_MAX_UNPROVEN: Final = 64


class Expander:
    """Alternatives by pointer, each worked out once. `is_empty` says whether no value satisfies all of some schemas, as far as is known."""

    def __init__(self, source: Source, refs: References, is_empty: Callable[[Sequence[Site]], bool]) -> None:
        self._source = source
        self._refs = refs
        self._is_empty = is_empty
        self._known: dict[str, list[Term]] = {}
        self._open: dict[str, None] = {}

    def of_value(self, sites: Iterable[Site]) -> list[Term]:
        """The alternatives of several schemas that must all hold for one value.

        Raises InvalidConstraint when they are too many, for a schema that refers to itself with no value in between, and for a oneOf
        of which neither proof nor negation shows that one alternative excludes the others.
        """
        outer, self._open = self._open, {}  # what refers to itself with a value in between is told by whoever walks the values
        try:
            return self._all_of(sites)
        finally:
            self._open = outer

    def _all_of(self, sites: Iterable[Site]) -> list[Term]:
        whole: list[Term] = [()]
        for site in sites:
            whole = self._product(whole, self._terms(site), site.path)
        return whole

    def _product(self, left: list[Term], right: list[Term], path: str) -> list[Term]:
        if len(left) * len(right) > _MAX_TERMS:
            raise self._source.error(
                f"{path}: what must hold together has more than {_MAX_TERMS} combinations of alternatives: write fewer"
            )
        self._source.check_time()
        found: dict[tuple[str, ...], Term] = {}
        for one in left:
            for other in right:
                merged = tuple({site.path: site for site in one + other}.values())
                found[tuple(site.path for site in merged)] = merged
        return list(found.values())

    def _terms(self, site: Site) -> list[Term]:
        if isinstance(site.schema, bool):
            return [()] if site.schema else []
        if site.path in self._known:
            return self._known[site.path]
        if site.path in self._open:
            raise self._source.error(f"{site.path}: it refers to itself without a value in between")
        if len(self._open) >= _MAX_CHAIN:
            raise self._source.error(f"{site.path}: references and combinations lead to more than {_MAX_CHAIN} others")
        self._open[site.path] = None
        try:
            terms: list[Term] = [(site,)] if any(name in ASSERTIONS for name in site.keywords) else [()]
            for options in self._combined(site):
                terms = self._product(terms, self._any_of(options), site.path)
        finally:
            del self._open[site.path]
        self._known[site.path] = terms
        return terms

    def _any_of(self, options: Iterable[Sequence[Site]]) -> list[Term]:
        return [term for option in options for term in self._all_of(option)]

    def _combined(self, site: Site) -> Iterable[list[list[Site]]]:
        """For each combining keyword its options, each a list of schemas that must all hold."""
        keywords = site.keywords
        if "$ref" in keywords:
            yield [[self._refs.site(keywords["$ref"], site.path)]]
        if "allOf" in keywords:
            yield [list(site.listed("allOf"))]
        if "anyOf" in keywords:
            yield [[option] for option in site.listed("anyOf")]
        if "oneOf" in keywords:
            yield self._one_of(site)
        if "not" in keywords:
            yield self._not(site.child("not"))
        if "if" in keywords and ("then" in keywords or "else" in keywords):
            yield self._conditional(site)
        for name, others in keywords.get("dependentRequired", {}).items():
            yield [[self._absent(site, name)], [site.made(f"with {name}", {"required": others})]]
        for name in keywords.get("dependentSchemas", ()):
            yield [[self._absent(site, name)], [site.named("dependentSchemas", name)]]

    def _absent(self, site: Site, name: str) -> Site:
        return site.made(f"without {name}", {ABSENT: [name]})

    def _not(self, site: Site) -> list[list[Site]]:
        return [[option] for option in negated(self._source, self._refs, site)]

    def _conditional(self, site: Site) -> list[list[Site]]:
        condition = site.child("if")
        holds = [condition, *([site.child("then")] if "then" in site.keywords else [])]
        other = [site.child("else")] if "else" in site.keywords else []
        return [holds, *([*option, *other] for option in self._not(condition))]

    def _one_of(self, site: Site) -> list[list[Site]]:
        options = list(site.listed("oneOf"))
        others: list[list[Site]] = [[] for _ in options]  # those that may hold at the same time
        for at, option in enumerate(options):
            for number in range(at):
                if not self._is_empty([options[number], option]):
                    others[at].append(options[number])
                    others[number].append(option)
        if sum(map(len, others)) > _MAX_UNPROVEN:
            raise self._source.error(f"{site.path}/oneOf: too many alternatives may hold at the same time: tell them apart, or write anyOf")
        try:
            return [[option, *(self._opposite(other) for other in excluded)] for option, excluded in zip(options, others, strict=True)]
        except InvalidConstraint as error:
            first = next(at for at, excluded in enumerate(others) if excluded)
            raise self._source.error(
                f"{site.path}/oneOf: that alternatives {first} and {options.index(others[first][0])} exclude each other cannot be shown: "
                f"write anyOf, or give both a required property with a const of its own ({error.why})"
            ) from error

    def _opposite(self, site: Site) -> Site:
        self._not(site)  # so that what is not offered is told here
        return site.made("opposite", {"not": site.schema})
