"""The texts of objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ramet.constraint.schema.language import Language, both, minus, of_tree
from ramet.constraint.schema.pattern import read_pattern
from ramet.constraint.schema.sites import ABSENT, NeedsGrammar, Site
from ramet.constraint.schema.spelling import spelled_text
from ramet.constraint.schema.strings import Conditions, everything, key_tree, string_language
from ramet.constraint.schema.terms import Term
from ramet.constraint.schema.trees import NOTHING, choose, join, maybe, repeat
from ramet.constraint.syntax import EMPTY, Alt, Node, literal

if TYPE_CHECKING:
    from ramet.constraint.schema.values import Values

_MAX_CLASSES: Final = 64  # of keys that match different patterns
_OPENING: Final = ("properties", "patternProperties", "additionalProperties")


@dataclass(frozen=True, slots=True)
class _Member:
    node: Node
    is_required: bool


class Objects:
    """Members come in the order of the schema, further ones behind them and only where the schema says what they are."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._source = values.source

    def node(self, term: Term) -> Node:
        """The objects that satisfy a term; NOTHING when there is none."""
        low = max(int(site.keywords.get("minProperties", 0)) for site in term)
        highs = [int(site.keywords["maxProperties"]) for site in term if "maxProperties" in site.keywords]
        high = min(highs) if highs else None
        required = dict.fromkeys(name for site in term for name in site.keywords.get("required", ()))
        if high is not None and high < max(low, len(required)):
            return self._values.empty(term[-1], f"maxProperties {high} is less than what is required")
        if high == 0:
            return self._values.style.object(EMPTY, True)
        if not any(name in site.keywords for site in term for name in _OPENING):
            raise NeedsGrammar(term[-1].path, "an object whose properties may be anything")
        absent = {name for site in term for name in site.keywords.get(ABSENT, ())}
        members = self._members(term, required, absent)
        if members is None:
            return NOTHING
        extra = self._extra(term, [*members, *absent])
        kept = [member for member in members.values() if member is not None]
        num_required = sum(member.is_required for member in kept)
        low = 0 if low <= num_required else low
        if low > len(kept) and extra is NOTHING and not self._is_closed(term):
            raise NeedsGrammar(term[-1].path, "minProperties asks for properties that may be anything")
        if low > 1 and extra is not NOTHING:
            place = next(site.path for site in term if "minProperties" in site.keywords)
            raise self._source.error(
                f"{place}/minProperties: beyond the required properties it is not offered beside further keys, which may be equal"
            )
        if high is not None and high >= len(kept) and extra is NOTHING:
            high = None
        may_be_empty = low == 0 and num_required == 0
        body = self._plain(kept, extra) if low == 0 and high is None else self._counted(kept, extra, max(low, 1), high)
        if body is NOTHING and not may_be_empty:
            return self._values.empty(term[-1], f"minProperties is {low} and at most {len(kept)} properties are possible")
        return self._values.style.object(body, may_be_empty)

    def _is_closed(self, term: Term) -> bool:
        return any(site.keywords.get("additionalProperties") is False for site in term)

    def _members(self, term: Term, required: dict[str, None], absent: set[str]) -> dict[str, _Member | None] | None:
        """The members with a name of their own, None where the name is not possible; None for all when a required one is not."""
        names = dict.fromkeys(name for site in term for name in site.keywords.get("properties", ()))
        names |= required
        by_name = {name: self._sites(term, name) for name in names}
        for name in self._listed_names(term):
            if name not in by_name and (sites := self._sites(term, name)):
                by_name[name] = sites
                names[name] = None
        found: dict[str, _Member | None] = dict.fromkeys(names)
        first_open: NeedsGrammar | None = None
        for name in sorted(names, key=lambda name: not (name in required and _is_listed(by_name[name]))):  # what tells objects apart first
            sites = by_name[name]
            try:
                value = NOTHING if sites is None or name in absent else self._values.node(sites)
            except NeedsGrammar as error:
                first_open = first_open or error  # another member may still be impossible
                continue
            if value is not NOTHING:
                found[name] = _Member(join(spelled_text(name), self._values.style.colon, value), name in required)
            elif name in required:
                self._values.empty(term[-1], f"the required property {name!r} has no value")
                return None
        if first_open is not None:
            raise first_open
        return found

    def _sites(self, term: Term, name: str) -> list[Site] | None:
        """What the value under a name must satisfy; None when the name is not allowed."""
        evaluator = self._values.evaluator
        for site in term:
            if "propertyNames" in site.keywords and not evaluator.satisfies(name, site.child("propertyNames")):
                return None
        sites = [inner for site in term for inner in evaluator.sites_of_property(site, name)]
        return None if any(inner.schema is False for inner in sites) else sites

    def _listed_names(self, term: Term) -> list[str]:
        """Names that an enum of `propertyNames` lists, where further properties are asked for."""
        names: list[str] = []
        for site in term:
            if "propertyNames" in site.keywords and self._opens(term):
                for inner in self._values.alternatives([site.child("propertyNames")]):
                    names += (
                        value
                        for keywords in (other.keywords for other in inner)
                        for value in _listed_values(keywords)
                        if isinstance(value, str)
                    )
        return names

    def _opens(self, term: Term) -> bool:
        """Whether the schema says what further properties are."""
        return any(site.keywords.get("additionalProperties", False) is not False or site.keywords.get("patternProperties") for site in term)

    # ---- keys without a name in the schema

    def _extra(self, term: Term, names: Sequence[str]) -> Node:
        """One further member; NOTHING when there is none."""
        if not self._opens(term):
            return NOTHING
        keys = everything(self._source)
        if names:
            keys = minus(self._source, keys, of_tree(self._source, Alt(tuple(map(literal, names)))))
        for site in term:
            if "propertyNames" in site.keywords:
                keys = self._with_names(keys, site.child("propertyNames"))
        options = []
        for found, matched in self._classes(term, keys):
            sites = self._sites_of_class(term, matched)
            value = NOTHING if sites is None else self._values.node(sites)
            if value is not NOTHING:
                options.append(join(key_tree(self._source, found, self._values.made), self._values.style.colon, value))
        return choose(options)

    def _with_names(self, keys: Language, names: Site) -> Language:
        terms = self._values.alternatives([names])
        if not terms or keys.is_empty:
            return Language([], [])
        if terms == [()]:
            return keys
        are_listed = [any(_listed_values(site.keywords) for site in term) for term in terms]
        if all(are_listed):
            return Language([], [])  # these names have members of their own
        if any(are_listed):
            raise self._source.error(f"{names.path}: an enum among other alternatives is not offered here")
        if len(terms) > 1:
            raise self._source.error(f"{names.path}: alternatives are not offered here: write one pattern")
        if not all(_allows_strings(site) for site in terms[0]):
            return Language([], [])
        return both(self._source, keys, string_language(self._source, self._values.conditions(terms[0])))

    def _classes(self, term: Term, keys: Language) -> list[tuple[Language, frozenset[str]]]:
        """Keys by the patterns that they match."""
        classes: list[tuple[Language, frozenset[str]]] = [(keys, frozenset())]
        places = {pattern: site.path for site in term for pattern in site.keywords.get("patternProperties", ())}
        for pattern, place in places.items():
            split: list[tuple[Language, frozenset[str]]] = []
            language = string_language(self._source, Conditions(rules=read_pattern(self._source, f"{place}/patternProperties", pattern)))
            for found, matched in classes:
                split += ((both(self._source, found, language), matched | {pattern}), (minus(self._source, found, language), matched))
            classes = [(found, matched) for found, matched in split if not found.is_empty]
            if len(classes) > _MAX_CLASSES:
                raise self._source.error(f"{place}/patternProperties: the patterns overlap in more than {_MAX_CLASSES} ways")
        return [(found, matched) for found, matched in classes if not found.is_empty]

    def _sites_of_class(self, term: Term, matched: frozenset[str]) -> list[Site] | None:
        """What the values under these keys must satisfy; None when no schema says it."""
        sites: list[Site] = []
        for site in term:
            own = [site.named("patternProperties", name) for name in site.keywords.get("patternProperties", ()) if name in matched]
            if not own and "additionalProperties" in site.keywords:
                own = [site.child("additionalProperties")]
            sites += own
        return sites or None

    # ---- members in a row

    def _plain(self, members: Sequence[_Member], extra: Node) -> Node:
        comma = self._values.style.comma
        more = repeat(join(comma, extra), 0, None)
        first = next((at for at, member in enumerate(members) if member.is_required), None)
        if first is not None:
            before = [maybe(join(member.node, comma)) for member in members[:first]]
            return join(*before, members[first].node, self._behind(members[first + 1 :]), more)
        options = [join(self._some(members), more)] if members else []
        return choose([*options, *([] if extra is NOTHING else [join(extra, more)])]) if members or extra is not NOTHING else EMPTY

    def _behind(self, members: Sequence[_Member]) -> Node:
        """Members behind another one."""
        comma = self._values.style.comma
        return join(*(join(comma, m.node) if m.is_required else maybe(join(comma, m.node)) for m in members))

    def _some(self, members: Sequence[_Member]) -> Node:
        """At least one of optional members: of the first half and perhaps of the second, or only of the second."""
        if len(members) == 1:
            return members[0].node
        half = len(members) // 2
        return choose([join(self._some(members[:half]), self._behind(members[half:])), self._some(members[half:])])

    def _counted(self, members: Sequence[_Member], extra: Node, low: int, high: int | None) -> Node:
        """Between `low` and `high` members; NOTHING when there are too few. What may follow is made once a number of members before."""
        comma = self._values.style.comma
        last = low if high is None else high
        behind = [self._further(extra, count, low, high) for count in range(last + 1)]
        for at in reversed(range(len(members))):
            row: list[Node] = []
            for count in range(min(at, last) + 1):
                options = [] if members[at].is_required else [behind[count]]
                if count < last or high is None:
                    after = behind[min(count + 1, last)]
                    options.append(join(comma, members[at].node, after) if count else join(members[at].node, after))
                row.append(choose(options))
            behind = row
            self._values.made += row
        return behind[0]

    def _further(self, extra: Node, count: int, low: int, high: int | None) -> Node:
        fewest, most = max(low - count, 0), None if high is None else high - count
        if extra is NOTHING:
            return EMPTY if fewest == 0 else NOTHING
        more = join(self._values.style.comma, extra)
        if count:
            return repeat(more, fewest, most)
        some = NOTHING if most == 0 else join(extra, repeat(more, max(fewest - 1, 0), None if most is None else most - 1))
        return choose([some, EMPTY] if fewest == 0 else [some])


def _listed_values(keywords: dict[str, object]) -> tuple[object, ...]:
    found = keywords["enum"] if "enum" in keywords else [keywords["const"]] if "const" in keywords else ()
    return tuple(found) if isinstance(found, list) else ()


def _is_listed(sites: list[Site] | None) -> bool:
    return sites is None or any({"enum", "const"} & site.keywords.keys() for site in sites if isinstance(site.schema, dict))


def _allows_strings(site: Site) -> bool:
    types = site.keywords.get("type", "string")
    return "string" in (types if isinstance(types, list) else [types])
