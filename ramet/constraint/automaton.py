"""The deterministic byte automaton of a constraint, built state by state as it is walked."""

from __future__ import annotations

import threading
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ramet.constraint.limits import Source
from ramet.constraint.nfa import NOTHING, Program
from ramet.constraint.syntax import Node
from ramet.constraint.utf8 import ByteNode

UNKNOWN: Final = -2  # in the table: not worked out yet
DEAD: Final = -1  # in the table: this byte is not allowed here
START: Final = 0
_FIRST_CAPACITY: Final = 64
_POSITIONS_PER_STATE: Final = 64  # a state of more positions counts as several towards the limit


class Automaton:
    """States are small integers; state 0 is the start, and from every state some text leads to acceptance.

    `alphabet` are the bytes that can be produced at all; characters that need another are as good as absent.
    All methods may be called from any thread; known transitions are read without the lock.
    Raises InvalidConstraint at construction when nothing matches, and from any method when a limit is passed on the way.
    """

    def __init__(self, root: Node, source: Source, alphabet: frozenset[int] | None = None) -> None:
        self.source = source
        self.lock = threading.RLock()
        self._program = Program(source, alphabet)
        node = self._program.lower(root)
        if node == NOTHING:
            raise source.error("no text matches it" + ("" if alphabet is None else " that this vocabulary can spell"))
        bounds = sorted(bound for bound in self._program.byte_bounds if bound < 256)
        self.byte_class = np.zeros(256, np.uint8)  # bytes of one class always lead to the same state
        for number, bound in enumerate(bounds):
            self.byte_class[bound:] = number
        self._classes: list[int] = self.byte_class.tolist()
        self._samples = bounds
        self.table: NDArray[np.int32] = np.full((_FIRST_CAPACITY, len(bounds)), UNKNOWN, np.int32)
        self._positions: list[tuple[int, ...]] = []
        self._accepting: list[bool] = []
        self._states: dict[tuple[tuple[int, ...], bool], int] = {}
        self._node_rows: dict[ByteNode, NDArray[np.int32]] = {}
        self._num_counted = 0
        start = self._state(*self._program.closure(self._program.behind(node)))
        assert start == START, "the first state is the start"

    @property
    def num_states(self) -> int:
        """How many states are known so far."""
        return len(self._positions)

    def step(self, state: int, byte: int) -> int:
        """The state behind one byte, DEAD when it is not allowed."""
        target = int(self.table[state, self._classes[byte]])
        return target if target != UNKNOWN else self.resolve(state, self._classes[byte])

    def walk(self, state: int, data: bytes) -> int:
        """The state behind several bytes, DEAD as soon as one is not allowed."""
        self.source.restart_clock()
        for byte in data:
            state = self.step(state, byte)
            if state == DEAD:
                break
        return state

    def resolve(self, state: int, byte_class: int) -> int:
        """Work out one entry of the table (which may be replaced by a larger one) and return it."""
        with self.lock:
            known = int(self.table[state, byte_class])
            if known != UNKNOWN:
                return known
            byte = self._samples[byte_class]
            positions: tuple[int, ...] | None = None
            several: set[int] | None = None
            is_accepting = False
            for position in self._positions[state]:
                target = self._program.step(position, byte)
                if target is None:
                    continue
                is_accepting |= target[1]
                if positions is None:
                    positions = target[0]
                elif several is None:
                    several = {*positions, *target[0]}
                else:
                    several.update(target[0])
            if several is not None:
                positions = tuple(sorted(several))
            found = DEAD if positions is None else self._state(positions, is_accepting)
            self.table[state, byte_class] = found
            return found

    def _state(self, positions: tuple[int, ...], is_accepting: bool) -> int:
        key = (positions, is_accepting)
        state = self._states.get(key)
        if state is not None:
            return state
        state = len(self._positions)
        self._num_counted += 1 + len(positions) // _POSITIONS_PER_STATE
        limit = self.source.limits.max_dfa_states
        if self._num_counted > limit:
            raise self.source.error(f"it needs more than {limit} automaton states: make repetitions smaller or less ambiguous")
        if state % 256 == 0:
            self.source.check_time()
        if state == len(self.table):
            self.table = np.concatenate([self.table, np.full_like(self.table, UNKNOWN)])
        self.table[state] = self._first_row(positions)
        self._positions.append(positions)
        self._accepting.append(is_accepting)
        self._states[key] = state
        return state

    def _first_row(self, positions: tuple[int, ...]) -> NDArray[np.int32]:
        """A row that is UNKNOWN where some position has an arc and DEAD elsewhere, so that most of it never has to be worked out."""
        nodes = {self._program.inside(position) for position in positions}
        row = np.full(self.table.shape[1], DEAD, np.int32)
        for node in nodes:
            if node not in self._node_rows:
                node_row = np.full(self.table.shape[1], DEAD, np.int32)
                for low, high, _ in node.arcs:
                    node_row[self._classes[low] : self._classes[high] + 1] = UNKNOWN
                self._node_rows[node] = node_row
            if len(nodes) == 1:
                return self._node_rows[node]
            np.minimum(row, self._node_rows[node], out=row)
        return row

    def is_accepting(self, state: int) -> bool:
        """Whether the text may end in this state."""
        return self._accepting[state]

    def is_singular(self, state: int) -> bool:
        """Whether exactly one byte may follow and the text may not end here."""
        return self.forced_byte(state) is not None

    def forced_byte(self, state: int) -> int | None:
        """The only byte that may follow, None when there is a choice, the end included."""
        if self._accepting[state]:
            return None
        bounds = [(low, high) for position in self._positions[state] for low, high, _ in self._program.inside(position).arcs]
        byte = bounds[0][0]
        return byte if all(pair == (byte, byte) for pair in bounds) else None

    def forced_bytes(self, state: int) -> tuple[bytes, int]:
        """The bytes up to the next choice, and the state behind them; an edge of the compressed automaton."""
        self.source.restart_clock()
        forced = bytearray()
        byte = self.forced_byte(state)
        while byte is not None:
            forced.append(byte)
            state = self.step(state, byte)
            byte = self.forced_byte(state)
        return bytes(forced), state

    def next_bytes(self, state: int) -> list[tuple[int, int]]:
        """The byte ranges that may follow, ascending; they may overlap."""
        return sorted({(low, high) for position in self._positions[state] for low, high, _ in self._program.inside(position).arcs})

    def accepts(self, data: bytes) -> bool:
        """Whether the whole text matches."""
        state = self.walk(START, data)
        return state != DEAD and self._accepting[state]
