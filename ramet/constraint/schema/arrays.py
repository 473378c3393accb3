"""The texts of arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ramet.constraint.schema.read import Value, canonical
from ramet.constraint.schema.sites import NeedsGrammar, Site
from ramet.constraint.schema.terms import Term
from ramet.constraint.schema.trees import NOTHING, choose, join, maybe, repeat
from ramet.constraint.syntax import EMPTY, Node

if TYPE_CHECKING:
    from ramet.constraint.schema.values import Values

_MAX_UNIQUE: Final = 8  # values of which an array without repetitions is built


class Arrays:
    """Items behind those of `prefixItems` are written only where `items` says what they are."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def node(self, term: Term) -> Node:
        """The arrays that satisfy a term; NOTHING when there is none."""
        low = max((int(site.keywords.get("minItems", 0)) for site in term), default=0)
        highs = [int(site.keywords["maxItems"]) for site in term if "maxItems" in site.keywords]
        high = min(highs) if highs else None
        if high is not None and low > high:
            return self._values.empty(term[-1], f"minItems {low} is above maxItems {high}")
        style = self._values.style
        if high == 0:
            is_met = all(int(site.keywords.get("minContains", 1)) == 0 for site in term if "contains" in site.keywords)
            return style.array(EMPTY, True) if is_met else self._values.empty(term[-1], "contains asks for an item")
        if not any(name in site.keywords for site in term for name in ("items", "prefixItems")):
            raise NeedsGrammar(term[-1].path, "an array whose items may be anything")
        containing = [site for site in term if "contains" in site.keywords]
        if containing:
            return self._containing(term, containing, low, high)
        prefix, rest = self._items(term, low, high)
        if any(site.keywords.get("uniqueItems") for site in term):
            return self._unique(term, prefix, rest, low, high)
        return self._listed(term, prefix, rest, low, high)

    def _items(self, term: Term, low: int, high: int | None) -> tuple[list[list[Site]], list[Site] | None]:
        """What each of the first items must satisfy, and all behind them, None: there are none."""
        num_first = max(len(site.keywords.get("prefixItems", ())) for site in term)
        prefix = [[*_at(term, number)] for number in range(num_first if high is None else min(num_first, high))]
        rest = [site.child("items") for site in term if "items" in site.keywords]
        if not rest and low > num_first:
            raise NeedsGrammar(term[-1].path, "items that may be anything")
        return prefix, rest or None

    def _listed(self, term: Term, prefix: list[list[Site]], rest: list[Site] | None, low: int, high: int | None) -> Node:
        comma = self._values.style.comma
        first: list[Node] = []
        for sites in prefix:
            item = self._values.node(sites)
            if item is NOTHING:
                high = len(first)
                break
            first.append(item)
        tail: Node = NOTHING
        if rest is not None and (high is None or high > len(first)):
            tail = self._values.node(rest)
        if tail is NOTHING:
            high = len(first) if high is None else min(high, len(first))
        if high is not None and low > high:
            return self._values.empty(term[-1], f"minItems is {low} and at most {high} items are possible")
        if not first:
            more = repeat(join(comma, tail), max(low - 1, 0), None if high is None else max(high - 1, 0))
            return self._values.style.array(join(tail, more) if high != 0 else EMPTY, low == 0)
        left = len(first)
        body = repeat(join(comma, tail), max(low - left, 0), None if high is None else high - left)
        for number in range(left - 1, 0, -1):
            body = join(comma, first[number], body)
            body = body if low > number else maybe(body)
            self._values.made.append(body)
        return self._values.style.array(join(first[0], body), low == 0)

    def _containing(self, term: Term, containing: list[Site], low: int, high: int | None) -> Node:
        """`contains` for arrays of any length: some items satisfy it, others may."""
        site = containing[0]
        count = int(site.keywords.get("minContains", 1))
        is_simple = len(containing) == 1 and "maxContains" not in site.keywords and high is None and low <= max(count, 1)
        is_plain = not any("prefixItems" in other.keywords or other.keywords.get("uniqueItems") for other in term)
        if not (is_simple and is_plain):
            raise self._values.source.error(
                f"{site.path}/contains: it is offered beside items, without maxContains, prefixItems, uniqueItems or bounds on the length"
            )
        sites = list(_at(term, 0))
        comma = self._values.style.comma
        item = self._values.node(sites)
        if count == 0:
            return self._values.style.array(join(item, repeat(join(comma, item), 0, None)) if item is not NOTHING else EMPTY, low == 0)
        wanted = self._values.node([*sites, site.child("contains")])
        before, behind = repeat(join(item, comma), 0, None), repeat(join(comma, item), 0, None)
        more = repeat(join(behind, comma, wanted), count - 1, count - 1)
        body = join(before, wanted, more, behind)
        return self._values.style.array(body, False) if body is not NOTHING else self._values.empty(site, "no item can be contained")

    def _unique(self, term: Term, prefix: list[list[Site]], rest: list[Site] | None, low: int, high: int | None) -> Node:
        """Arrays without repetitions, of few values that are all known."""
        values = None if prefix or rest is None else self._finite(rest)
        if high == 1:
            return self._listed(term, prefix, rest, low, high)
        if values is None or len(values) > _MAX_UNIQUE:
            place = next(site.path for site in term if site.keywords.get("uniqueItems"))
            raise self._values.source.error(
                f"{place}/uniqueItems: it is offered where all items are among at most {_MAX_UNIQUE} values of an enum: no automaton "
                "remembers others; leave it out and look at the result"
            )
        style = self._values.style
        nodes = [style.value(value) for value in values]
        most = len(nodes) if high is None else min(high, len(nodes))
        if low > most:
            return self._values.empty(term[-1], f"minItems is {low} and there are {most} different items")
        behind: dict[int, Node] = {}  # by the set of the values that are used
        for used in sorted(range(1, 1 << len(nodes)), key=int.bit_count, reverse=True):
            num_used = used.bit_count()
            more = (
                [join(style.comma, node, behind[used | 1 << at]) for at, node in enumerate(nodes) if not used >> at & 1]
                if num_used < most
                else []
            )
            behind[used] = choose([*more, EMPTY] if num_used >= low else more)
            self._values.made.append(behind[used])
        return style.array(choose(join(node, behind[1 << at]) for at, node in enumerate(nodes)) if most else EMPTY, low == 0)

    def _finite(self, sites: list[Site]) -> list[Value] | None:
        """The values that satisfy these schemas where each alternative lists them, None elsewhere."""
        found: dict[object, Value] = {}
        for term in self._values.alternatives(sites):
            lists = [site.keywords.get("enum", [site.keywords.get("const")]) for site in term if {"enum", "const"} & site.keywords.keys()]
            if not lists and all(site.keywords.get("type") in ("boolean", "null") for site in term):
                lists = [[None, True, False]]
            if not lists:
                return None
            for value in lists[0]:
                if all(self._values.evaluator.asserts(value, site) for site in term):
                    found[canonical(value)] = value
        return list(found.values())


def _at(term: Term, number: int) -> Iterator[Site]:
    """What the item at one place must satisfy."""
    for site in term:
        if number < len(site.keywords.get("prefixItems", ())):
            yield site.numbered("prefixItems", number)
        elif "items" in site.keywords:
            yield site.child("items")
