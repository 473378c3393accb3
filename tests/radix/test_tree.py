from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from ramet.errors import ConfigError
from ramet.radix import POLICIES, Node, RadixTree, common_prefix_len

Tree = RadixTree[list[int]]


def make_tree(policy: str = "lru") -> Tree:
    return RadixTree(lambda value, at: (value[:at], value[at:]), POLICIES.get(policy))


def ids(*tokens: int) -> np.ndarray[Any, Any]:
    return np.array(tokens, dtype=np.int64)


def put(tree: Tree, tokens: np.ndarray[Any, Any], namespace: str = "") -> Node[list[int]]:
    """Insert what is missing of a sequence, with its own tokens as the value."""
    node, matched = tree.match(tokens, namespace)
    return tree.insert(node, tokens[matched:], tokens[matched:].tolist()) if matched < len(tokens) else node


def edges(tree: Tree) -> set[tuple[int, ...]]:
    return {tuple(node.key.tolist()) for node in tree.nodes()}


@pytest.mark.parametrize(
    ("a", "b", "length"),
    [((), (1,), 0), ((1, 2, 3), (1, 2, 3), 3), ((1, 2, 3), (1, 2), 2), ((1, 2), (1, 3), 1), ((5,), (6,), 0)],
)
def test_common_prefix_len(a: tuple[int, ...], b: tuple[int, ...], length: int) -> None:
    assert common_prefix_len(ids(*a), ids(*b)) == length


def test_a_match_inside_an_edge_splits_it_and_handles_stay_right() -> None:
    tree = make_tree()
    leaf = put(tree, ids(1, 2, 3, 4))
    upper, matched = tree.match(ids(1, 2, 9))
    assert matched == 2 and upper.key.tolist() == [1, 2] and upper.value == [1, 2]
    assert leaf.key.tolist() == [3, 4] and leaf.value == [3, 4] and leaf.parent is upper
    assert [node.uid for node in leaf.path()] == [upper.uid, leaf.uid]
    tree.check()


def test_peek_changes_nothing() -> None:
    tree = make_tree()
    put(tree, ids(1, 2, 3, 4))
    before = tree.version
    touched, matched = tree.peek(ids(1, 2, 3, 9))
    assert matched == 3 and [node.key.tolist() for node in touched] == [[1, 2, 3, 4]]
    assert tree.version == before and tree.peek(ids(7))[1] == 0 and tree.peek(ids(1), "other") == ([], 0)


def test_namespaces_never_share_and_are_forgotten_when_empty() -> None:
    tree = make_tree()
    put(tree, ids(1, 2, 3), "a")
    assert tree.match(ids(1, 2, 3), "b")[1] == 0
    assert tree.match(ids(1, 2, 3), "a")[1] == 3
    tree.evict(3)
    assert tree.peek(ids(1), "a") == ([], 0) and "a" not in tree._roots


def test_a_lock_covers_the_matched_node_itself() -> None:
    """Case RC-01: evicting a node in use."""
    tree = make_tree()
    put(tree, ids(*range(1, 9)))
    handle, _ = tree.match(ids(*range(1, 9)))
    tree.lock(handle)
    assert tree.evict(8) == []
    assert tree.num_locked == 8 and tree.num_unlocked == 0
    node: Node[list[int]] | None = handle
    while node is not None:
        assert node.num_refs == 1
        node = node.parent
    tree.unlock(handle)
    assert sum(len(gone.key) for gone in tree.evict(8)) == 8


def test_eviction_stops_at_the_requested_amount() -> None:
    """Case RC-15: ten leaves of ten tokens, evict 15."""
    tree = make_tree()
    for first in range(10):
        put(tree, ids(*[first * 100 + i for i in range(10)]))
    gone = tree.evict(15)
    assert [node.key[0] for node in gone] == [0, 100]
    assert tree.num_tokens == 80 == tree.num_unlocked


@pytest.mark.parametrize(("policy", "gone"), [("lru", [200]), ("lfu", [300]), ("fifo", [100])])
def test_policies(policy: str, gone: list[int]) -> None:
    tree = make_tree(policy)
    for first in (100, 200, 300):
        put(tree, ids(first, first + 1))
    for _ in range(3):
        tree.match(ids(200, 201))
    tree.match(ids(300, 301))
    tree.match(ids(100, 101))
    tree.match(ids(100, 101))
    tree.match(ids(300, 301)) if policy == "lru" else None
    assert [int(node.key[0]) for node in tree.evict(1)] == gone


def test_an_unknown_policy_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="lru"):
        POLICIES.get("lruu")


def test_unlocking_too_often_is_our_fault() -> None:
    tree = make_tree()
    node = put(tree, ids(1))
    with pytest.raises(AssertionError, match="unlocked more often"):
        tree.unlock(node)


@pytest.mark.parametrize("seed", range(50))
def test_random_operations_against_a_plain_model(seed: int) -> None:
    """Case RC-04: counters stay right after splits; the tree holds what a set of prefixes holds, and locked ones are never evicted."""
    rng = random.Random(seed)
    tree = make_tree(rng.choice(["lru", "lfu", "fifo"]))
    known: set[tuple[int, ...]] = set()  # every prefix that is in the tree
    locked: list[tuple[Node[list[int]], tuple[int, ...]]] = []
    for _ in range(1000):
        operation = rng.choice(["insert", "insert", "match", "lock", "unlock", "evict"])
        tokens = tuple(rng.randrange(3) for _ in range(rng.randint(1, 12)))
        longest = next((n for n in range(len(tokens), 0, -1) if tokens[:n] in known), 0)
        if operation == "insert":
            put(tree, ids(*tokens))
            known.update(tokens[:n] for n in range(1, len(tokens) + 1))
        elif operation in ("match", "lock"):
            node, matched = tree.match(ids(*tokens))
            assert matched == longest
            assert tuple(t for part in node.path() for t in (part.value or [])) == tokens[:matched]
            if operation == "lock":
                tree.lock(node)
                locked.append((node, tokens[:matched]))
        elif operation == "unlock" and locked:
            tree.unlock(locked.pop(rng.randrange(len(locked)))[0])
        elif operation == "evict":
            want = rng.randint(1, 20)
            possible = tree.num_unlocked
            freed = sum(len(node.key) for node in tree.evict(want))
            assert freed >= min(want, possible)
            known = set()
            for node in tree.nodes():
                path = [t for part in node.path() for t in part.key.tolist()]
                known.update(tuple(path[:n]) for n in range(1, len(path) + 1))
        for _, prefix in locked:
            assert not prefix or prefix in known
        assert tree.num_unlocked >= 0 and tree.num_locked >= 0
        assert tree.num_tokens == len(known)
        tree.check()


def test_figure_3_of_the_paper() -> None:
    """Nine states of the radix tree under LRU; letters are runs of tokens, one token each here."""
    tree = make_tree()
    system, hello, more = ids(1, 2, 3), ids(4, 5), ids(6, 7)

    def chat(*parts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.concatenate(parts)

    # (1) empty, (2) a chat: one edge
    assert edges(tree) == set()
    put(tree, chat(system, hello))
    assert edges(tree) == {(1, 2, 3, 4, 5)}
    # (3) its second turn hangs below
    put(tree, chat(system, hello, more))
    assert edges(tree) == {(1, 2, 3, 4, 5), (6, 7)}
    # (4) a second chat shares the system prompt: the edge is split
    second = ids(8, 9)
    put(tree, chat(system, second))
    assert edges(tree) == {(1, 2, 3), (4, 5), (6, 7), (8, 9)}
    # (5) the second chat goes on and memory is short: the oldest leaf goes
    assert [node.key.tolist() for node in tree.evict(2)] == [[6, 7]]
    put(tree, chat(system, second, ids(10, 11)))
    assert edges(tree) == {(1, 2, 3), (4, 5), (8, 9), (10, 11)}
    # (6) a few-shot query shares nothing: a new edge at the root
    shots = ids(20, 21, 22)
    put(tree, chat(shots, ids(23)))
    assert (20, 21, 22, 23) in edges(tree)
    # (7) more queries with the same shots: that edge is split
    put(tree, chat(shots, ids(24)))
    put(tree, chat(shots, ids(25)))
    assert {(20, 21, 22), (23,), (24,), (25,)} <= edges(tree)
    # (8) the first chat is back; all nodes of the second are the least recently used and go
    tree.match(chat(system, hello))  # created first, used last: not the order of arrival decides
    assert [node.key.tolist() for node in tree.evict(4)] == [[10, 11], [8, 9]]
    put(tree, chat(system, hello, ids(12)))
    assert edges(tree) == {(1, 2, 3), (4, 5), (12,), (20, 21, 22), (23,), (24,), (25,)}
    # (9) more samples for the last question: what is older goes, the shots stay
    question, _ = tree.match(chat(shots, ids(25)))
    tree.lock(question)
    assert [node.key.tolist() for node in tree.evict(3)] == [[23], [24], [12]]
    for sample in (30, 31, 32):
        tree.insert(question, ids(sample), [sample])
    tree.unlock(question)
    assert edges(tree) == {(1, 2, 3), (4, 5), (20, 21, 22), (25,), (30,), (31,), (32,)}
    tree.check()
