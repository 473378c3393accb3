"""The walk over the vocabulary's byte tree, compiled by numba where that is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramet.constraint.automaton import Automaton
from ramet.constraint.trie import Trie

_INTS = "int32[::1]"
_SIGNATURE = (
    f"UniTuple(int64, 2)(int32[:,::1], uint8[::1], uint8[::1], {', '.join([_INTS] * 4)}, boolean[::1], {', '.join([_INTS] * 7)}, "
    "boolean[::1])"
)


class CompiledWalker:
    """A walker that lets go of the interpreter's lock while it walks.

    `is_compiled=False` runs the same steps without numba, far slower: for tests.
    """

    def __init__(self, is_compiled: bool = True) -> None:
        self._walk: Callable[..., tuple[int, int]] = _compiled() if is_compiled else _walk

    def __call__(self, automaton: Automaton, trie: Trie, state: int, row: NDArray[np.bool_]) -> None:
        """As `Walker` says. Unknown transitions are left out, worked out together, and their subtrees walked in the next round."""
        num_nodes = len(trie.byte)
        if num_nodes == 0:
            return  # compiled code does not check its indices
        path = np.empty(trie.max_depth + 1, np.int32)
        nodes, states = np.zeros(1, np.int32), np.full(1, state, np.int32)
        ends = np.full(1, num_nodes, np.int32)
        gap_nodes, gap_states, pairs = (np.empty(num_nodes, np.int32) for _ in range(3))
        tree = (trie.byte, trie.depth, trie.end, trie.token_start, trie.token_ids)
        while len(nodes):
            table = automaton.table
            num_classes = table.shape[1]
            is_noted = np.zeros(table.size, np.bool_)
            work = (nodes, ends, states, gap_nodes, gap_states, pairs)
            num_gaps, num_pairs = self._walk(table, automaton.byte_class, *tree, row, path, *work, is_noted)
            nodes, states = gap_nodes[:num_gaps].copy(), gap_states[:num_gaps].copy()
            ends = trie.end[nodes]
            for pair in pairs[:num_pairs].tolist():
                automaton.resolve(*divmod(pair, num_classes))


def _compiled() -> Callable[..., tuple[int, int]]:
    import numba  # type: ignore[import-not-found, import-untyped, unused-ignore]

    try:
        walk: Callable[..., tuple[int, int]] = numba.njit(_SIGNATURE, nogil=True, cache=True)(_walk)
    except RuntimeError:  # numba finds no folder for its cache that can be written
        walk = numba.njit(_SIGNATURE, nogil=True)(_walk)
    return walk


def _walk(
    table: Any,  # int32 [S, C], -1 dead, -2 unknown
    byte_class: Any,
    byte: Any,
    depth: Any,
    end: Any,
    token_start: Any,
    token_ids: Any,
    row: Any,
    path: Any,  # scratch: path[d] is the state before a node of depth d
    first_nodes: Any,  # where to walk: from each of these nodes
    last_nodes: Any,  # up to this one
    first_states: Any,  # from this state
    gap_nodes: Any,  # out: nodes behind an unknown transition
    gap_states: Any,  # out: the states before them
    pairs: Any,  # out: the unknown transitions that were met, as state * C + class
    is_noted: Any,  # scratch: bool [S * C], whether a pair is in `pairs`
) -> tuple[int, int]:
    """Returns how many gaps were left and how many pairs there are."""
    num_gaps = 0
    num_pairs = 0
    num_classes = table.shape[1]
    for item in range(len(first_nodes)):
        at = first_nodes[item]
        path[depth[at]] = first_states[item]
        while at < last_nodes[item]:
            level = depth[at]
            state = table[path[level], byte_class[byte[at]]]
            if state >= 0:
                path[level + 1] = state
                for token in range(token_start[at], token_start[at + 1]):
                    row[token_ids[token]] = True
                at += 1
            else:
                if state == -2:
                    gap_nodes[num_gaps] = at
                    gap_states[num_gaps] = path[level]
                    num_gaps += 1
                    pair = path[level] * num_classes + byte_class[byte[at]]
                    if not is_noted[pair]:
                        is_noted[pair] = True
                        pairs[num_pairs] = pair
                        num_pairs += 1
                at = end[at]
    return num_gaps, num_pairs
