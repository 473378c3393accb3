"""Sets of strings as deterministic automata over characters: what a syntax tree cannot say is worked out here (both, but not, so long).

Only built where two conditions meet on one string; a single pattern stays a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from ramet.constraint.charset import Ranges, complement, intersect, union
from ramet.constraint.limits import Source
from ramet.constraint.syntax import Alt, Chars, Node, Repeat, Seq

Arcs: TypeAlias = Sequence[tuple[Ranges, int]]  # disjoint sets of characters, and the state that each leads to
State = TypeVar("State", bound=Hashable)

MAX_STATES: Final = 20_000


class TooLarge(Exception):
    """What was asked for needs more states than are allowed; the caller knows the place and says it."""


class Language:
    """States are numbered from 0, the start; from every state some string is accepted, unless there is no state at all."""

    __slots__ = ("arcs", "is_final")

    def __init__(self, arcs: list[Arcs], is_final: list[bool]) -> None:
        self.arcs = arcs
        self.is_final = is_final

    @property
    def is_empty(self) -> bool:
        """Whether no string is accepted."""
        return not self.arcs

    def accepts(self, text: str) -> bool:
        """Whether a string is in the set."""
        if self.is_empty:
            return False
        state = 0
        for char in text:
            target = next((t for ranges, t in self.arcs[state] if any(low <= ord(char) <= high for low, high in ranges)), None)
            if target is None:
                return False
            state = target
        return self.is_final[state]


def explore(
    source: Source,
    start: State,
    arcs_of: Callable[[State], Iterable[tuple[Ranges, State]]],
    is_final: Callable[[State], bool],
    max_states: int = MAX_STATES,
) -> Language:
    """The automaton of the states that can be reached; those that lead nowhere are dropped.

    Raises TooLarge when there are too many, InvalidConstraint when it takes too long.
    """
    numbers = {start: 0}
    todo = [start]
    arcs: list[list[tuple[Ranges, int]]] = []
    finals: list[bool] = []
    for state in todo:  # grows on the way
        by_target: dict[int, list[tuple[int, int]]] = {}
        for ranges, target in arcs_of(state):
            number = numbers.get(target)
            if number is None:
                number = numbers[target] = len(numbers)
                todo.append(target)
            by_target.setdefault(number, []).extend(ranges)
        if len(todo) > max_states:
            raise TooLarge(f"it needs more than {max_states} states")
        if len(arcs) % 64 == 0:
            source.check_time()
        arcs.append([(union(ranges), number) for number, ranges in by_target.items()])
        finals.append(is_final(state))
    return _trimmed(arcs, finals)


def _trimmed(arcs: Sequence[Arcs], finals: Sequence[bool]) -> Language:
    before: list[list[int]] = [[] for _ in arcs]
    for state, row in enumerate(arcs):
        for _, target in row:
            before[target].append(state)
    todo = [state for state, final in enumerate(finals) if final]
    alive = set(todo)
    while todo:
        for state in before[todo.pop()]:
            if state not in alive:
                alive.add(state)
                todo.append(state)
    if 0 not in alive:
        return Language([], [])
    kept = sorted(alive)
    number = {state: at for at, state in enumerate(kept)}
    return Language(
        [[(ranges, number[target]) for ranges, target in arcs[state] if target in number] for state in kept],
        [finals[state] for state in kept],
    )


def both(source: Source, left: Language, right: Language) -> Language:
    """The strings of both."""
    if left.is_empty or right.is_empty:
        return Language([], [])

    def arcs_of(pair: tuple[int, int]) -> Iterable[tuple[Ranges, tuple[int, int]]]:
        for ranges, target in left.arcs[pair[0]]:
            for others, other in right.arcs[pair[1]]:
                shared = intersect(ranges, others)
                if shared:
                    yield shared, (target, other)

    return explore(source, (0, 0), arcs_of, lambda pair: left.is_final[pair[0]] and right.is_final[pair[1]])


def minus(source: Source, left: Language, right: Language) -> Language:
    """The strings of the first that are not in the second."""
    if left.is_empty or right.is_empty:
        return left

    def arcs_of(pair: tuple[int, int | None]) -> Iterable[tuple[Ranges, tuple[int, int | None]]]:
        row = () if pair[1] is None else right.arcs[pair[1]]
        rest = complement(union(span for others, _ in row for span in others))
        for ranges, target in left.arcs[pair[0]]:
            for others, other in row:
                shared = intersect(ranges, others)
                if shared:
                    yield shared, (target, other)
            alone = intersect(ranges, rest)
            if alone:
                yield alone, (target, None)

    def is_final(pair: tuple[int, int | None]) -> bool:
        return left.is_final[pair[0]] and not (pair[1] is not None and right.is_final[pair[1]])

    start: tuple[int, int | None] = (0, 0)
    return explore(source, start, arcs_of, is_final)


def so_long(source: Source, language: Language, low: int, high: int | None) -> Language:
    """The strings of `low` to `high` characters."""
    if language.is_empty:
        return language
    last = low if high is None else high

    def arcs_of(pair: tuple[int, int]) -> Iterable[tuple[Ranges, tuple[int, int]]]:
        if high is None or pair[1] < high:
            count = min(pair[1] + 1, last)
            return ((ranges, (target, count)) for ranges, target in language.arcs[pair[0]])
        return ()

    return explore(source, (0, 0), arcs_of, lambda pair: language.is_final[pair[0]] and pair[1] >= low)


def of_tree(source: Source, root: Node) -> Language:
    """The language of a syntax tree without anchors."""
    program = _Program(root)
    return explore(source, program.start, program.arcs_of, lambda state: program.end in state)


def matches(root: Node, text: str) -> bool:
    """Whether a string is in the language of a tree without anchors; no automaton is built."""
    program = _Program(root)
    state = program.start
    for char in text:
        state = program.step(state, ord(char))
    return program.end in state


class _Program:
    """Partial derivatives of a tree over characters, as `nfa.Program` has them over bytes."""

    def __init__(self, root: Node) -> None:
        self.end = 0
        self._steps: list[tuple[Node, int]] = [(Seq(()), 0)]  # a continuation: a node and the continuation behind it
        self._numbers: dict[tuple[int, int], int] = {}
        self._repeats: dict[tuple[int, int, int | None], Repeat] = {}
        self._closures: dict[int, frozenset[int]] = {}
        self.start = self._closure(self._behind(root, self.end))

    def _behind(self, node: Node, rest: int) -> int:
        key = (id(node), rest)
        if key not in self._numbers:
            self._numbers[key] = len(self._steps)
            self._steps.append((node, rest))
        return self._numbers[key]

    def _closure(self, start: int) -> frozenset[int]:
        """The continuations that begin with a character, and the end where it may be reached at once."""
        if start not in self._closures:
            seen = {start}
            todo = [start]
            found = set()
            while todo:
                at = todo.pop()
                node, rest = self._steps[at]
                if at == self.end or isinstance(node, Chars):
                    found.add(at)
                    continue
                for following in self._unfold(node, rest):
                    if following not in seen:
                        seen.add(following)
                        todo.append(following)
            self._closures[start] = frozenset(found)
        return self._closures[start]

    def _unfold(self, node: Node, rest: int) -> list[int]:
        if isinstance(node, Seq):
            for part in reversed(node.parts):
                rest = self._behind(part, rest)
            return [rest]
        if isinstance(node, Alt):
            return [self._behind(option, rest) for option in node.options]
        assert isinstance(node, Repeat), f"{node!r} is no node of a language"
        if node.max_count == 0:
            return [rest]
        high = None if node.max_count is None else node.max_count - 1
        key = (id(node.body), max(node.min_count - 1, 0), high)
        again = node if key[1:] == (node.min_count, node.max_count) else self._repeats.get(key)
        if again is None:
            again = self._repeats[key] = Repeat(node.body, *key[1:])
        inside = self._behind(node.body, self._behind(again, rest))
        return [inside, rest] if node.min_count == 0 else [inside]

    def step(self, state: frozenset[int], code: int) -> frozenset[int]:
        """The state behind one character."""
        found: frozenset[int] = frozenset()
        for at in state:
            node, rest = self._steps[at]
            if isinstance(node, Chars) and any(low <= code <= high for low, high in node.ranges):
                found |= self._closure(rest)
        return found

    def arcs_of(self, state: frozenset[int]) -> Iterable[tuple[Ranges, frozenset[int]]]:
        events: list[tuple[int, bool, int]] = []
        for at in state:
            node, rest = self._steps[at]
            if isinstance(node, Chars):
                for low, high in node.ranges:
                    events += ((low, True, rest), (high + 1, False, rest))
        events.sort(key=lambda event: event[0])
        open_counts: dict[int, int] = {}
        low = 0
        for at, is_start, rest in events:
            if at > low and open_counts:
                yield ((low, at - 1),), frozenset().union(*map(self._closure, open_counts))
            low = at
            open_counts[rest] = open_counts.get(rest, 0) + (1 if is_start else -1)
            if not open_counts[rest]:
                del open_counts[rest]
