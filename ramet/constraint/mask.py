"""Rows of allowed tokens, worked out once per state, equal ones stored once. The only file here that knows torch."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TypeAlias

import numpy as np
import torch

from ramet.constraint.automaton import Automaton
from ramet.constraint.vocabulary import Vocabulary

MaskRow: TypeAlias = torch.Tensor  # bool [logits width] on the CPU, True: allowed; shared, never to be written to


def mask_row(allowed: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> MaskRow:
    """A row over an array, bool [logits width], which it shares."""
    return torch.from_numpy(allowed)


class MaskTable:
    """The rows of one automaton over one vocabulary; the least recently used ones are dropped beyond the limit and made again when needed.

    May be called from any thread.
    """

    def __init__(self, automaton: Automaton, vocabulary: Vocabulary) -> None:
        self._automaton = automaton
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        self._number_of_state: dict[int, int] = {}
        self._number_of_bits: dict[bytes, int] = {}
        self._rows: OrderedDict[int, tuple[bytes, MaskRow]] = OrderedDict()
        self._num_made = 0

    @property
    def num_rows(self) -> int:
        """How many different rows are kept."""
        return len(self._rows)

    def has(self, state: int) -> bool:
        """Whether the row of a state is kept."""
        with self._lock:
            return self._number_of_state.get(state, -1) in self._rows

    def row(self, state: int) -> MaskRow:
        """The row of a state. Ids that end a text are allowed exactly where the text may end.

        Raises InvalidConstraint when a limit is passed on the way, or when no token of the vocabulary leads on.
        """
        with self._lock:
            number = self._number_of_state.get(state)
            if number is not None and number in self._rows:
                self._rows.move_to_end(number)
                return self._rows[number][1]
        allowed = self._allowed(state)
        bits = np.packbits(allowed).tobytes()
        with self._lock:
            number = self._number_of_bits.get(bits)
            if number is None:
                number = self._number_of_bits[bits] = self._num_made
                self._num_made += 1
                self._rows[number] = (bits, mask_row(allowed))
            self._number_of_state[state] = number
            self._rows.move_to_end(number)
            row = self._rows[number][1]
            if len(self._rows) > self._automaton.source.limits.max_mask_rows:
                _, (dropped, _) = self._rows.popitem(last=False)
                del self._number_of_bits[dropped]
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
