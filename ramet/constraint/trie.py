"""All texts of a vocabulary as one flat tree of bytes, laid out for the two walkers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Trie:
    """The nodes of the tree without its root, once in depth-first and once in breadth-first order.

    Depth-first (N nodes): `byte` [N] uint8, `depth` [N] (0 for a first byte), `end` [N] the node to go on with when a subtree is left out,
    `token_start` [N + 1]: the tokens that end at node i are `token_ids[token_start[i] : token_start[i + 1]]`; `token_ids` [T] ascends
    by bytes. Breadth-first: `level_byte` [N], the children of node i are `child_start[i]` to `child_start[i + 1]`, those of the
    root 0 to `num_roots`; `token_node` [T] is the breadth-first node where the token ends.
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

    @property
    def max_depth(self) -> int:
        """The longest token, in bytes."""
        return int(self.depth.max(initial=-1)) + 1


def build_trie(tokens: Sequence[tuple[int, bytes]]) -> Trie:
    """The tree of (token id, bytes) pairs; no bytes may be empty, several tokens may have the same."""
    ordered = sorted(tokens, key=lambda pair: pair[1])
    byte = bytearray()
    depth: list[int] = []
    token_start: list[int] = []
    previous = b""
    for number, (_, piece) in enumerate(ordered):
        assert piece, "a token without bytes is no text"
        shared = _common_length(previous, piece)
        byte += piece[shared:]
        depth.extend(range(shared, len(piece)))
        token_start.extend([number] * (len(piece) - shared))
        previous = piece
    depths = np.array(depth, np.int32)
    starts = np.array([*token_start, len(ordered)], np.int32)
    # A token whose bytes are new adds the nodes behind what it shares with the token before; it ends at the last of them, as do those
    # that follow with the same bytes, which add none.
    num_nodes = len(depths)
    order = np.argsort(depths, kind="stable").astype(np.int32)
    place = np.empty(num_nodes, np.int32)
    place[order] = np.arange(num_nodes, dtype=np.int32)
    parents, ends = _parents_and_ends(depths)
    num_children = np.bincount(place[parents[parents >= 0]], minlength=num_nodes)
    num_roots = int((depths == 0).sum())
    child_start = np.concatenate([[num_roots], num_roots + np.cumsum(num_children)]).astype(np.int32)
    bytes_array = np.array(byte, np.uint8)
    node_of_token = np.repeat(np.arange(num_nodes, dtype=np.int32), np.diff(starts))
    return Trie(
        byte=bytes_array,
        depth=depths,
        end=ends,
        token_start=starts,
        token_ids=np.array([token_id for token_id, _ in ordered], np.int32),
        level_byte=bytes_array[order],
        child_start=child_start,
        num_roots=num_roots,
        token_node=place[node_of_token],
    )


def _common_length(left: bytes, right: bytes) -> int:
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    return next(i for i in range(limit) if left[i] != right[i])


def _parents_and_ends(depths: Ints) -> tuple[Ints, Ints]:
    """For each node of the depth-first order its parent (-1 for a first byte) and the first node behind its subtree."""
    parents = np.empty(len(depths), np.int32)
    ends = np.full(len(depths), len(depths), np.int32)
    path: list[int] = []
    for node, depth in enumerate(depths.tolist()):
        for left in path[depth:]:
            ends[left] = node
        del path[depth:]
        parents[node] = path[-1] if path else -1
        path.append(node)
    return parents, ends
