"""The matcher of a grammar: every promise of the protocol, over bytes and over tokens of several bytes."""

from __future__ import annotations

import json
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.constraint.base import Compiled, Matcher
from ramet.constraint.compile import compile_constraint
from ramet.constraint.grammar.tokens import tokens_of
from ramet.constraint.vocabulary import Vocabulary
from ramet.errors import InvalidConstraint

BRACKETS = 'root ::= "(" root ")" root | "[" [a-z ]* "]" | ""'
CALLS = 'root ::= ("call: " name "(" [0-9]{1,3} ("," [0-9]{1,3})* ")\\n")+\nname ::= "abc" | "aaa bbb" | "été" | "日本語" | "😀"'
LARK = 'start: item ("," item)*\nitem: /[a-c]+/ | "{" start? "}" | /été|日本語/'
TAG = json.dumps(
    {
        "type": "structural_tag",
        "structures": [{"begin": '{"a": ', "schema": {"type": "object", "additionalProperties": {"type": "boolean"}}, "end": "}"}],
        "triggers": ['{"'],
    }
)
GRAMMARS = [("ebnf", BRACKETS), ("ebnf", CALLS), ("lark", LARK), ("structural_tag", TAG)]


def make(seed: int = 3) -> Vocabulary:
    """All bytes, pieces of text of 2 to 9 bytes (some cut inside a character, some twice), two ids that end, a special one, padding."""
    rng = random.Random(seed)
    data = 'call: aaa bbb(12,345)\ncall: été(0)\n日本語 😀 {"a": {"ab": true, "b": false}} ([abc])()[a b]'.encode()
    pieces = [bytes([byte]) for byte in range(256)] + [b"call: ", b"(1", b")\n", b'"a": {', b"}}"]
    while len(pieces) < 350:
        start = rng.randrange(len(data))
        pieces.append(data[start : start + rng.randint(2, 9)])
    return Vocabulary([*pieces, b"<eos>", b"<eot>", b"<user>", b""], eos_ids=(350, 351), special_ids=(350, 351, 352), width=360)


VOCABULARY = make()
COMPILED = {pair: compile_constraint(*pair, VOCABULARY) for pair in GRAMMARS}


def allowed_ids(matcher: Matcher) -> list[int]:
    mask = matcher.mask()
    return [] if mask is None else mask.nonzero().flatten().tolist()


def look(matcher: Matcher) -> tuple[object, ...]:
    return (
        allowed_ids(matcher),
        matcher.is_final,
        matcher.is_finished,
        matcher.state_key,
        matcher.forced_bytes(),
        [] if matcher.is_finished else matcher.bytes_behind(b""),
    )


@pytest.mark.parametrize(("kind", "grammar"), GRAMMARS)
def test_masks_equal_walking_by_bytes(kind: str, grammar: str) -> None:
    rng = random.Random(7)
    matcher = COMPILED[kind, grammar].matcher()
    text = b""
    for _ in range(25):
        by_token = [matcher.allows(token_id) for token_id in range(-1, VOCABULARY.width + 1)]
        mask = matcher.mask()
        assert mask is not None
        assert mask.shape == (VOCABULARY.width,)
        assert by_token == [False, *mask.tolist(), False]
        assert [mask[end].item() for end in VOCABULARY.eos_ids] == [matcher.is_final] * 2
        assert not mask[352:].any()
        for token_id in rng.sample(range(350), 30):
            by_bytes = matcher.fork()
            is_legal = True
            for byte in VOCABULARY.piece(token_id):
                is_legal = is_legal and by_bytes.allows(byte)
                if is_legal:
                    by_bytes.accept(byte)
            assert mask[token_id].item() == is_legal, (text, VOCABULARY.piece(token_id))
        options = [token_id for token_id in allowed_ids(matcher) if token_id < 350]
        if not options:
            break
        long = [token_id for token_id in options if token_id >= 256]
        token_id = rng.choice(long if long and rng.random() < 0.7 else options)
        matcher.accept(token_id)
        text += VOCABULARY.piece(token_id)
    assert matcher.num_accepted > 3


@settings(max_examples=40, derandomize=True, deadline=None)
@given(pair=st.sampled_from(GRAMMARS), moves=st.lists(st.tuples(st.sampled_from("aaarf"), st.integers(0, 10**6)), max_size=25))
def test_rollback_and_fork_restore_every_place(pair: tuple[str, str], moves: list[tuple[str, int]]) -> None:
    matcher = COMPILED[pair].matcher()
    trail = [look(matcher)]
    for move, number in moves:
        if move == "a":
            options = allowed_ids(matcher)
            if not options:
                continue
            matcher.accept(options[number % len(options)])
            trail.append(look(matcher))
        elif move == "r":
            num_tokens = number % (matcher.num_accepted + 1)
            matcher.rollback(num_tokens)
            del trail[len(trail) - num_tokens :]
        else:
            other, matcher = matcher, matcher.fork()
            other.rollback(number % (other.num_accepted + 1))
        assert look(matcher) == trail[-1]
        assert matcher.num_accepted == len(trail) - 1
    fork = matcher.fork()
    fork.rollback(fork.num_accepted)
    assert look(fork) == trail[0]
    assert look(matcher) == trail[-1]


@settings(max_examples=40, derandomize=True, deadline=None)
@given(pair=st.sampled_from(GRAMMARS), numbers=st.lists(st.integers(0, 10**6), max_size=12))
def test_forced_bytes_are_all_that_may_come(pair: tuple[str, str], numbers: list[int]) -> None:
    matcher = COMPILED[pair].matcher()
    for number in numbers:
        options = [token_id for token_id in allowed_ids(matcher) if token_id < 350]
        if options:
            matcher.accept(options[number % len(options)])
    forced = matcher.forced_bytes()
    assert matcher.forced_bytes(2) == forced[:2]
    assert matcher.forced_bytes(0) == b""
    for at, byte in enumerate(forced):
        assert matcher.bytes_behind(forced[:at]) == [(byte, byte)]
    for token_id in allowed_ids(matcher):
        piece = VOCABULARY.piece(token_id)
        assert piece.startswith(forced) or forced.startswith(piece)
        assert not forced or piece
    behind = matcher.bytes_behind(forced)
    ahead = matcher.fork()
    for byte in forced:
        assert not ahead.is_final
        ahead.accept(byte)
    assert [byte for byte in range(256) if ahead.allows(byte)] == [byte for low, high in behind for byte in range(low, high + 1)]
    assert ahead.is_final or sum(high - low + 1 for low, high in behind) > 1


def test_from_the_start_to_the_end() -> None:
    matcher = compile_constraint("ebnf", 'root ::= "ab"', VOCABULARY).matcher()
    assert (matcher.is_final, matcher.is_finished, matcher.num_accepted, matcher.is_mask_ready) == (False, False, 0, True)
    assert matcher.forced_bytes() == b"ab"
    matcher.accept(ord("a"))
    assert not matcher.is_mask_ready
    matcher.accept(ord("b"))
    assert allowed_ids(matcher) == [350, 351]
    assert (matcher.is_final, matcher.forced_bytes(), matcher.bytes_behind(b"")) == (True, b"", [])
    key = matcher.state_key
    matcher.accept(351)
    assert (matcher.is_final, matcher.is_finished, matcher.num_accepted, matcher.state_key) == (True, True, 3, -1)
    assert matcher.mask() is None
    assert matcher.forced_bytes() == b""
    assert not matcher.allows(350)
    with pytest.raises(AssertionError, match="after the end"):
        matcher.accept(350)
    matcher.rollback(1)
    assert (matcher.is_finished, matcher.state_key, allowed_ids(matcher)) == (False, key, [350, 351])
    matcher.rollback(2)
    assert allowed_ids(matcher) == allowed_ids(compile_constraint("ebnf", 'root ::= "ab"', VOCABULARY).matcher())
    with pytest.raises(AssertionError, match="to take back"):
        matcher.rollback(1)


@pytest.mark.parametrize("bad", [ord("b"), 0xFF, 350, 352, 353, 359, 10_000, -1])
def test_what_is_not_allowed_is_our_fault(bad: int) -> None:
    matcher = compile_constraint("ebnf", 'root ::= "a"+', VOCABULARY).matcher()
    assert not matcher.allows(bad)
    with pytest.raises(AssertionError, match="not allowed"):
        matcher.accept(bad)
    with pytest.raises(AssertionError, match="not allowed"):
        matcher.bytes_behind(b"b")
    assert (matcher.num_accepted, matcher.forced_bytes()) == (0, b"a")


def test_keys_of_different_places_differ() -> None:
    built = COMPILED["ebnf", CALLS]
    one, two = built.matcher(), built.matcher()
    assert one.state_key == two.state_key
    keys = {one.state_key}
    for matcher in (one, two):
        for byte in b"call: ":
            matcher.accept(byte)
            keys.add(matcher.state_key)
    assert len(keys) == 13
    assert one.fork().state_key == one.state_key


def test_a_vocabulary_that_cannot_spell_the_grammar() -> None:
    vocabulary = Vocabulary([b"a", b"b", b"ab", b""], eos_ids=(3,))
    matcher = compile_constraint("ebnf", 'root ::= "a" ("c" | "b" "d")', vocabulary).matcher()
    assert allowed_ids(matcher) == [0, 2]
    matcher.accept(2)
    assert matcher.forced_bytes() == b"d"
    with pytest.raises(InvalidConstraint, match="wanted is a byte among 64"):
        matcher.mask()
    with pytest.raises(InvalidConstraint, match="wanted is a byte among 63"):
        compile_constraint("ebnf", 'root ::= "c"', vocabulary)


def test_a_vocabulary_without_an_end() -> None:
    vocabulary = Vocabulary([bytes([byte]) for byte in range(256)])
    matcher = compile_constraint("ebnf", 'root ::= "a"', vocabulary).matcher()
    matcher.accept(ord("a"))
    assert (matcher.is_final, allowed_ids(matcher)) == (True, [])


def test_tokens_with_the_byte_ff_are_never_text() -> None:
    assert not tokens_of(VOCABULARY).is_text[0xFF]
    assert tokens_of(VOCABULARY) is tokens_of(VOCABULARY)
    mask = compile_constraint("ebnf", "root ::= .*", VOCABULARY).matcher().mask()
    assert mask is not None
    assert [byte for byte in range(0x7F, 256) if mask[byte]] == [0x7F, *range(0xC2, 0xF5)]


def test_threads_share_one_compiled_object() -> None:
    def run(built: Compiled, seed: int) -> bytes:
        rng = random.Random(seed)
        matcher = built.matcher()
        text = b""
        while len(text) < 60 and (options := [token_id for token_id in allowed_ids(matcher) if token_id < 350]):
            token_id = rng.choice(options)
            assert matcher.forced_bytes().startswith(VOCABULARY.piece(token_id)[: len(matcher.forced_bytes())]) or matcher.forced_bytes()
            matcher.accept(token_id)
            text += VOCABULARY.piece(token_id)
        return text

    expected = [run(compile_constraint("ebnf", CALLS, VOCABULARY), seed) for seed in range(8)]
    shared = compile_constraint("ebnf", CALLS, VOCABULARY)
    found: dict[int, bytes] = {}
    threads = [threading.Thread(target=lambda seed=seed: found.update({seed: run(shared, seed)})) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(8)] == expected
