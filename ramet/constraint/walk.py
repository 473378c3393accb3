"""Which tokens may follow a state: one walk over the vocabulary's byte tree, in two ways that give the same answer.

The plain way goes level by level with numpy. The compiled way (`walk_compiled`) goes depth-first and is used where numba is installed.
"""

from __future__ import annotations

import importlib.util
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ramet.constraint.automaton import UNKNOWN, Automaton
from ramet.constraint.limits import Source
from ramet.constraint.syntax import Node
from ramet.constraint.trie import Trie


class Walker(Protocol):
    """Makes automata and walks along them."""

    def automaton(self, root: Node, source: Source, alphabet: frozenset[int] | None, trie: Trie) -> Automaton:
        """An automaton that this walker is fast on; it walks along any other, too. Raises InvalidConstraint."""

    def walk(self, automaton: Automaton, trie: Trie, state: int, row: NDArray[np.bool_]) -> None:
        """Set `row[id]` for every token of the tree that is allowed in this state; the row comes in all False, [logits width].

        Raises InvalidConstraint when a limit of the automaton is passed on the way.
        """


class PlainWalker:
    """The walk in numpy."""

    def automaton(self, root: Node, source: Source, alphabet: frozenset[int] | None, trie: Trie) -> Automaton:
        """See `Walker`."""
        return Automaton(root, source, alphabet)

    def walk(self, automaton: Automaton, trie: Trie, state: int, row: NDArray[np.bool_]) -> None:
        """See `Walker`. Each level of the tree is one step for all nodes that are still alive."""
        is_alive = np.zeros(len(trie.level_byte), np.bool_)
        nodes = np.arange(trie.num_roots, dtype=np.int64)
        states = np.full(trie.num_roots, state, np.int32)
        while len(nodes):
            classes = automaton.byte_class[trie.level_byte[nodes]]
            targets = automaton.table[states, classes]
            if (targets == UNKNOWN).any():
                unknown = targets == UNKNOWN
                pairs, inverse = np.unique(states[unknown].astype(np.int64) * 256 + classes[unknown], return_inverse=True)
                found = [automaton.resolve(*divmod(pair, 256)) for pair in pairs.tolist()]
                targets[unknown] = np.array(found, np.int32)[inverse]
            is_allowed = targets >= 0
            nodes, targets = nodes[is_allowed], targets[is_allowed]
            is_alive[nodes] = True
            first = trie.child_start[nodes].astype(np.int64)
            counts = trie.child_start[nodes + 1] - first
            states = np.repeat(targets, counts)
            offsets = np.cumsum(counts) - counts
            nodes = np.repeat(first - offsets, counts) + np.arange(len(states))
        row[trie.token_ids] = is_alive[trie.token_node]


def choose_walker(wants_compiled: bool | None = None) -> Walker:
    """The compiled walker where numba is installed, the plain one elsewhere; True or False ask for one of them.

    The first time numba compiles the walker (seconds, kept on disk where that can be written), so call it before a request waits.
    """
    if wants_compiled is None:
        wants_compiled = importlib.util.find_spec("numba") is not None
    if not wants_compiled:
        return PlainWalker()
    from ramet.constraint.walk_compiled import CompiledWalker

    return CompiledWalker()
