"""The deterministic byte automaton of a constraint, built state by state as it is walked."""

from __future__ import annotations

import threading
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ramet.constraint.kernels import DEAD, UNKNOWN
from ramet.constraint.limits import Source
from ramet.constraint.nfa import NOTHING, Program
from ramet.constraint.subsets import MakeSubsets, PlainSubsets
from ramet.constraint.syntax import Node

__all__ = ["DEAD", "START", "UNKNOWN", "Automaton"]

START: Final = 0


class Automaton:
    """States are small integers; state 0 is the start, and from every state some text leads to acceptance.

    `make_subsets` works the states out. `alphabet` are the bytes that can be produced at all; characters that need another are as good as
    absent.
    All methods may be called from any thread; known transitions are read without the lock.
    Raises InvalidConstraint at construction when nothing matches, and from any method when a limit is passed on the way.
    """

    def __init__(
        self, root: Node, source: Source, alphabet: frozenset[int] | None = None, make_subsets: MakeSubsets = PlainSubsets
    ) -> None:
        self.source = source
        self.lock = threading.RLock()
        program = Program(source, alphabet)
        node = program.lower(root)
        if node == NOTHING:
            raise source.error("no text matches it" + ("" if alphabet is None else " that this vocabulary can spell"))
        bounds = sorted(bound for bound in program.byte_bounds if bound < 256)
        self.byte_class = np.zeros(256, np.uint8)  # bytes of one class always lead to the same state
        for number, bound in enumerate(bounds):
            self.byte_class[bound:] = number
        self._classes: list[int] = self.byte_class.tolist()
        self.subsets = make_subsets(program, node, source, bounds)

    @property
    def table(self) -> NDArray[np.int32]:
        """The transitions, [at least num_states, byte classes]: the next state, DEAD, or UNKNOWN until `resolve`."""
        return self.subsets.table

    @property
    def num_states(self) -> int:
        """How many states are known so far."""
        return self.subsets.num_states

    @property
    def num_bytes(self) -> int:
        """About how much memory the states take."""
        return self.subsets.num_bytes

    def step(self, state: int, byte: int) -> int:
        """The state behind one byte, DEAD when it is not allowed."""
        target = int(self.subsets.table[state, self._classes[byte]])
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
            return known if known != UNKNOWN else self.subsets.resolve(state, byte_class)

    def targets(self, state: int) -> list[int]:
        """All states that one byte leads to, ascending."""
        with self.lock:
            self.subsets.expand(state)
            return sorted({target for target in self.table[state].tolist() if target != DEAD})

    def is_inside_char(self, state: int) -> bool:
        """Whether bytes of a character were read that is not complete."""
        return self.subsets.is_inside_char(state)

    def is_accepting(self, state: int) -> bool:
        """Whether the text may end in this state."""
        return self.subsets.is_accepting(state)

    def is_singular(self, state: int) -> bool:
        """Whether exactly one byte may follow and the text may not end here."""
        return self.forced_byte(state) is not None

    def forced_byte(self, state: int) -> int | None:
        """The only byte that may follow, None when there is a choice, the end included."""
        return self.subsets.forced_byte(state)

    def forced_bytes(self, state: int, max_len: int | None = None) -> tuple[bytes, int]:
        """The bytes up to the next choice, at most `max_len`, and the state behind them; an edge of the compressed automaton."""
        self.source.restart_clock()
        forced = bytearray()
        byte = self.forced_byte(state)
        while byte is not None and len(forced) != max_len:
            forced.append(byte)
            state = self.step(state, byte)
            byte = self.forced_byte(state)
        return bytes(forced), state

    def next_bytes(self, state: int) -> list[tuple[int, int]]:
        """The byte ranges that may follow, ascending; they may overlap."""
        with self.lock:
            places = self.subsets.insides(state)
        return sorted({(low, high) for place in places for low, high, _ in place.arcs})

    def accepts(self, data: bytes) -> bool:
        """Whether the whole text matches."""
        state = self.walk(START, data)
        return state != DEAD and self.subsets.is_accepting(state)
