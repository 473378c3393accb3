"""The walk over the vocabulary's byte tree, by compiled steps."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ramet.constraint import kernels as k
from ramet.constraint.automaton import Automaton
from ramet.constraint.compiling import compiled_kernels, plain_kernels
from ramet.constraint.flat import arc_table, places
from ramet.constraint.limits import Source
from ramet.constraint.subsets_compiled import CompiledSubsets
from ramet.constraint.syntax import Node
from ramet.constraint.trie import Trie
from ramet.constraint.utf8 import ByteNode
from ramet.constraint.walk import PlainWalker

_MAX_KEPT: Final = 32  # sets of slices


@dataclass(frozen=True, slots=True, eq=False)
class _Sliced:
    """What a vocabulary has of some classes of characters; `coverage` [slices] counts the tokens of nothing else."""

    slices: k.Slices
    coverage: NDArray[np.int64]


class CompiledWalker:
    """A walker that lets go of the interpreter's lock while it walks.

    `is_compiled=False` runs the same steps without numba, far slower: for tests.
    """

    def __init__(self, is_compiled: bool = True) -> None:
        self._kernels = compiled_kernels() if is_compiled else plain_kernels()
        self._plain = PlainWalker()
        self._kept: OrderedDict[tuple[Trie, tuple[ByteNode, ...]], _Sliced] = OrderedDict()
        self._lock = threading.Lock()

    def automaton(self, root: Node, source: Source, alphabet: frozenset[int] | None, trie: Trie) -> Automaton:
        """See `Walker`. Looks already here which tokens consist of the repeated classes of characters."""

        def count_tokens(classes: tuple[ByteNode, ...]) -> NDArray[np.int64]:
            return self._sliced(trie, classes).coverage

        return Automaton(root, source, alphabet, partial(CompiledSubsets, self._kernels, count_tokens))

    def walk(self, automaton: Automaton, trie: Trie, state: int, row: NDArray[np.bool_]) -> None:
        """See `Walker`. Others may use the automaton between two pauses of the walk."""
        subsets = automaton.subsets
        if not isinstance(subsets, CompiledSubsets):
            self._plain.walk(automaton, trie, state, row)
            return
        if len(trie.byte) == 0:
            return  # compiled code does not check its indices
        slices = self._sliced(trie, subsets.slices).slices
        run = np.empty(trie.max_depth + 2, np.int32)
        path = np.empty(trie.max_depth + 1, np.int32)
        cursor = np.array([0, -1], np.int64)
        tree = (automaton.byte_class, trie.records, trie.token_ids)
        while True:
            with automaton.lock:
                code = self._kernels.walk_tree(subsets.tables, *tree, slices, state, run, path, row, cursor)
                if code == 0:
                    return
                subsets.recover(code)

    def _sliced(self, trie: Trie, classes: tuple[ByteNode, ...]) -> _Sliced:
        key = (trie, classes)
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known
        made = self._slice(trie, classes)
        with self._lock:
            self._kept[key] = made
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return made

    def _slice(self, trie: Trie, classes: tuple[ByteNode, ...]) -> _Sliced:
        num_nodes = len(trie.byte)
        slices = k.Slices(
            inside=np.zeros(num_nodes, np.uint8),
            char_counts=np.full((len(classes), int(trie.token_ids.max(initial=-1)) + 1), k.NOT_INSIDE, np.uint16),
            exits=np.empty((num_nodes, 2), np.int32),
            exit_starts=np.zeros(len(classes) + 1, np.int32),
        )
        path = np.zeros((trie.max_depth + 1, 2), np.int32)
        num_failed = np.zeros(num_nodes + 1, np.int32)
        every_byte = np.arange(256).astype(np.uint8)
        exits = [np.zeros((0, 2), np.int32)]
        for bit, root in enumerate(classes):
            arcs = arc_table({place: number for number, place in enumerate(places(root))}, every_byte, 256)
            num_exits = self._kernels.mark_slice(trie.records, trie.token_ids, arcs, bit, path, num_failed, slices)
            exits.append(slices.exits[:num_exits].copy())
            slices.exit_starts[bit + 1] = slices.exit_starts[bit] + num_exits
        coverage = (slices.char_counts != k.NOT_INSIDE).sum(axis=1)
        return _Sliced(slices._replace(exits=np.concatenate(exits)), coverage)
