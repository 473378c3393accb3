"""From an automaton over characters back to a syntax tree, shared parts once."""

from __future__ import annotations

from collections.abc import Callable

from ramet.constraint.charset import Ranges
from ramet.constraint.limits import Source
from ramet.constraint.schema.language import Language, TooLarge
from ramet.constraint.schema.trees import NOTHING, choose, join
from ramet.constraint.syntax import EMPTY, Node, Repeat

MAX_KNOT = 40  # states that all lead to each other


def to_tree(source: Source, language: Language, chars: Callable[[Ranges], Node], made: list[Node]) -> Node:
    """The tree of a language; `chars` makes the node of a set of characters. Every node with others below it goes into `made`, inner first.

    Raises TooLarge when more than MAX_KNOT states lead to each other.
    """
    if language.is_empty:
        return NOTHING
    nodes: dict[int, Node] = {}
    for knot in knots(language):
        source.check_time()
        if len(knot) > MAX_KNOT:
            raise TooLarge(f"more than {MAX_KNOT} of its states lead to each other")
        solve(language, knot, nodes, chars)
        made += (nodes[state] for state in knot)
    return nodes[0]


def solve(language: Language, knot: list[int], nodes: dict[int, Node], chars: Callable[[Ranges], Node]) -> None:
    """Find the trees of states that lead to each other: X = a X + b is a* b (Arden), the rest is put in."""
    inside = set(knot)
    loops: dict[int, dict[int, Node]] = {}
    exits: dict[int, Node] = {}
    for state in knot:
        out = [join(chars(ranges), nodes[target]) for ranges, target in language.arcs[state] if target not in inside]
        exits[state] = choose([*out, EMPTY] if language.is_final[state] else out)
        loops[state] = {target: chars(ranges) for ranges, target in language.arcs[state] if target in inside}
    for at, state in enumerate(knot):
        own = loops[state].pop(state, None)
        if own is not None:
            star = Repeat(own, 0, None)
            loops[state] = {target: join(star, node) for target, node in loops[state].items()}
            exits[state] = join(star, exits[state])
        for later in knot[at + 1 :]:
            first = loops[later].pop(state, None)
            if first is not None:
                for target, node in loops[state].items():
                    loops[later][target] = choose([loops[later].get(target, NOTHING), join(first, node)])
                exits[later] = choose([exits[later], join(first, exits[state])])
    for state in reversed(knot):
        nodes[state] = choose([exits[state], *(join(node, nodes[target]) for target, node in loops[state].items())])


def knots(language: Language) -> list[list[int]]:
    """The groups of states that lead to each other, each after those that it leads to (Tarjan, without recursion)."""
    found: list[list[int]] = []
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    calls: list[tuple[int, int]] = [(0, 0)]
    while calls:
        state, at = calls.pop()
        if at == 0:
            order[state] = lowest[state] = len(order)
            stack.append(state)
            on_stack.add(state)
        row = language.arcs[state]
        while at < len(row):
            target = row[at][1]
            at += 1
            if target not in order:
                calls += ((state, at), (target, 0))
                break
            if target in on_stack:
                lowest[state] = min(lowest[state], order[target])
        else:
            if lowest[state] == order[state]:
                knot = [stack.pop()]
                while knot[-1] != state:
                    knot.append(stack.pop())
                on_stack.difference_update(knot)
                found.append(knot[::-1])
            if calls:
                parent = calls[-1][0]
                lowest[parent] = min(lowest[parent], lowest[state])
    return found
