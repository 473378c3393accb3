"""Masks against the definition: a token is allowed when the automaton survives its bytes."""

from __future__ import annotations

import importlib.util
import random
from functools import cache

import pytest
import torch

from ramet.constraint.automaton import DEAD, START
from ramet.constraint.compile import compile_constraint
from ramet.constraint.compiled import AutomatonConstraint
from ramet.constraint.limits import Limits, Source
from ramet.constraint.regex import parse_regex
from ramet.constraint.row_store import RowStore
from ramet.constraint.trie import build_trie
from ramet.constraint.vocabulary import Vocabulary
from ramet.constraint.walk import PlainWalker, Walker, choose_walker
from ramet.constraint.walk_compiled import CompiledWalker
from ramet.errors import InvalidConstraint

HAS_NUMBA = importlib.util.find_spec("numba") is not None
PATTERNS = [
    "[ab]{4}",
    ".*",
    r"(?s).*",
    r'"[\w\d\s]{1,6}"',
    r"(?u)[\w\d\s]{1,9}",
    r'\{"a": (true|false|[0-9]+)\}',
    ".*a.{6}|.*b",
    "(été|日本|😀)+",
    "[^a]{2,3}",
    "[🙂-🙏]{3}",
    r"-?(0|[1-9]\d*)(\.\d+)?",
    "",
]


@pytest.fixture(params=["plain", "compiled steps", "compiled"])
def walker(request: pytest.FixtureRequest) -> Walker:
    if request.param == "plain":
        return PlainWalker()
    if request.param == "compiled" and not HAS_NUMBA:
        pytest.skip("numba is not installed")
    return compiled_walker() if request.param == "compiled" else CompiledWalker(is_compiled=False)


@cache
def compiled_walker() -> Walker:
    return choose_walker(True)


def compiled(pattern: str, vocabulary: Vocabulary, limits: Limits | None = None) -> AutomatonConstraint:
    source = Source("regex", pattern, limits)
    return AutomatonConstraint(parse_regex(source), source, vocabulary)


def with_walker(vocabulary: Vocabulary, walker: Walker) -> Vocabulary:
    pieces = [vocabulary.piece(token_id) for token_id in range(vocabulary.width)]
    return Vocabulary(pieces, eos_ids=vocabulary.eos_ids, width=vocabulary.width, walker=walker)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_masks_are_what_the_automaton_says(pattern: str, walker: Walker, vocabulary: Vocabulary) -> None:
    built = compiled(pattern, with_walker(vocabulary, walker))
    oracle = compiled(pattern, vocabulary).automaton
    rng = random.Random(5)
    for _ in range(4):
        matcher = built.matcher()
        text = b""
        for _ in range(8):
            mask = matcher.mask()
            assert mask is not None
            assert (mask.dtype, mask.shape, mask.device.type) == (torch.bool, (vocabulary.width,), "cpu")
            state = oracle.walk(START, text)
            expected = [i for i in range(vocabulary.width) if (piece := vocabulary.piece(i)) and oracle.walk(state, piece) != DEAD]
            if oracle.is_accepting(state):
                expected = sorted([*expected, *vocabulary.eos_ids])
            assert mask.nonzero().flatten().tolist() == expected
            assert all(matcher.allows(token_id) for token_id in expected)
            token_id = rng.choice(expected)
            matcher.accept(token_id)
            if matcher.is_finished:
                break
            text += vocabulary.piece(token_id)


def test_every_text_that_ends_matches_and_every_member_is_reached(vocabulary: Vocabulary) -> None:
    seen = set()
    built = compile_constraint("regex", "(été|日本|😀)(a|bc)?", vocabulary)
    for seed in range(200):
        rng = random.Random(seed)
        matcher = built.matcher()
        text = b""
        while not matcher.is_finished:
            mask = matcher.mask()
            assert mask is not None
            token_id = rng.choice(mask.nonzero().flatten().tolist())
            matcher.accept(token_id)
            text += vocabulary.piece(token_id)
        seen.add(text.decode())
    assert seen == {head + tail for head in ("été", "日本", "😀") for tail in ("", "a", "bc")}


def test_equal_masks_are_stored_once(vocabulary: Vocabulary) -> None:
    built = compiled("[ab]{0,50}", vocabulary)
    rows = []
    matcher = built.matcher()
    for _ in range(30):
        rows.append(matcher.mask())
        matcher.accept(ord("a"))
    assert all(row is rows[0] for row in rows)
    assert built.masks.num_rows == 1


def test_the_number_of_rows_is_bounded_and_rows_come_back(vocabulary: Vocabulary) -> None:
    built = compiled("abcdefghij", vocabulary, Limits(max_mask_rows=3))
    matcher = built.matcher()
    first = matcher.mask()
    assert first is not None
    for char in "abcdefghi":
        matcher.accept(ord(char))
        assert matcher.mask() is not None
    assert built.masks.num_rows == 3
    again = built.matcher().mask()
    assert again is first, "the store of the vocabulary still has it"
    small = Vocabulary([bytes([byte]) for byte in range(256)] + [b""], eos_ids=(256,))
    small.rows = RowStore(max_bytes=2 * (257 + 33))  # room for two rows
    built = compiled("abcdefghij", small, Limits(max_mask_rows=3))
    matcher = built.matcher()
    rows = [matcher.mask()]
    for char in "abcdefghi":
        matcher.accept(ord(char))
        rows.append(matcher.mask())
    assert built.masks.num_rows == 2
    again = built.matcher().mask()
    assert again is not None
    assert again is not rows[0]
    assert rows[0] is not None
    assert torch.equal(again, rows[0])


def test_padded_special_and_empty_ids_are_never_text(vocabulary: Vocabulary) -> None:
    mask = compiled("(?s).*", vocabulary).matcher().mask()
    assert mask is not None
    (end,) = vocabulary.eos_ids
    assert mask[:0x80].all()
    assert not mask[0x80:0xC2].any()  # no character begins with these bytes
    assert mask[end]
    assert not mask[end + 1 :].any()


def test_an_eos_id_is_never_text() -> None:
    vocabulary = Vocabulary([b"a", b"b", b"a"], eos_ids=(2,))
    matcher = compiled("a{2}", vocabulary).matcher()
    assert matcher.mask().tolist() == [True, False, False]  # type: ignore[union-attr]
    matcher.accept(0)
    matcher.accept(0)
    assert matcher.mask().tolist() == [False, False, True]  # type: ignore[union-attr]


def test_a_vocabulary_that_cannot_go_on_is_told() -> None:
    vocabulary = Vocabulary([b"a", b"bc", b"x"], eos_ids=(2,))
    with pytest.raises(InvalidConstraint, match="vocabulary can spell"):
        compiled("d", vocabulary)
    matcher = compiled("ab", vocabulary).matcher()  # a b exists only with a c behind it
    matcher.accept(0)
    with pytest.raises(InvalidConstraint, match="no token of this vocabulary continues here: wanted is a byte among 62"):
        matcher.mask()


def test_limits_hold_for_masks(vocabulary: Vocabulary) -> None:
    matcher = compiled(".*a.{12}|.*b", vocabulary, Limits(max_dfa_states=20)).matcher()
    with pytest.raises(InvalidConstraint, match="20 automaton states"):
        matcher.mask()


def test_masks_of_many_states_can_be_prepared(vocabulary: Vocabulary) -> None:
    built = compiled("(ab|cd)e", vocabulary)
    assert built.prepare() == 5
    assert built.masks.num_rows == 5
    assert compiled("[ab]{0,50}", vocabulary).prepare(max_states=7) == 7


def test_states_inside_characters_are_prepared_last(vocabulary: Vocabulary) -> None:
    built = compiled("[aé]{4}", vocabulary)
    assert built.prepare(max_states=5) == 5
    automaton = built.automaton
    assert [built.masks.has(automaton.walk(START, "é".encode() * num)) for num in range(5)] == [True] * 5
    assert not built.masks.has(automaton.walk(START, b"\xc3"))


def test_a_matcher_says_whether_its_mask_is_ready(vocabulary: Vocabulary) -> None:
    matcher = compiled("ab", vocabulary).matcher()
    assert not matcher.is_mask_ready
    matcher.mask()
    assert matcher.is_mask_ready
    matcher.accept(ord("a"))
    assert not matcher.is_mask_ready


def test_the_tree_holds_every_token_once() -> None:
    tokens = [(5, b"ab"), (1, b"a"), (2, b"abc"), (9, b"b"), (3, b"ab"), (4, b"\xff\x00")]
    trie = build_trie(tokens)
    assert bytes(trie.byte) == b"abcb\xff\x00"
    assert trie.depth.tolist() == [0, 1, 2, 0, 0, 1]
    assert trie.end.tolist() == [3, 3, 3, 4, 6, 6]
    assert trie.max_depth == 3
    ends = {int(trie.token_ids[at]): node for node in range(6) for at in range(trie.token_start[node], trie.token_start[node + 1])}
    assert ends == {1: 0, 5: 1, 3: 1, 2: 2, 9: 3, 4: 5}
    assert bytes(trie.level_byte) == b"ab\xffb\x00c"
    assert trie.num_roots == 3
    assert trie.records[:, 0].tolist() == [97, 98 + 256, 99 + 512, 98, 255, 256, 0]
    assert trie.records[:, 1].tolist() == [3, 3, 3, 4, 6, 6, 0]
    assert trie.records[:, 2].tolist() == trie.token_start.tolist()
    assert trie.records[:, 3].tolist() == [2, 1, 0, 0, 1, 0, 0]
    nodes = dict(zip(trie.token_ids.tolist(), trie.token_node.tolist(), strict=True))
    assert nodes == {1: 0, 5: 3, 3: 3, 2: 5, 9: 1, 4: 4}


def test_a_vocabulary_without_text_can_only_end(walker: Walker) -> None:
    vocabulary = Vocabulary([b""], eos_ids=(0,), walker=walker)
    assert build_trie([]).max_depth == 0
    with pytest.raises(InvalidConstraint, match="no text matches"):
        compiled("a", vocabulary)
    mask = compiled("a*", vocabulary).matcher().mask()
    assert mask is not None
    assert mask.tolist() == [True]


def test_the_walker_is_chosen_by_what_is_installed() -> None:
    assert isinstance(choose_walker(False), PlainWalker)
    assert isinstance(choose_walker(), PlainWalker) == (not HAS_NUMBA)
