"""All texts of a vocabulary as one flat tree of bytes, laid out for the two walkers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ramet.constraint.kernels import BYTE_DEPTH, FIRST_SLOT, HEIGHT, SUBTREE_END

Ints: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Trie:
    """The nodes of the tree without its root, once in depth-first and once in breadth-first order.

    Depth-first (N nodes): `byte` [N] uint8, `depth` [N] (0 for a first byte), `end` [N] the node to go on with when a subtree is left out,
    `token_start` [N + 1]: the tokens that end at node i are `token_ids[token_start[i] : token_start[i + 1]]`; `token_ids` [T] ascends
    by bytes. Breadth-first: `level_byte` [N], the children of node i are `child_start[i]` to `child_start[i + 1]`, those of the
    root 0 to `num_roots`; `token_node` [T] is the breadth-first node where the token ends. `records` [N + 1, 4] has
    side by side what a compiled walk reads of a node, see `kernels`.
    """

    byte: NDArray[np.uint8]
    depth: Ints
    end: Ints
    token_start: Ints
    token_ids: Ints
    level_byte: NDArray[np.uint8]
    child_start: Ints
    num_roots: int
    token_node: Ints
    records: Ints

    @property
    def max_depth(self) -> int:
        """The longest token, in bytes."""
        return int(self.depth.max(initial=-1)) + 1


def build_trie(tokens: Sequence[tuple[int, bytes]]) -> Trie:
    """The tree of (token id, bytes) pairs; no bytes may be empty, several tokens may have the same."""
    ordered = sorted(tokens, key=itemgetter(1))
    pieces = [piece for _, piece in ordered]
    assert all(pieces), "a token without bytes is no text"
    lens = np.array([len(piece) for piece in pieces], np.int64)
    flat = np.frombuffer(b"".join(pieces), np.uint8)
    shared = _shared_lens(flat, lens)
    # A token whose bytes are new adds the nodes behind what it shares with the token before; it ends at the last of them, as do those
    # that follow with the same bytes, which add none.
    num_new = lens - shared
    first_new = np.cumsum(num_new) - num_new
    depths = (np.arange(int(num_new.sum())) - np.repeat(first_new - shared, num_new)).astype(np.int32)
    byte = flat[np.repeat(np.cumsum(lens) - lens, num_new) + depths]
    starts = np.append(np.repeat(np.arange(len(pieces)), num_new), len(pieces)).astype(np.int32)
    num_nodes = len(depths)
    order = np.argsort(depths, kind="stable").astype(np.int32)
    place = np.empty(num_nodes, np.int32)
    place[order] = np.arange(num_nodes, dtype=np.int32)
    levels = np.split(order, np.cumsum(np.bincount(depths))[:-1]) if num_nodes else []
    parents, ends, heights = _parents_ends_heights(levels, byte)
    num_children = np.bincount(place[parents[parents >= 0]], minlength=num_nodes)
    num_roots = int((depths == 0).sum())
    records = np.zeros((num_nodes + 1, 4), np.int32)
    records[:-1, BYTE_DEPTH] = byte + 256 * depths
    records[:-1, SUBTREE_END] = ends
    records[:, FIRST_SLOT] = starts
    records[:-1, HEIGHT] = heights
    return Trie(
        byte=byte,
        depth=depths,
        end=ends,
        token_start=starts,
        token_ids=np.array([token_id for token_id, _ in ordered], np.int32),
        level_byte=byte[order],
        child_start=np.concatenate([[num_roots], num_roots + np.cumsum(num_children)]).astype(np.int32),
        num_roots=num_roots,
        token_node=place[np.repeat(np.arange(num_nodes, dtype=np.int32), np.diff(starts))],
        records=records,
    )


def _shared_lens(flat: NDArray[np.uint8], lens: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many bytes each piece has in common with the one before it; `flat` are all pieces one after the other."""
    shared = np.zeros(len(lens), np.int64)
    first = np.cumsum(lens) - lens
    open_pairs = np.arange(1, len(lens))
    depth = 0
    while len(open_pairs):
        open_pairs = open_pairs[np.minimum(lens[open_pairs - 1], lens[open_pairs]) > depth]
        open_pairs = open_pairs[flat[first[open_pairs - 1] + depth] == flat[first[open_pairs] + depth]]
        shared[open_pairs] += 1
        depth += 1
    return shared


def _parents_ends_heights(levels: Sequence[Ints], byte: NDArray[np.uint8]) -> tuple[Ints, Ints, Ints]:
    """For each node its parent (-1 for a first byte), the first node behind its subtree, and how many characters begin below it at most.

    `levels` holds the nodes of each depth in ascending order.
    """
    num_nodes = len(byte)
    parents = np.full(num_nodes, -1, np.int32)
    sizes = np.ones(num_nodes, np.int32)
    heights = np.zeros(num_nodes, np.int32)
    begins_char = ((byte & 0xC0) != 0x80).astype(np.int32)
    for upper, lower in zip(reversed(levels[:-1]), reversed(levels[1:]), strict=True):
        above = upper[np.searchsorted(upper, lower) - 1]
        parents[lower] = above
        np.add.at(sizes, above, sizes[lower])
        np.maximum.at(heights, above, heights[lower] + begins_char[lower])
    return parents, np.arange(num_nodes, dtype=np.int32) + sizes, heights
