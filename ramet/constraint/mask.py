"""Rows of allowed tokens, worked out once per state, equal ones stored once. The only file here that knows torch."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

import numpy as np
import torch

from ramet.constraint.automaton import Automaton
from ramet.constraint.row_store import RowStore
from ramet.constraint.vocabulary import Vocabulary

MaskRow: TypeAlias = torch.Tensor  # bool [logits width] on the CPU, True: allowed; shared, never to be written to


def mask_row(allowed: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> MaskRow:
    """A row over an array, bool [logits width], which it shares."""
    return torch.from_numpy(allowed)


class MaskTable:
    """The rows of one automaton over one vocabulary; the least recently used ones are dropped beyond its limit, or that of all tables
    together, and made again when needed.

    May be called from any thread.
    """

    def __init__(self, automaton: Automaton, vocabulary: Vocabulary) -> None:
        self._automaton = automaton
        self._vocabulary = vocabulary
        self._store: RowStore[MaskRow] = vocabulary.rows
        self._number_of_state: dict[int, int] = {}
        self._numbers: OrderedDict[int, None] = OrderedDict()  # of the rows that count here

    @property
    def num_rows(self) -> int:
        """How many different rows are kept."""
        with self._store.lock:
            return sum(number in self._store for number in self._numbers)

    @property
    def num_states(self) -> int:
        """How many states have had a row."""
        return len(self._number_of_state)

    def has(self, state: int) -> bool:
        """Whether the row of a state is kept."""
        with self._store.lock:
            number = self._number_of_state.get(state, -1)
            return number in self._numbers and number in self._store

    def row(self, state: int) -> MaskRow:
        """The row of a state. Ids that end a text are allowed exactly where the text may end.

        Raises InvalidConstraint when a limit is passed on the way, or when no token of the vocabulary leads on.
        """
        with self._store.lock:
            number = self._number_of_state.get(state, -1)
            if number in self._numbers:
                known: MaskRow | None = self._store.get(number)
                if known is not None:
                    self._numbers.move_to_end(number)
                    return known
        allowed = self._allowed(state)
        bits = np.packbits(allowed).tobytes()
        with self._store.lock:
            number, row = self._store.put(bits, mask_row(allowed), allowed.nbytes)
            self._number_of_state[state] = number
            self._numbers[number] = None
            self._numbers.move_to_end(number)
            if len(self._numbers) > self._automaton.source.limits.max_mask_rows:
                self._numbers.popitem(last=False)
            return row

    def _allowed(self, state: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        source = self._automaton.source
        source.restart_clock()
        allowed = np.zeros(self._vocabulary.width, np.bool_)
        self._vocabulary.walker.walk(self._automaton, self._vocabulary.trie, state, allowed)
        if self._automaton.is_accepting(state):
            allowed[list(self._vocabulary.eos_ids)] = True
        elif not allowed.any():
            raise source.error("no token of this vocabulary continues here: " + self._wanted(state))
        return allowed

    def _wanted(self, state: int) -> str:
        ranges = self._automaton.next_bytes(state)[:8]
        return "wanted is a byte among " + ", ".join(f"{low:02x}-{high:02x}" if low < high else f"{low:02x}" for low, high in ranges)
