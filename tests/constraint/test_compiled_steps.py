"""The compiled steps say what the plain ones say, on random trees: states, forced bytes, masks, limits."""

from __future__ import annotations

import importlib.util
import random
import threading
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.constraint.automaton import DEAD, START, Automaton
from ramet.constraint.limits import Limits, Source
from ramet.constraint.regex import parse_regex
from ramet.constraint.subsets import PlainSubsets
from ramet.constraint.subsets_compiled import CompiledSubsets
from ramet.constraint.syntax import Alt, Chars, Node, Repeat, Seq, alt, literal
from ramet.constraint.trie import Trie, build_trie
from ramet.constraint.walk import PlainWalker, Walker
from ramet.constraint.walk_compiled import CompiledWalker
from ramet.errors import InvalidConstraint

HAS_NUMBA = importlib.util.find_spec("numba") is not None

_SETS = [
    ((97, 97),),
    ((98, 98),),
    ((97, 99),),
    ((97, 122),),
    ((48, 57),),
    ((32, 32), (97, 122)),
    ((0, 96), (98, 0x10FFFF)),
    ((0, 33), (35, 91), (93, 0x10FFFF)),
    ((0xE9, 0xE9), (0x65E5, 0x65E5)),
    ((0x4E00, 0x9FFF),),
    ((97, 98), (0xE0, 0xFF), (0x1F600, 0x1F640)),
    ((0, 0x10FFFF),),
]
_BOUNDS = st.sampled_from([(0, 1), (0, None), (1, None), (2, 3), (0, 4), (3, 9), (1, 16), (0, 40), (5, None), (0, 900), (7, 7), (0, 0)])


def trees() -> st.SearchStrategy[Node]:
    leaves = st.one_of(st.sampled_from(_SETS).map(Chars), st.text("ab1 é", min_size=1, max_size=4).map(literal))

    def larger(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        return st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: Seq(tuple(parts))),
            st.lists(inner, min_size=1, max_size=3).map(alt),
            st.tuples(inner, _BOUNDS).map(lambda pair: Repeat(pair[0], *pair[1])),
        )

    return st.recursive(leaves, larger, max_leaves=7)


@cache
def tree_of_tokens() -> Trie:
    rng = random.Random(1)
    text = 'aabbccab a1b2 ca é日a本語 ééa \x80 z😀🙂a "ab\\ a,b"\n' * 3
    data = text.encode() + b"\xff\x80a\x80\x80b" + b"a" * 30
    pieces = [bytes([byte]) for byte in range(256)]
    for _ in range(500):
        start = rng.randrange(len(data))
        pieces.append(data[start : start + rng.randint(1, 14)])
    return build_trie([(token_id, piece) for token_id, piece in enumerate(pieces) if piece])


@cache
def compiled_walker() -> CompiledWalker:
    return CompiledWalker()


def row_of(walker: Walker, automaton: Automaton, state: int) -> np.ndarray:
    row = np.zeros(800, np.bool_)
    walker.walk(automaton, tree_of_tokens(), state, row)
    return row


def check(root: Node, walker: CompiledWalker, seed: int, num_walks: int, alphabet: frozenset[int] | None = None) -> None:
    """Walk random allowed tokens with both; every state on the way must agree."""
    trie = tree_of_tokens()
    plain = PlainWalker()
    try:
        expected = plain.automaton(root, Source("made", ""), alphabet, trie)
    except InvalidConstraint as error:
        with pytest.raises(InvalidConstraint, match=error.why):
            walker.automaton(root, Source("made", ""), alphabet, trie)
        return
    found = walker.automaton(root, Source("made", ""), alphabet, trie)
    tokens = {int(token_id): b"" for token_id in trie.token_ids}
    path = bytearray(trie.max_depth)
    for at in range(len(trie.byte)):
        path[trie.depth[at]] = trie.byte[at]
        for slot in range(trie.token_start[at], trie.token_start[at + 1]):
            tokens[int(trie.token_ids[slot])] = bytes(path[: trie.depth[at] + 1])
    rng = random.Random(seed)
    for _ in range(num_walks):
        left, right = START, START
        for _ in range(12):
            row = row_of(plain, expected, left)
            np.testing.assert_array_equal(row_of(walker, found, right), row)
            assert found.is_accepting(right) == expected.is_accepting(left)
            assert found.forced_byte(right) == expected.forced_byte(left)
            assert found.next_bytes(right) == expected.next_bytes(left)
            assert found.is_inside_char(right) == expected.is_inside_char(left)
            assert len(found.targets(right)) <= len(expected.targets(left))
            allowed = np.flatnonzero(row).tolist()
            if not allowed:
                break
            token = tokens[rng.choice(allowed)]
            left, right = expected.walk(left, token), found.walk(right, token)
            assert DEAD not in (left, right)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(trees(), st.integers(0, 9))
def test_the_steps_without_a_compiler(root: Node, seed: int) -> None:
    check(root, CompiledWalker(is_compiled=False), seed, 1)


@pytest.mark.skipif(not HAS_NUMBA, reason="numba is not installed")
@settings(max_examples=250, deadline=None, derandomize=True)
@given(trees(), st.integers(0, 9))
def test_the_compiled_steps(root: Node, seed: int) -> None:
    check(root, compiled_walker(), seed, 2)


@pytest.fixture(params=["steps", "compiled"])
def walker(request: pytest.FixtureRequest) -> CompiledWalker:
    if request.param == "steps":
        return CompiledWalker(is_compiled=False)
    if not HAS_NUMBA:
        pytest.skip("numba is not installed")
    return compiled_walker()


def automaton(pattern: str, walker: Walker, limits: Limits | None = None) -> Automaton:
    source = Source("regex", pattern, limits)
    return walker.automaton(parse_regex(source), source, None, tree_of_tokens())


def test_the_arrays_grow(walker: CompiledWalker) -> None:
    built = automaton("((ab?){0,700}c){2}[xy]{900}", walker)
    text = b"ab" * 700 + b"cc" + b"xy" * 450
    assert built.accepts(text)
    assert not built.accepts(text[:-1])
    assert not built.accepts(b"a" + text)
    assert built.num_states > 1024


def test_ambiguous_counts_make_small_states(walker: CompiledWalker) -> None:
    pattern = "((a{0,99}b?){0,99}c?){0,90}"
    built = automaton(pattern, walker)
    expected = automaton(pattern, PlainWalker())
    rng = random.Random(2)
    for _ in range(20):
        text = "".join(rng.choices("aaab c", (3, 3, 3, 3, 0, 1), k=rng.randint(1, 12))).encode()
        states = built.walk(START, text), expected.walk(START, text)
        np.testing.assert_array_equal(row_of(walker, built, states[0]), row_of(PlainWalker(), expected, states[1]))
    assert isinstance(built.subsets, CompiledSubsets)
    assert isinstance(expected.subsets, PlainSubsets)
    assert max(map(built.subsets.num_positions, range(built.num_states))) < 16
    assert max(map(expected.subsets.num_positions, range(expected.num_states))) > 100


def test_a_list_of_words(walker: CompiledWalker) -> None:
    rng = random.Random(3)
    words = sorted({"".join(rng.choices("abcé日", k=rng.randint(2, 6))) for _ in range(900)})
    built = walker.automaton(Alt(tuple(map(literal, words))), Source("made", ""), None, tree_of_tokens())
    expected = PlainWalker().automaton(Alt(tuple(map(literal, words))), Source("made", ""), None, tree_of_tokens())
    assert all(built.accepts(word.encode()) for word in words)
    for word in words[::100]:
        for end in range(len(word.encode())):
            states = built.walk(START, word.encode()[:end]), expected.walk(START, word.encode()[:end])
            np.testing.assert_array_equal(row_of(walker, built, states[0]), row_of(walker, expected, states[1]))


def test_limits_hold_every_time(walker: CompiledWalker) -> None:
    built = automaton(".*a.{12}|.*b", walker, Limits(max_dfa_states=20))
    for _ in range(2):
        with pytest.raises(InvalidConstraint, match="20 automaton states"):
            built.walk(START, b"babbabaaba" * 9)
        assert built.num_states == 20
    with pytest.raises(InvalidConstraint, match="20 automaton states"):
        for state in range(20):
            row_of(walker, built, state)
    assert built.accepts(b"b")  # what is known still works


@pytest.mark.skipif(not HAS_NUMBA, reason="numba is not installed")
def test_the_time_of_a_mask_is_limited() -> None:
    now_s = [0.0]
    source = Source("regex", "[abc]*a[abc]{900}", Limits(max_seconds=1.0), lambda: now_s[0])
    built = compiled_walker().automaton(parse_regex(source), source, None, tree_of_tokens())
    state = built.walk(START, b"a" * 800)
    now_s[0] = 5.0
    with pytest.raises(InvalidConstraint, match="1.0 seconds"):
        row_of(compiled_walker(), built, state)
    source.restart_clock()
    np.testing.assert_array_equal(row_of(compiled_walker(), built, state), row_of(PlainWalker(), built, state))


def test_a_walk_along_an_automaton_of_the_other_kind(walker: CompiledWalker) -> None:
    source = Source("regex", "[ab]{1,5}c?")
    plain = PlainWalker().automaton(parse_regex(source), source, None, tree_of_tokens())
    np.testing.assert_array_equal(row_of(walker, plain, START), row_of(PlainWalker(), automaton("[ab]{1,5}c?", walker), START))


def test_threads_share_an_automaton() -> None:
    kind = compiled_walker() if HAS_NUMBA else PlainWalker()
    built = automaton("(.*a.{6}|(b|cd)*e|[^é]{0,90}){0,3}", kind)
    expected = [row_of(PlainWalker(), built, built.walk(START, b"abcde"[:end] * 3)) for end in range(6)]
    built = automaton("(.*a.{6}|(b|cd)*e|[^é]{0,90}){0,3}", kind)
    found: list[list[np.ndarray]] = []

    def work() -> None:
        found.append([row_of(kind, built, built.walk(START, b"abcde"[:end] * 3)) for end in range(6)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for rows in found:
        np.testing.assert_array_equal(rows, expected)
