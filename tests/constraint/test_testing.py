"""What ships for users to try a constraint: places, forced shares, states, tokens."""

from __future__ import annotations

import pytest

from ramet.constraint.compile import compile_constraint
from ramet.constraint.compiled import AutomatonConstraint
from ramet.constraint.limits import Limits
from ramet.constraint.testing import (
    StateCount,
    byte_vocabulary,
    count_states,
    explain,
    explain_bytes,
    iterate_states,
    trace_tokens,
)
from ramet.constraint.vocabulary import Vocabulary
from ramet.errors import InvalidConstraint


@pytest.mark.parametrize(
    ("pattern", "text", "num_bytes", "num_forced_bytes"),
    [
        ("abc", "abc", 3, 3),
        ("abc", "abx", 2, 2),
        ("abc", "", 0, 0),
        ("a[bc]d", "abd", 3, 2),
        ("a[bc]d", "abx", 2, 1),
        ("(ab|ac)de", "acde", 4, 3),
        ("a*", "aaa", 3, 0),
        ("ab?", "ab", 2, 1),
        ("[éè]", "é", 2, 1),
        ("x{2000}y?", "x" * 2000 + "y", 2001, 2000),
    ],
)
def test_forced_bytes_are_those_without_an_alternative(pattern: str, text: str, num_bytes: int, num_forced_bytes: int) -> None:
    found = explain("regex", pattern, text)
    assert (found.num_bytes, found.num_forced_bytes) == (num_bytes, num_forced_bytes)


@pytest.mark.parametrize(
    ("text", "place"),
    [("ab\nab\n", (1, 1, 0)), ("x", (1, 1, 0)), ("é\néx", (2, 2, 3)), ("é\n\n", (3, 1, 3)), ("é\né", (2, 2, 3)), ("éé\nè", (2, 1, 3))],
)
def test_the_place_of_a_fault(text: str, place: tuple[int, int, int]) -> None:
    found = explain("regex", r"(é[é\n]+)!", text)
    assert (found.line, found.column, found.offset) == place
    assert not found.is_accepted


def test_any_bytes_can_be_explained() -> None:
    found = explain_bytes(compile_constraint("regex", "(?s).*", byte_vocabulary()), b"ab\xff")
    assert (found.is_accepted, found.accepted, found.may_end) == (False, "ab", True)


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("abc", StateCount(4, 3, True)),
        ("a*", StateCount(1, 0, True)),
        ("[ab]c", StateCount(3, 1, True)),
        ("(a|b)*abb", StateCount(4, 0, True)),
        ("[a-c]{5}", StateCount(6, 0, True)),
    ],
)
def test_states_are_counted(pattern: str, count: StateCount) -> None:
    assert count_states(compile_constraint("regex", pattern, byte_vocabulary())) == count


def test_counting_stops() -> None:
    compiled = compile_constraint("regex", ".*a.{12}|.*b", byte_vocabulary())
    assert count_states(compiled, max_states=50) == StateCount(50, 0, False)
    compiled = compile_constraint("regex", "[ab]{100}", byte_vocabulary(), limits=Limits(max_dfa_states=40))
    found = count_states(compiled)
    assert found is not None
    assert not found.is_complete and 30 <= found.num_states <= 40


def test_a_state_comes_before_those_behind_it_are_known() -> None:
    compiled = compile_constraint("regex", "[ab]{20}", byte_vocabulary())
    assert isinstance(compiled, AutomatonConstraint)
    known = [compiled.automaton.num_states for _ in iterate_states(compiled.automaton)]
    assert known == list(range(1, 22))


def test_tokens_are_forced_when_all_their_bytes_are() -> None:
    vocabulary = Vocabulary([b"ab", b"abc", b"c", b"x", b"y", b"cx", b""], eos_ids=(6,))
    compiled = compile_constraint("regex", "abc[xy]", vocabulary)
    steps = trace_tokens(compiled, vocabulary, [0, 5, 6])
    assert [(step.piece, step.is_forced) for step in steps] == [(b"ab", True), (b"cx", False), (b"", False)]
    assert [step.is_forced for step in trace_tokens(compiled, vocabulary, [1, 4, 0])] == [True, False]


def test_what_is_refused_is_refused_here_too() -> None:
    with pytest.raises(InvalidConstraint):
        explain("regex", "(", "a")
