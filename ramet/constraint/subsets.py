"""The subset construction: states of the deterministic automaton as sets of positions, worked out one transition at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ramet.constraint.kernels import DEAD, POSITIONS_PER_STATE, UNKNOWN
from ramet.constraint.limits import Source
from ramet.constraint.nfa import Program
from ramet.constraint.utf8 import ByteNode

_FIRST_CAPACITY: Final = 64
_BYTES_PER_STATE: Final = 300


class Subsets(Protocol):
    """The states known so far. Not safe against concurrent calls; but `table`, which may be replaced by a larger one, is read unlocked."""

    @property
    def table(self) -> NDArray[np.int32]:
        """The next states, [at least num_states, byte classes]: a state, DEAD, or UNKNOWN until it is resolved."""

    @property
    def num_states(self) -> int:
        """How many states are known."""

    @property
    def num_bytes(self) -> int:
        """About how much memory the states take."""

    def resolve(self, state: int, byte_class: int) -> int:
        """Work out one entry of the table. Raises InvalidConstraint over a limit."""

    def expand(self, state: int) -> None:
        """Work out all entries of a state. Raises InvalidConstraint over a limit."""

    def is_accepting(self, state: int) -> bool:
        """Whether the text may end here."""

    def forced_byte(self, state: int) -> int | None:
        """The only byte that may follow, None when there is a choice, the end included."""

    def is_inside_char(self, state: int) -> bool:
        """Whether bytes of a character were read that is not complete."""

    def insides(self, state: int) -> Collection[ByteNode]:
        """The places inside characters of the positions; their arcs are the bytes that may follow."""


# From a program, a node of it, the source and the first byte of each class to the subsets, with the start as state 0.
MakeSubsets: TypeAlias = Callable[[Program, int, Source, list[int]], Subsets]


class PlainSubsets:
    """The construction in plain Python; what it says is right. Byte class i begins with `samples[i]`."""

    def __init__(self, program: Program, node: int, source: Source, samples: list[int]) -> None:
        self._program = program
        self._source = source
        self._samples = samples
        self._bounds = np.array([*samples, 256])
        self.table: NDArray[np.int32] = np.full((_FIRST_CAPACITY, len(samples)), UNKNOWN, np.int32)
        self._positions: list[tuple[int, ...]] = []
        self._accepting: list[bool] = []
        self._states: dict[tuple[tuple[int, ...], bool], int] = {}
        self._node_rows: dict[ByteNode, NDArray[np.int32]] = {}
        self._num_counted = 0
        self._state(*program.closure(program.behind(node)))

    @property
    def num_states(self) -> int:
        """See `Subsets`."""
        return len(self._positions)

    @property
    def num_bytes(self) -> int:
        """See `Subsets`."""
        return self.table.nbytes + (_BYTES_PER_STATE + 8 * POSITIONS_PER_STATE) * self._num_counted

    def num_positions(self, state: int) -> int:
        """How large the set is."""
        return len(self._positions[state])

    def resolve(self, state: int, byte_class: int) -> int:
        """See `Subsets`."""
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

    def expand(self, state: int) -> None:
        """See `Subsets`."""
        for byte_class in np.flatnonzero(self.table[state] == UNKNOWN).tolist():
            self.resolve(state, byte_class)

    def _state(self, positions: tuple[int, ...], is_accepting: bool) -> int:
        key = (positions, is_accepting)
        state = self._states.get(key)
        if state is not None:
            return state
        state = len(self._positions)
        self._num_counted += 1 + len(positions) // POSITIONS_PER_STATE
        limit = self._source.limits.max_dfa_states
        if self._num_counted > limit:
            raise too_many_states(self._source)
        if state % 256 == 0:
            self._source.check_time()
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
                    first, last = np.searchsorted(self._bounds, (low, high), side="right") - 1
                    node_row[first : last + 1] = UNKNOWN
                self._node_rows[node] = node_row
            if len(nodes) == 1:
                return self._node_rows[node]
            np.minimum(row, self._node_rows[node], out=row)
        return row

    def is_accepting(self, state: int) -> bool:
        """See `Subsets`."""
        return self._accepting[state]

    def forced_byte(self, state: int) -> int | None:
        """See `Subsets`."""
        if self._accepting[state]:
            return None
        bounds = [(low, high) for node in self.insides(state) for low, high, _ in node.arcs]
        byte = bounds[0][0]
        return byte if all(pair == (byte, byte) for pair in bounds) else None

    def is_inside_char(self, state: int) -> bool:
        """See `Subsets`."""
        return not self._accepting[state] and all(place.is_inside_char for place in self.insides(state))

    def insides(self, state: int) -> Collection[ByteNode]:
        """See `Subsets`."""
        return {self._program.inside(position) for position in self._positions[state]}


def too_many_states(source: Source) -> Exception:
    """The error to raise over the limit on states."""
    return source.error(f"it needs more than {source.limits.max_dfa_states} automaton states: make repetitions smaller or less ambiguous")
