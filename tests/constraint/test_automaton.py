"""The lazy automaton: what is forced, what is built, what it may cost."""

from __future__ import annotations

import random
import threading
import time

import pytest

from ramet.constraint.automaton import DEAD, START, Automaton
from ramet.constraint.limits import Limits, Source
from ramet.constraint.regex import parse_regex
from ramet.constraint.syntax import Alt, Chars, Repeat, Seq, literal
from ramet.errors import InvalidConstraint

_STRING = r'"[\w\d\s]{1,16}"'
RECORD = (
    r'\{\n    "name": ' + _STRING + r',\n    "house": "(Gryffindor|Slytherin|Ravenclaw|Hufflepuff)",\n'
    r'    "blood status": "(Pure-blood|Half-blood|Muggle-born)",\n'
    r'    "occupation": "(student|teacher|auror|ministry of magic|death eater|order of the phoenix)",\n'
    r'    "wand": \{\n        "wood": ' + _STRING + r',\n        "core": ' + _STRING + r',\n        "length": [0-9]{1,2}\.[0-9]{0,2}\n'
    r'    \},\n    "alive": "(Alive|Deceased)",\n    "patronus": ' + _STRING + r',\n    "bogart": ' + _STRING + r"\n\}"
)


def automaton(pattern: str, limits: Limits | None = None, alphabet: frozenset[int] | None = None) -> Automaton:
    source = Source("regex", pattern, limits)
    return Automaton(parse_regex(source), source, alphabet)


def all_states(built: Automaton) -> list[int]:
    """Walk the whole automaton."""
    seen = [START]
    for state in seen:
        targets = {built.step(state, byte) for low, high in built.next_bytes(state) for byte in range(low, high + 1)}
        seen += sorted(targets - {DEAD, *seen})
    return seen


@pytest.mark.parametrize(
    ("pattern", "begin", "forced"),
    [
        ("abc", "", "abc"),
        ("abc", "ab", "c"),
        ("abc?", "", "ab"),
        ("(abc|abd)", "", "ab"),
        ("(abc|ab)", "", "ab"),
        ("[a]{3}b", "", "aaab"),
        ("x*y", "", ""),
        ("(ab){2,3}", "", "abab"),
        ("(ab){2,3}", "ababa", "b"),
        ('{"a": [0-9]+, "b": 1}', "", '{"a": '),
        ('{"a": [0-9]+, "b": 1}', '{"a": 12,', ' "b": 1}'),
        ("é|è", "", b"\xc3"),
        (r"\[\"(娃领|娇领|娱领)\"\]", "", b'["\xe5\xa8'),
        ("", "", ""),
    ],
)
def test_forced_bytes(pattern: str, begin: str, forced: str | bytes) -> None:
    built = automaton(pattern)
    state = built.walk(START, begin.encode())
    expected = forced.encode() if isinstance(forced, str) else forced
    found, behind = built.forced_bytes(state)
    assert found == expected
    assert behind == built.walk(state, expected)
    assert built.is_singular(state) == bool(expected)


def test_the_character_record_has_its_known_size() -> None:
    built = automaton(RECORD)
    states = all_states(built)
    # 440 and 351 where every option keeps its own ending; here `Pure-blood` and `Half-blood`, `teacher` and `death eater` share theirs.
    assert (len(states), sum(map(built.is_singular, states))) == (431, 342)


@pytest.mark.parametrize("pattern", ["a(b|[^\\s\\S])*c", "(a|b[^\\s\\S])c", "[^\\s\\S]?x", "(?:[\\ud800-\\udfff]|y)z", "[é日😀]{2}"])
def test_no_state_is_a_dead_end(pattern: str) -> None:
    built = automaton(pattern)
    states = all_states(built)
    after = {s: {built.step(s, byte) for low, high in built.next_bytes(s) for byte in range(low, high + 1)} for s in states}
    leads_on = {state for state in states if built.is_accepting(state)}
    for _ in states:
        leads_on |= {state for state in states if after[state] & leads_on}
    assert set(states) == leads_on


def test_characters_that_cannot_be_spelled_are_absent() -> None:
    alphabet = frozenset(b"ab\xc3\xa9")
    built = automaton("[a-zéê]+", alphabet=alphabet)
    assert built.accepts("abé".encode())
    assert not built.accepts(b"c")
    assert not built.accepts("ê".encode())
    assert automaton("(c|a)b", alphabet=alphabet).forced_bytes(START)[0] == b"ab"
    with pytest.raises(InvalidConstraint, match="vocabulary can spell"):
        automaton("abc", alphabet=alphabet)


_WORDS = ["".join(random.Random(number).choices("abcdefghijklmnopqrstuvwxyz", k=3 + number % 9)) for number in range(2000)]
PATHOLOGICAL = {
    "any5000": r".{0,5000}",
    "letters200": "(" + "|".join("abcdefghijklmnopqrstuvwxyz") + "){1,200}",
    "enum2000": "(" + "|".join(_WORDS) + ")",
    "exponential": r".*a.{12}|.*b",
    "not-abc": r"([^a]|a[^b]|ab[^c]){0,100}",
    "email": r"[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
    r"(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*",
    "url": r"https?://(?:[-\w.]|(?:%[\da-fA-F]{2}))+(?::\d{1,5})?(?:/[^\s?#]*)?(?:\?[^\s#]*)?(?:#\S*)?",
    "rfc3339": r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)",
    "unicode64": r"(?u)[\w\d\s]{1,64}",
    "record": RECORD,
    "nested": "((a{0,99}b?){0,99}c?){0,90}",
    "empty-rounds": "((((a?)*)*)*)*",
}
TEXTS = {
    "any5000": ("x" * 5000, "x" * 5001),
    "letters200": ("z" * 200, "z" * 201),
    "enum2000": (_WORDS[77], _WORDS[77] + "!"),
    "exponential": ("ab" * 20, "b" + "a" * 12),
    "not-abc": ("ab" * 60, "abc"),
    "email": ("a.b+c@mail.example.org", "a@-b"),
    "url": ("https://example.org:80/a?b=c#d", "https://example.org/a b"),
    "rfc3339": ("2026-11-30T23:59:60.5+01:00", "2026-13-01T00:00:00Z"),
    "unicode64": ("日é \u0660" * 16, "日é \u0660" * 16 + "a"),
    "record": (
        '{\n    "name": "H",\n    "house": "Gryffindor",\n    "blood status": "Half-blood",\n    "occupation": "auror",\n'
        '    "wand": {\n        "wood": "holly",\n        "core": "x",\n        "length": 11.0\n    },\n'
        '    "alive": "Alive",\n    "patronus": "stag",\n    "bogart": "y"\n}',
        "{}",
    ),
    "nested": ("aab" * 20 + "c", "bcb" * 10 + "d"),
    "empty-rounds": ("a" * 50, "ab"),
}


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_pathological_patterns_are_ready_at_once(name: str) -> None:
    automaton(r"(?u)\w\d\s")  # the sets of Unicode are read once a process
    fastest_s = 9.0
    for _ in range(3):  # other work on the machine counts against this process, too
        start_s = time.process_time()
        built = automaton(PATHOLOGICAL[name])
        fastest_s = min(fastest_s, time.process_time() - start_s)
    assert fastest_s < 0.05
    accepted, refused = TEXTS[name]
    assert built.accepts(accepted.encode())
    assert not built.accepts(refused.encode())


def test_a_limit_met_on_the_way_is_told_every_time() -> None:
    built = automaton(".*a.{12}|.*b", Limits(max_dfa_states=50))
    text = "".join(random.Random(0).choices("ab", k=200)).encode()
    for _ in range(2):
        with pytest.raises(InvalidConstraint, match="50 automaton states"):
            built.walk(START, text)
    assert built.num_states == 50
    assert built.accepts(b"b")  # what is known still works


def test_the_time_is_limited() -> None:
    now_s = [0.0]

    def clock() -> float:
        now_s[0] += 0.01
        return now_s[0]

    source = Source("regex", "(" + "|".join(_WORDS) + ")", Limits(max_seconds=1.0), clock)
    with pytest.raises(InvalidConstraint, match="1.0 seconds"):
        Automaton(parse_regex(source), source)


def test_trees_need_no_text() -> None:
    source = Source("made", "")
    digit = Chars(((48, 57),))
    built = Automaton(Seq((literal("n="), Repeat(digit, 1, 3), Alt((literal(";"), literal(";;"))))), source)
    assert built.accepts(b"n=12;;")
    assert not built.accepts(b"n=1234;")
    for nothing in (Alt(()), Seq((digit, Alt(()))), Chars(())):
        with pytest.raises(InvalidConstraint, match="no text matches"):
            Automaton(nothing, source)


def test_threads_agree() -> None:
    built = automaton("(.*a.{6}|(b|cd)*e){0,3}")
    alone = automaton("(.*a.{6}|(b|cd)*e){0,3}")
    texts = ["".join(random.Random(number).choices("abcde", k=12)).encode() for number in range(300)]
    results: list[list[bool]] = []
    threads = [threading.Thread(target=lambda: results.append([built.accepts(text) for text in texts])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[alone.accepts(text) for text in texts]] * 4
