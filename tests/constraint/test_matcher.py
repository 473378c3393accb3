"""A matcher: accept, roll back, fork, end."""

from __future__ import annotations

import json
import random
import threading

import pytest

from ramet.constraint.base import Compiled, Matcher
from ramet.constraint.compile import compile_constraint
from ramet.constraint.vocabulary import Vocabulary


def ids_of(vocabulary: Vocabulary, text: str) -> list[int]:
    return list(text.encode())  # the first 256 ids are the bytes


def end_of(vocabulary: Vocabulary) -> int:
    return vocabulary.eos_ids[0]


def matcher_of(pattern: str, vocabulary: Vocabulary) -> Matcher:
    return compile_constraint("regex", pattern, vocabulary).matcher()


def test_from_the_start_to_the_end(vocabulary: Vocabulary) -> None:
    matcher = matcher_of("ab?", vocabulary)
    assert (matcher.is_final, matcher.is_finished, matcher.num_accepted) == (False, False, 0)
    assert not matcher.allows(end_of(vocabulary))
    matcher.accept(ord("a"))
    assert (matcher.is_final, matcher.is_finished, matcher.num_accepted) == (True, False, 1)
    matcher.accept(end_of(vocabulary))
    assert (matcher.is_final, matcher.is_finished, matcher.num_accepted) == (True, True, 2)
    assert matcher.mask() is None
    assert matcher.forced_bytes() == b""
    assert matcher.state_key == -1
    assert not matcher.allows(ord("b"))


def test_tokens_of_several_bytes(vocabulary: Vocabulary) -> None:
    token_id = next(i for i in range(256, vocabulary.width) if len(vocabulary.piece(i)) >= 3 and vocabulary.piece(i).isascii())
    text = vocabulary.piece(token_id).decode()
    matcher = compile_constraint("choice", json.dumps([f"{text}!"]), vocabulary).matcher()
    matcher.accept(token_id)
    assert matcher.forced_bytes() == b"!"


@pytest.mark.parametrize("bad", [ord("b"), 0x80, 10_000, -1])
def test_what_is_not_allowed_is_our_fault(bad: int, vocabulary: Vocabulary) -> None:
    matcher = matcher_of("a", vocabulary)
    assert not matcher.allows(bad)
    with pytest.raises(AssertionError, match="not allowed"):
        matcher.accept(bad)
    assert matcher.num_accepted == 0


def test_ending_too_early_or_twice_is_our_fault(vocabulary: Vocabulary) -> None:
    matcher = matcher_of("a", vocabulary)
    with pytest.raises(AssertionError, match="not allowed"):
        matcher.accept(end_of(vocabulary))
    matcher.accept(ord("a"))
    matcher.accept(end_of(vocabulary))
    with pytest.raises(AssertionError, match="after the end"):
        matcher.accept(end_of(vocabulary))


def test_special_tokens_are_not_allowed_even_where_their_name_is(vocabulary: Vocabulary) -> None:
    matcher = matcher_of(r"<\|user\|>.*", vocabulary)
    assert not matcher.allows(end_of(vocabulary) + 1)
    assert matcher.allows(ord("<"))


def test_rollback_restores_every_place(vocabulary: Vocabulary) -> None:
    rng = random.Random(4)
    matcher = matcher_of(r'\{"a": [0-9]{1,4}(, "b": "[a-z ]*")?\}', vocabulary)
    trail = [(matcher.state_key, matcher.is_final, matcher.forced_bytes())]
    for _ in range(300):
        mask = matcher.mask()
        if mask is not None and rng.random() < 0.6:
            matcher.accept(rng.choice(mask.nonzero().flatten().tolist()))
            trail.append((matcher.state_key, matcher.is_final, matcher.forced_bytes()))
        else:
            num_tokens = rng.randint(0, matcher.num_accepted)
            matcher.rollback(num_tokens)
            del trail[len(trail) - num_tokens :]
        assert matcher.num_accepted == len(trail) - 1
        assert trail[-1] == (matcher.state_key, matcher.is_final, matcher.forced_bytes())
    with pytest.raises(AssertionError, match="to take back"):
        matcher.rollback(matcher.num_accepted + 1)


def test_forks_do_not_share_their_place(vocabulary: Vocabulary) -> None:
    matcher = matcher_of("(ab|ac)+", vocabulary)
    matcher.accept(ord("a"))
    other = matcher.fork()
    assert other.state_key == matcher.state_key
    other.accept(ord("b"))
    assert matcher.num_accepted == 1
    matcher.accept(ord("c"))
    other.rollback(2)
    assert (matcher.num_accepted, other.num_accepted) == (2, 0)


def test_equal_places_have_equal_keys(vocabulary: Vocabulary) -> None:
    built = compile_constraint("regex", "(ab|cb)*", vocabulary)
    one, two = built.matcher(), built.matcher()
    one.accept(ord("a"))
    two.accept(ord("c"))
    assert one.state_key == two.state_key
    assert one.mask() is two.mask()


def test_threads_share_one_compiled_object(vocabulary: Vocabulary) -> None:
    def run(built: Compiled, seed: int) -> bytes:
        rng = random.Random(seed)
        matcher = built.matcher()
        text = b""
        while len(text) < 60 and (mask := matcher.mask()) is not None:
            token_id = rng.choice(mask.nonzero().flatten().tolist())
            matcher.accept(token_id)
            text += vocabulary.piece(token_id)
        return text

    pattern = '("[^"]{0,9}"|[0-9]+|(true|false|null), ){3,30}'
    expected = [run(compile_constraint("regex", pattern, vocabulary), seed) for seed in range(8)]
    shared = compile_constraint("regex", pattern, vocabulary)
    found: dict[int, bytes] = {}
    threads = [threading.Thread(target=lambda seed=seed: found.update({seed: run(shared, seed)})) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(8)] == expected
