"""The automaton of a syntax tree over bytes, whose states exist once they are reached.

A *continuation* is what is still to be matched: a node and the continuation behind it. A *position* is a place inside a character and the
continuation behind that character; positions are the states of the automaton (those of Antimirov's partial derivatives). `x{0,5000}` behind
one x is `x{0,4999}`, so counted repetitions cost nothing until they are walked. The empty language is removed while the tree is lowered,
hence every position can reach the end: the automaton is trimmed at birth.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from ramet.constraint.limits import Source
from ramet.constraint.syntax import Alt, Anchor, Chars, Node, Repeat, Seq
from ramet.constraint.utf8 import ByteNode, utf8_automaton

EMPTY: Final = 0  # the node that matches only the empty text
NOTHING: Final = 1  # the node that matches no text at all
END: Final = 0  # the continuation at the end of the text

Closure: TypeAlias = tuple[tuple[int, ...], bool]  # positions, ascending; whether the text may end here
_CHECK_EVERY: Final = 1024  # steps between two looks at the clock


class Program:
    """Nodes, continuations and positions, each numbered and stored once. Not safe against concurrent calls."""

    def __init__(self, source: Source, alphabet: frozenset[int] | None = None) -> None:
        self._source = source
        self._alphabet = alphabet
        # A node is ("chars", automaton), ("seq", first, rest), ("alt", options) or ("repeat", body, min, max); it stands behind its parts.
        self.nodes: list[tuple[Any, ...]] = [("empty",), ("nothing",)]
        self._node_ids: dict[tuple[Any, ...], int] = {key: at for at, key in enumerate(self.nodes)}
        self._is_nullable = [True, False]
        self._sizes = [0, 0]
        self._nonempty: dict[int, int] = {EMPTY: NOTHING}
        self._factored: dict[int, tuple[int, ...]] = {}
        self._continuations: list[tuple[int, int]] = [(EMPTY, END)]
        self._continuation_ids: dict[tuple[int, int], int] = {}
        self._closures: dict[int, Closure] = {END: ((), True)}
        self._positions: list[tuple[ByteNode, int]] = []
        self._position_ids: dict[tuple[ByteNode, int], int] = {}
        self.byte_bounds: set[int] = {0}  # bytes between two neighbours of these are never told apart
        self._num_steps = 0

    # ---- nodes

    def lower(self, root: Node) -> int:
        """The node number of a syntax tree without anchors. Raises InvalidConstraint over the limit on states."""
        known: dict[int, int] = {}
        node = self._lower(root, known)
        limit = self._source.limits.max_nfa_states
        if self._sizes[node] > limit:
            raise self._source.error(
                f"written out it has {self._sizes[node]} states, more than the limit of {limit}: lower the repetitions"
            )
        return node

    def _lower(self, root: Node, known: dict[int, int]) -> int:
        if id(root) in known:
            return known[id(root)]
        if isinstance(root, Chars):
            automaton = utf8_automaton(root.ranges, self._alphabet)
            node = NOTHING if automaton is None else self._chars(automaton)
        elif isinstance(root, Seq):
            node = EMPTY
            for part in reversed(root.parts):
                first = known.get(id(part))
                if first is None:
                    first = self._lower(part, known)
                found = self._node_ids.get(("seq", first, node))  # most often a literal, whose end is known already
                node = self._seq(first, node) if found is None else found
        elif isinstance(root, Alt):
            node = self._alt(self._lower(option, known) for option in root.options)
        else:
            assert not isinstance(root, Anchor), "anchors are removed before the tree is lowered"
            assert isinstance(root, Repeat), f"{root!r} is no node"
            node = self._repeat(self._lower(root.body, known), root.min_count, root.max_count)
        known[id(root)] = node
        return node

    def _make(self, key: tuple[Any, ...], is_nullable: bool, size: int) -> int:
        node = self._node_ids.get(key)
        if node is None:
            node = self._node_ids[key] = len(self.nodes)
            self.nodes.append(key)
            self._is_nullable.append(is_nullable)
            self._sizes.append(size)
        return node

    def _chars(self, automaton: ByteNode) -> int:
        num_nodes = len(self.nodes)
        node = self._make(("chars", automaton), False, automaton.num_nodes)
        if node == num_nodes:
            self._note_bounds(automaton)
        return node

    def _note_bounds(self, automaton: ByteNode) -> None:
        seen = {automaton}
        todo = [automaton]
        while todo:
            for low, high, target in todo.pop().arcs:
                self.byte_bounds |= {low, high + 1}
                if target is not None and target not in seen:
                    seen.add(target)
                    todo.append(target)

    def _seq(self, first: int, rest: int) -> int:
        if first <= NOTHING or rest <= NOTHING:
            return NOTHING if NOTHING in (first, rest) else first + rest  # EMPTY is 0
        is_nullable = self._is_nullable[first] and self._is_nullable[rest]
        return self._make(("seq", first, rest), is_nullable, self._sizes[first] + self._sizes[rest])

    def _alt(self, options: Iterable[int]) -> int:
        flat: dict[int, None] = {}
        for option in options:
            inner = self.nodes[option]
            flat.update(dict.fromkeys(inner[1] if inner[0] == "alt" else (option,)))
        flat.pop(NOTHING, None)
        kept = tuple(flat)
        if len(kept) < 2:
            return kept[0] if kept else NOTHING
        return self._make(("alt", kept), any(self._is_nullable[o] for o in kept), sum(self._sizes[o] for o in kept))

    def _repeat(self, body: int, low: int, high: int | None) -> int:
        if body in (EMPTY, NOTHING):
            return EMPTY if low == 0 else body
        if self._is_nullable[body]:
            # Rounds that match nothing add no text; without them a round always reads a byte.
            low, body = 0, self._without_empty(body)
            if body == NOTHING:
                return EMPTY
        if high == 0:
            return EMPTY
        if (low, high) == (1, 1):
            return body
        count = max(low, 1) if high is None else high
        return self._make(("repeat", body, low, high), low == 0, self._sizes[body] * count)

    def _without_empty(self, node: int) -> int:
        """The node that matches the same texts except the empty one."""
        if not self._is_nullable[node]:
            return node
        if node in self._nonempty:
            return self._nonempty[node]
        op = self.nodes[node]
        if op[0] == "seq":
            chain = []
            rest = node
            while self._is_nullable[rest] and self.nodes[rest][0] == "seq" and rest not in self._nonempty:
                chain.append(rest)
                rest = self.nodes[rest][2]
            found = self._without_empty(rest)
            for link in reversed(chain):
                first, rest = self.nodes[link][1:]
                found = self._alt([self._seq(self._without_empty(first), rest), found])
                self._nonempty[link] = found
            return found
        if op[0] == "alt":
            found = self._alt(self._without_empty(option) for option in op[1])
        else:
            assert op[0] == "repeat", f"a {op[0]} cannot match the empty text"
            found = self._repeat(op[1], 1, op[3])
        self._nonempty[node] = found
        return found

    def _options(self, node: int) -> tuple[int, ...]:
        """The options of an alternation, those that begin alike put together, so that an enum of words is walked as a tree."""
        if node not in self._factored:
            rests: dict[int, list[int]] = {}
            for option in self.nodes[node][1]:
                op = self.nodes[option]
                first, rest = (op[1], op[2]) if op[0] == "seq" else (option, EMPTY)
                rests.setdefault(first, []).append(rest)
            self._factored[node] = tuple(self._seq(first, self._alt(rest)) for first, rest in rests.items())
        return self._factored[node]

    # ---- continuations and positions

    def behind(self, node: int, continuation: int = END) -> int:
        """The continuation that matches a node and then another continuation."""
        if node == EMPTY:
            return continuation
        key = (node, continuation)
        found = self._continuation_ids.get(key)
        if found is None:
            op = self.nodes[node]
            if op[0] == "repeat" and op[2] == 0 and op[3] is None and self._continuations[continuation][0] == node:
                return continuation  # x*x* is x*
            found = self._continuation_ids[key] = len(self._continuations)
            self._continuations.append(key)
        return found

    def closure(self, continuation: int) -> Closure:
        """The positions that a continuation begins with, and whether it may be over at once."""
        known = self._closures.get(continuation)
        if known is not None:
            return known
        positions: set[int] = set()
        is_end = False
        seen = {continuation}
        todo = [continuation]
        while todo:
            at = todo.pop()
            self._tick()
            if at == END:
                is_end = True
                continue
            node, behind = self._continuations[at]
            op = self.nodes[node]
            if op[0] == "chars":
                positions.add(self.position(op[1], behind))
                continue
            for following in self._unfold(op, node, behind):
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
        found = self._closures[continuation] = (tuple(sorted(positions)), is_end)
        return found

    def _unfold(self, op: tuple[Any, ...], node: int, behind: int) -> list[int]:
        if op[0] == "seq":
            return [self.behind(op[1], self.behind(op[2], behind))]
        if op[0] == "alt":
            return [self.behind(option, behind) for option in self._options(node)]
        _, body, low, high = op
        again = self._repeat(body, max(low - 1, 0), None if high is None else high - 1)
        inside = self.behind(body, self.behind(again, behind))
        return [inside, behind] if low == 0 else [inside]

    def position(self, inside: ByteNode, behind: int) -> int:
        """The number of a place inside a character with a continuation behind it."""
        key = (inside, behind)
        found = self._position_ids.get(key)
        if found is None:
            found = self._position_ids[key] = len(self._positions)
            self._positions.append(key)
        return found

    def step(self, position: int, byte: int) -> Closure | None:
        """Where a byte leads from a position; None when it is not allowed."""
        inside, behind = self._positions[position]
        target = inside.step(byte)
        if target is None:
            return None
        if isinstance(target, ByteNode):
            return (self.position(target, behind),), False
        return self.closure(behind)

    def inside(self, position: int) -> ByteNode:
        """The place inside a character; its arcs are the bytes that are allowed."""
        return self._positions[position][0]

    def _tick(self) -> None:
        self._num_steps += 1
        if self._num_steps % _CHECK_EVERY == 0:
            self._source.check_time()
