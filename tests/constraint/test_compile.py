"""Kinds, and the cache of compiled constraints."""

from __future__ import annotations

import json
import re
import threading
import time

import pytest

from ramet.constraint.compile import KINDS, ConstraintCache, compile_constraint
from ramet.constraint.compiled import AutomatonConstraint
from ramet.constraint.kinds.typed import TYPED_PATTERNS
from ramet.constraint.limits import Limits
from ramet.constraint.testing import accepts, explain
from ramet.constraint.vocabulary import Vocabulary
from ramet.errors import ConfigError, InvalidConstraint


def test_the_kinds_are_known(vocabulary: Vocabulary) -> None:
    assert set(KINDS.names()) >= {"regex", "choice", "int", "float", "bool", "str"}
    with pytest.raises(ConfigError, match="did you mean 'regex'"):
        compile_constraint("regexp", "a", vocabulary)


@pytest.mark.parametrize(
    ("kind", "accepted", "refused"),
    [
        ("int", ["0", "-12", "+007"], ["", "-", "1.5", " 1", "\u0661"]),
        ("float", ["1", "-1.5", ".5", "+0.25"], ["", "1.", ".", "1e5"]),
        ("bool", ["True", "False"], ["true", "", "TrueFalse"]),
        ("str", ['""', '"a b_1\n"'], ["a", '"', '"a', '"é"', '"a"b"']),
    ],
)
def test_typed_kinds(kind: str, accepted: list[str], refused: list[str]) -> None:
    for text in accepted + refused:
        assert accepts(kind, "", text) == (text in accepted) == bool(re.fullmatch(TYPED_PATTERNS[kind], text, re.ASCII)), text
    with pytest.raises(InvalidConstraint, match="takes no text"):
        accepts(kind, "a", "a")


def test_choices_mean_themselves() -> None:
    options = ["Mt. Fuji", "C++ (17)", "a|b", "50% off?", "", 'say "é"\\', "日本"]
    for option in options:
        assert accepts("choice", json.dumps(options), option)
    for other in ["Mtx Fuji", "C (17)", "a", "b", "50% off", " ", "日"]:
        assert not accepts("choice", json.dumps(options), other)


@pytest.mark.parametrize(
    ("text", "offset", "why"),
    [
        ("[]", None, "no option"),
        ("", 0, "no JSON"),
        ('["a", ', 6, "no JSON"),
        ('"a"', None, "list of strings"),
        ('["a", 1]', None, "list of strings"),
        ('{"a": 1}', None, "list of strings"),
        ('["a", ["b"]]', None, "list of strings"),
        ('["\\ud83d"]', None, "surrogate"),
        ("[" * 100_000, None, "flat list"),
    ],
)
def test_bad_choices_are_refused(text: str, offset: int | None, why: str, vocabulary: Vocabulary) -> None:
    with pytest.raises(InvalidConstraint, match=why) as caught:
        compile_constraint("choice", text, vocabulary)
    assert caught.value.kind == "choice"
    assert caught.value.offset == offset


def test_a_hit_is_the_same_object_and_everything_counts_in_the_key(vocabulary: Vocabulary) -> None:
    cache = ConstraintCache()
    first = compile_constraint("regex", "a+", vocabulary, cache=cache)
    assert compile_constraint("regex", "a+", vocabulary, cache=cache) is first
    others = [
        compile_constraint("regex", "b+", vocabulary, cache=cache),
        compile_constraint("choice", '["a+"]', vocabulary, cache=cache),
        compile_constraint("regex", "a+", Vocabulary([b"a"]), cache=cache),
        compile_constraint("regex", "a+", vocabulary, limits=Limits(max_nesting=5), cache=cache),
    ]
    assert all(other is not first for other in others)
    assert (cache.num_hits, cache.num_misses, len(cache)) == (1, 5, 5)


def test_the_least_recently_used_is_dropped(vocabulary: Vocabulary) -> None:
    cache = ConstraintCache(max_entries=2)
    a, b = (compile_constraint("regex", text, vocabulary, cache=cache) for text in "ab")
    assert compile_constraint("regex", "a", vocabulary, cache=cache) is a
    compile_constraint("regex", "c", vocabulary, cache=cache)
    assert len(cache) == 2
    assert compile_constraint("regex", "a", vocabulary, cache=cache) is a
    assert compile_constraint("regex", "b", vocabulary, cache=cache) is not b


def test_errors_are_not_kept(vocabulary: Vocabulary) -> None:
    cache = ConstraintCache()
    for _ in range(2):
        with pytest.raises(InvalidConstraint):
            compile_constraint("regex", "(", vocabulary, cache=cache)
    assert (len(cache), cache.num_misses) == (0, 2)


@pytest.mark.parametrize("fails", [False, True])
def test_callers_at_the_same_time_wait_for_one_compilation(fails: bool, vocabulary: Vocabulary) -> None:
    cache = ConstraintCache()
    num_made = 0
    is_open = threading.Event()

    def make() -> AutomatonConstraint:
        nonlocal num_made
        num_made += 1
        assert is_open.wait(10)
        if fails:
            raise InvalidConstraint("regex", "a", "on purpose")
        made = compile_constraint("regex", "a", vocabulary)
        assert isinstance(made, AutomatonConstraint)
        return made

    results: list[object] = []

    def call() -> None:
        try:
            results.append(cache.get(("regex", "a", vocabulary, Limits()), make))
        except InvalidConstraint as error:
            results.append(error)

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + 10
    while cache.num_hits < 5 and time.monotonic() < deadline_s:
        time.sleep(0.001)
    is_open.set()
    for thread in threads:
        thread.join()
    assert num_made == 1
    assert len(results) == 6
    assert all(result is results[0] for result in results)
    assert isinstance(results[0], InvalidConstraint) == fails
    assert len(cache) == (0 if fails else 1)


def test_a_text_that_is_too_long_is_refused(vocabulary: Vocabulary) -> None:
    with pytest.raises(InvalidConstraint, match="limit of 10"):
        compile_constraint("regex", "é" * 6, vocabulary, limits=Limits(max_text_bytes=10))
    assert compile_constraint("regex", "é" * 5, vocabulary, limits=Limits(max_text_bytes=10))


def test_explanations() -> None:
    good = explain("regex", "ab*c", "abbc")
    assert (good.is_accepted, str(good)) == (True, "accepted")
    bad = explain("regex", "ab*c", "abbd")
    assert (bad.is_accepted, bad.accepted, bad.num_bytes, bad.may_end, bad.expected, bad.forced) == (False, "abb", 3, False, "b-c", "")
    short = explain("regex", "ab|abcd", "abc")
    assert (short.is_accepted, short.accepted, short.forced) == (False, "abc", "d")
    assert "forced: 'd'" in str(short)
    long = explain("regex", "ab", "abc")
    assert (long.may_end, long.expected) == (True, "")
    assert str(long) == "fails behind 'ab' (2 bytes): expected nothing or the end"
    inside = explain("regex", "[娃娇]", "娄")
    assert (inside.accepted, inside.num_bytes, inside.expected) == ("", 2, "\\x83 \\x87")
    assert not accepts("regex", "(?s).", "\ud83d")
    assert explain("regex", " a", "a").expected == "\\x20"
