"""A radix tree: each edge holds a run of token ids, each node a value that belongs to that run.

The cache stores KV slots as values, a router stores which worker holds the run; the tree knows neither. Nodes are locked by
reference counts that reach up to the root, and only unlocked leaves are evicted (the paper, section 3).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

V = TypeVar("V")
TokenIds = npt.NDArray[np.int64]
_EMPTY: TokenIds = np.empty(0, dtype=np.int64)


def common_prefix_len(a: TokenIds, b: TokenIds) -> int:
    """How many leading tokens two sequences share."""
    shorter = min(len(a), len(b))
    if shorter == 0:
        return 0
    differs = a[:shorter] != b[:shorter]
    first = int(differs.argmax())
    return first if differs[first] else shorter


class Node(Generic[V]):
    """One edge of the tree with the value of its tokens. Roots have an empty key and no parent."""

    __slots__ = ("children", "created", "key", "last_access", "num_hits", "num_refs", "parent", "uid", "value")

    def __init__(self, uid: int, key: TokenIds, value: V | None, parent: Node[V] | None, tick: int) -> None:
        self.uid = uid
        self.key = key
        self.value = value
        self.parent = parent
        self.children: dict[int, Node[V]] = {}
        self.num_refs = 0
        self.last_access = tick
        self.created = tick
        self.num_hits = 0

    @property
    def is_root(self) -> bool:
        """Whether this is the root of a namespace."""
        return self.parent is None

    def path(self) -> list[Node[V]]:
        """The nodes from below the root down to this one."""
        nodes: list[Node[V]] = []
        node: Node[V] = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes

    def __repr__(self) -> str:
        return f"Node({self.uid}, {len(self.key)} tokens, {len(self.children)} children, {self.num_refs} refs)"


class RadixTree(Generic[V]):
    """Token sequences to values, with locking and eviction.

    `split_value(value, at)` gives the values of the first `at` tokens of an edge and of the rest. `eviction_key` orders the leaves
    (smallest goes first). Sequences of different namespaces never share a node. Time is a counter of operations, not a clock.
    """

    def __init__(self, split_value: Callable[[V, int], tuple[V, V]], eviction_key: Callable[[Node[V]], tuple[int, ...]]) -> None:
        self._split_value = split_value
        self._eviction_key = eviction_key
        self._roots: dict[str, Node[V]] = {}
        self._heap: list[tuple[tuple[int, ...], int, Node[V]]] = []
        self._next_uid = 0
        self._tick = 0
        self.num_nodes = 0  # without the roots
        self.num_tokens = 0  # over all nodes
        self.num_unlocked = 0  # over the nodes without a reference: what eviction can free
        self.version = 0  # moves whenever the shape of the tree changes

    @property
    def num_locked(self) -> int:
        """Tokens of nodes that are referenced."""
        return self.num_tokens - self.num_unlocked

    def root(self, namespace: str = "") -> Node[V]:
        """The root of a namespace, made when it is first asked for."""
        node = self._roots.get(namespace)
        if node is None:
            node = self._roots[namespace] = self._new_node(_EMPTY, None, None)
        return node

    def nodes(self) -> Iterator[Node[V]]:
        """Every node but the roots, parents before children."""
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            if not node.is_root:
                yield node
            stack.extend(node.children.values())

    def peek(self, ids: TokenIds, namespace: str = "") -> tuple[list[Node[V]], int]:
        """The nodes that a match of `ids` would touch (the last maybe in part) and the matched length. Changes nothing."""
        node = self._roots.get(namespace)
        touched: list[Node[V]] = []
        matched = 0
        while node is not None and matched < len(ids):
            child = node.children.get(int(ids[matched]))
            if child is None:
                break
            shared = common_prefix_len(child.key, ids[matched:])
            touched.append(child)
            matched += shared
            if shared < len(child.key):
                break
            node = child
        return touched, matched

    def match(self, ids: TokenIds, namespace: str = "") -> tuple[Node[V], int]:
        """The deepest node whose path is a prefix of `ids`, and its length; an edge that matches in part is split.

        Counts as a use of every node on the path.
        """
        return self.descend(self.root(namespace), ids)

    def descend(self, node: Node[V], ids: TokenIds) -> tuple[Node[V], int]:
        """Like `match`, for ids that follow the path of `node`."""
        self._tick += 1
        matched = 0
        while matched < len(ids):
            child = node.children.get(int(ids[matched]))
            if child is None:
                break
            shared = common_prefix_len(child.key, ids[matched:])
            if shared < len(child.key):
                child = self._split(child, shared)
            matched += shared
            child.num_hits += 1
            node = child
        self._touch(node)
        return node, matched

    def insert(self, parent: Node[V], ids: TokenIds, value: V) -> Node[V]:
        """Hang a new leaf below `parent`; no child of it may begin with the same token."""
        assert len(ids) > 0, "an edge needs at least one token"
        assert int(ids[0]) not in parent.children, "this token is in the tree already: descend first"
        self._tick += 1
        leaf = self._new_node(np.array(ids, dtype=np.int64), value, parent)
        parent.children[int(ids[0])] = leaf
        self.num_tokens += len(ids)
        self.num_unlocked += len(ids)
        self._touch(leaf)
        self._offer(leaf)
        return leaf

    def lock(self, node: Node[V]) -> None:
        """Take one reference on a node and on all above it."""
        step: Node[V] | None = node
        while step is not None:
            if step.num_refs == 0:
                self.num_unlocked -= len(step.key)
            step.num_refs += 1
            step = step.parent

    def unlock(self, node: Node[V]) -> None:
        """Give back the reference that `lock` took."""
        step: Node[V] | None = node
        while step is not None:
            assert step.num_refs > 0, f"{step} is unlocked more often than it was locked"
            step.num_refs -= 1
            if step.num_refs == 0:
                self.num_unlocked += len(step.key)
                self._offer(step)
            step = step.parent

    def evict(self, num_tokens: int) -> list[Node[V]]:
        """Remove unlocked leaves, in the order of the policy, until `num_tokens` are gone or none is left; gives the removed nodes."""
        removed: list[Node[V]] = []
        num_removed = 0
        while num_removed < num_tokens and self._heap:
            key, _, node = heapq.heappop(self._heap)
            if not self._is_evictable(node):
                continue
            now = self._eviction_key(node)
            if now != key:
                heapq.heappush(self._heap, (now, node.uid, node))
                continue
            num_removed += len(node.key)
            removed.append(node)
            self.remove(node)
        return removed

    def remove(self, node: Node[V]) -> None:
        """Take an unlocked leaf out of the tree."""
        parent = node.parent
        assert parent is not None and not node.children and node.num_refs == 0, f"{node} cannot be removed"
        del parent.children[int(node.key[0])]
        node.parent = None
        self.num_nodes -= 1
        self.num_tokens -= len(node.key)
        self.num_unlocked -= len(node.key)
        self.version += 1
        self._offer(parent)

    def truncate(self, node: Node[V], length: int) -> V:
        """Keep the first `length` (at least one) tokens of an unlocked leaf; gives the value of the rest."""
        assert node.value is not None and not node.children and node.num_refs == 0 and 0 < length < len(node.key)
        dropped = len(node.key) - length
        node.value, rest = self._split_value(node.value, length)
        node.key = node.key[:length].copy()
        self.num_tokens -= dropped
        self.num_unlocked -= dropped
        self.version += 1
        return rest

    def check(self) -> None:
        """Recount everything; an AssertionError here is a fault of this class."""
        num_nodes = num_tokens = num_unlocked = 0
        for node in self.nodes():
            num_nodes += 1
            parent = node.parent
            assert parent is not None and parent.children[int(node.key[0])] is node, f"{node} hangs wrong"
            assert node.num_refs >= sum(child.num_refs for child in node.children.values()), f"{node} has too few references"
            num_tokens += len(node.key)
            num_unlocked += len(node.key) if node.num_refs == 0 else 0
        assert num_nodes == self.num_nodes, (num_nodes, self.num_nodes)
        assert num_tokens == self.num_tokens, (num_tokens, self.num_tokens)
        assert num_unlocked == self.num_unlocked, (num_unlocked, self.num_unlocked)

    def _split(self, node: Node[V], at: int) -> Node[V]:
        """Put a new node above `node` that takes its first `at` tokens. `node` stays the deeper one, so handles on it stay right."""
        parent = node.parent
        assert parent is not None and node.value is not None and 0 < at < len(node.key)
        upper_value, lower_value = self._split_value(node.value, at)
        upper = self._new_node(node.key[:at].copy(), upper_value, parent)
        upper.num_refs = node.num_refs
        upper.last_access, upper.created, upper.num_hits = node.last_access, node.created, node.num_hits
        upper.children[int(node.key[at])] = node
        parent.children[int(node.key[0])] = upper
        node.key = node.key[at:].copy()
        node.value = lower_value
        node.parent = upper
        return upper

    def _new_node(self, key: TokenIds, value: V | None, parent: Node[V] | None) -> Node[V]:
        self._next_uid += 1
        self.version += 1
        if parent is not None:
            self.num_nodes += 1
        return Node(self._next_uid, key, value, parent, self._tick)

    def _touch(self, node: Node[V] | None) -> None:
        while node is not None:
            node.last_access = self._tick
            node = node.parent

    def _is_evictable(self, node: Node[V]) -> bool:
        return node.parent is not None and not node.children and node.num_refs == 0

    def _offer(self, node: Node[V]) -> None:
        """Every evictable leaf has an entry in the heap; stale entries are thrown away when they come up."""
        if node.is_root:
            self._drop_if_empty(node)
        elif self._is_evictable(node):
            heapq.heappush(self._heap, (self._eviction_key(node), node.uid, node))
            if len(self._heap) > 64 + 4 * self.num_nodes:
                self._heap = [(self._eviction_key(leaf), leaf.uid, leaf) for leaf in self.nodes() if self._is_evictable(leaf)]
                heapq.heapify(self._heap)

    def _drop_if_empty(self, root: Node[V]) -> None:
        """Forget a namespace that holds nothing and that no one refers to, so that many short-lived ones do not pile up."""
        if root.children or root.num_refs:
            return
        for namespace, known in self._roots.items():
            if known is root:
                del self._roots[namespace]
                return
