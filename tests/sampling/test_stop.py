from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.messages import FinishReason
from ramet.params import SamplingParams
from ramet.sampling.stop import StopChecker
from ramet.sampling.text_stops import MAX_LOOK_BACK, look_back

CASES_PATH = Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "handed.jsonl"
EOS, PLAIN = 2, 10


def params(**values: Any) -> SamplingParams:
    return SamplingParams(max_new_tokens=values.pop("max_new_tokens", 100_000), **values)


def cuts(text: str) -> Iterator[list[str]]:
    """The text by character, whole, and in random pieces (some of them empty, as in the middle of a character)."""
    yield list(text)
    yield [text]
    dice = random.Random(7)
    for _ in range(20):
        borders = sorted(dice.choices(range(len(text) + 1), k=dice.randint(0, 8)))
        yield [text[a:b] for a, b in zip([0, *borders], [*borders, len(text)], strict=True)]


def run(pieces: Sequence[str], checker: StopChecker) -> tuple[str, list[str]]:
    """Text and stream of a request whose tokens come one a step; the stream must be the text, and never more than that."""
    chunks: list[str] = []
    for piece in pieces:
        if checker.finish is not None:
            break
        checker.push(PLAIN, piece)
        chunks.append(checker.release())
    chunks.append(checker.release_rest())
    assert "".join(chunks) == checker.text
    return checker.text, chunks


def cases() -> list[Any]:
    if not CASES_PATH.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason="the handed cases are not beside this checkout"))]
    rows = [json.loads(line) for line in CASES_PATH.read_text(encoding="utf-8").splitlines()]
    return [pytest.param(row["check"], id=row["id"]) for row in rows if row["check"]["kind"] == "stop"]


@pytest.mark.parametrize("check", cases())
def test_handed_stop_cases(check: dict[str, Any]) -> None:
    for pieces in cuts(check["literal"]):
        text, _ = run(pieces, checker := StopChecker(params(stop=tuple(check["stop"]))))
        assert text == check["text"]
        stops = [stop for stop in check["stop"] if stop in check["literal"]]
        assert checker.finish == (FinishReason("stop", matched=stops[0]) if stops else None)


@pytest.mark.parametrize(
    ("literal", "stop", "text", "matched"),
    [
        ("The river is Danube today.", ["Danu"], "The river is ", "Danu"),  # ST-01
        ("Result\n\nmore", ["\n"], "Result", "\n"),  # ST-03
        ("Why did the hen cross when it rained", ["when it rained"], "Why did the hen cross ", "when it rained"),  # ST-10
        ("all done", ["zzz"], "all done", None),  # ST-14
        ("Bye<|end|>tail", ["<|end|>"], "Bye", "<|end|>"),  # SD-04
        ("abcd", ["abcd", "bc"], "a", "bc"),  # what is complete first ends the text
        ("abcd", ["bc", "abc"], "", "abc"),  # complete together: the one that starts first
        ("aab", ["ab"], "a", "ab"),
        ("aaaa", ["aa"], "", "aa"),
        ("stop", ["stop"], "", "stop"),
        ("天地玄黄🙂x", ["黄🙂"], "天地玄", "黄🙂"),
    ],
)
def test_stop_strings(literal: str, stop: list[str], text: str, matched: str | None) -> None:
    for pieces in cuts(literal):
        got, chunks = run(pieces, checker := StopChecker(params(stop=stop)))
        assert got == text
        assert checker.finish == (None if matched is None else FinishReason("stop", matched=matched))
        kept, _ = run(pieces, StopChecker(params(stop=stop, no_stop_trim=True)))
        assert kept == text + (matched or "")
        if literal.startswith("Bye"):
            assert not any("<" in chunk for chunk in chunks)


def test_a_step_of_many_tokens_ends_at_the_stop() -> None:  # ST-05
    pieces = ["abc ", "ST", "OP", " def", " ghi", " jkl"]
    checker = StopChecker(params(stop="STOP"))
    verdict = checker.extend(range(10, 16), pieces)
    assert (verdict.num_accepted, verdict.finish) == (3, FinishReason("stop", matched="STOP"))
    assert (checker.text, checker.num_tokens, checker.release()) == ("abc ", 3, "abc ")


def test_tokens_that_end_nothing_are_all_taken() -> None:
    checker = StopChecker(params(stop="x"))
    assert checker.extend([10, 11], ["a", "b"]).num_accepted == 2
    assert checker.finish is None


@pytest.mark.parametrize(
    ("values", "ids", "num_tokens", "text", "finish"),
    [
        ({}, [10, EOS, 11], 2, "<10>", FinishReason("stop", matched=EOS)),
        ({"no_stop_trim": True}, [10, EOS, 11], 2, "<10><2>", FinishReason("stop", matched=EOS)),
        ({"stop_token_ids": (11,)}, [10, 11, 12], 2, "<10>", FinishReason("stop", matched=11)),
        ({"ignore_eos": True, "max_new_tokens": 3}, [EOS, 7, EOS, 10], 3, "<2><7><2>", FinishReason("length", length=3)),  # ST-06
        ({"ignore_eos": True, "stop_token_ids": (7,)}, [EOS, 7], 2, "<2>", FinishReason("stop", matched=7)),
        ({"max_new_tokens": 2}, [10, 11, 12], 2, "<10><11>", FinishReason("length", length=2)),
        ({"max_new_tokens": 2}, [10, EOS], 2, "<10>", FinishReason("stop", matched=EOS)),  # the stop goes before the limit
        ({"max_new_tokens": 2, "stop": "1>"}, [10, 11], 2, "<10><1", FinishReason("stop", matched="1>")),
        ({"max_new_tokens": 0}, [10], 0, "", FinishReason("length", length=0)),  # ST-08
        ({"min_new_tokens": 3}, [EOS, EOS, EOS, 10], 3, "<2><2>", FinishReason("stop", matched=EOS)),
        ({"min_new_tokens": 3, "stop": ">"}, [10, 11, 12, 13], 3, "<10><11><12", FinishReason("stop", matched=">")),
        ({"min_new_tokens": 3, "stop": "0>"}, [10, 11, 12, 10], 4, "<10><11><12><1", FinishReason("stop", matched="0>")),
        ({"min_new_tokens": 3, "stop_regex": "1.>"}, [10, 11, 12, 13], 3, "<10><11><", FinishReason("stop", matched="12>")),
        ({"min_new_tokens": 2, "stop": "><1"}, [10, 11], 2, "<10", FinishReason("stop", matched="><1")),  # begins in passed text
    ],
)
def test_tokens_limits_and_their_order(values: dict[str, Any], ids: list[int], num_tokens: int, text: str, finish: FinishReason) -> None:
    checker = StopChecker(params(**values), eos_ids=(EOS, 7))
    verdict = checker.extend(ids, [f"<{i}>" for i in ids])
    assert (verdict.num_accepted, verdict.finish, checker.text, checker.num_tokens) == (num_tokens, finish, text, num_tokens)


def test_a_token_after_the_ending_is_our_fault() -> None:
    checker = StopChecker(params(max_new_tokens=0))
    with pytest.raises(AssertionError, match="after the ending"):
        checker.push(10, "x")


def test_held_text_comes_out_when_a_token_ends_the_request() -> None:
    checker = StopChecker(params(stop="<|end|>"), eos_ids=(EOS,))
    checker.push(10, "a<|e")
    assert checker.release() == "a"
    checker.push(11, "nx<")
    assert checker.release() == "<|enx"
    checker.push(EOS, "</s>")
    assert checker.release() == "<"


def test_text_that_the_detokeniser_held() -> None:
    checker = StopChecker(params(max_new_tokens=1, stop="o!"))
    checker.push(10, "hello")
    assert checker.add_tail("!") == FinishReason("stop", matched="o!")
    assert checker.release() == "hell"
    assert checker.add_tail("more") == FinishReason("stop", matched="o!")
    assert checker.text == "hell"


@pytest.mark.parametrize(
    ("literal", "patterns", "text", "matched"),
    [
        ("The year 1984 was", [r"\d{3}"], "The year ", "198"),
        ("aaa", [r"a+"], "", "a"),  # the shortest prefix that matches
        ("x = 5;\n\ny", [r"\n\n|;\n"], "x = 5", ";\n"),
        ("foo bar", [r"(?<=foo) "], "foo", " "),
        ("ab", [r"a(?=b)"], "", "a"),
        ("end.", [r"\.$"], "end", "."),
        ("Aab", [r"^a", r"b"], "Aa", "b"),
        ("abc", [r"x*"], "", ""),
        ("none", [r"q+"], "none", None),
        ("a1b", [r"(?i)A\dB"], "", "a1b"),
    ],
)
def test_stop_patterns(literal: str, patterns: list[str], text: str, matched: str | None) -> None:
    for pieces in cuts(literal):
        got, _ = run(pieces, checker := StopChecker(params(stop_regex=patterns)))
        assert got == text
        assert checker.finish == (None if matched is None else FinishReason("stop", matched=matched))


@pytest.mark.parametrize(
    ("pattern", "bound"),
    [(r"\n\n", 6), (r"\d{3}", 7 * 3), (r"(ab{2}){3,4}", 14 * 2 * 4), ("a+", MAX_LOOK_BACK), ("a{2,}", MAX_LOOK_BACK)]
    + [(r"(a)\1", MAX_LOOK_BACK), (r"\+\*", 6), (r"\.", 4)],
)
def test_look_back(pattern: str, bound: int) -> None:
    assert look_back(pattern) == bound


def test_a_bounded_pattern_lets_older_text_go() -> None:
    checker = StopChecker(params(stop_regex=r"\n\n"))
    checker.push(10, "a long line of text")
    assert checker.release() == "a long line of"  # look-back 6: five characters stay
    checker = StopChecker(params(stop_regex=r"b+c"))
    checker.push(10, "b" * (MAX_LOOK_BACK + 9))
    assert len(checker.release()) == 10


def naive(text: str, stops: Sequence[str], patterns: Sequence[str]) -> tuple[str, str | None]:
    """The rule in its own words, prefix by prefix."""
    for seen_len in range(1, len(text) + 1):
        prefix = text[:seen_len]
        found = [(seen_len - len(s), 0, s) for s in stops if prefix.endswith(s)]
        found += [(m.start(), 1, m.group()) for p in patterns if (m := re.search(p, prefix))]
        if found:
            start, _, matched = min(found, key=lambda item: item[:2])
            return text[:start], matched
    return text, None


PATTERNS = ["ab+", "a(?!b)", "b{2}", "[bc]$", "(?<=c)a", r"a|c\b", "c.a", "(?>a|ab)c", "(?:a?){2}c"]


@settings(derandomize=True, max_examples=300, deadline=None)
@given(
    text=st.text("abc", max_size=24),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=4),
    patterns=st.lists(st.sampled_from(PATTERNS), max_size=2),
    borders=st.lists(st.integers(0, 24), max_size=8),
    step_len=st.integers(1, 4),
)
def test_the_result_does_not_depend_on_the_tokens(
    text: str, stops: list[str], patterns: list[str], borders: list[int], step_len: int
) -> None:
    expected, matched = naive(text, stops, patterns)
    ends = sorted(min(border, len(text)) for border in borders)
    pieces = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
    asked = params(stop=stops, stop_regex=patterns)
    got, _ = run(pieces, checker := StopChecker(asked))
    assert got == expected
    assert checker.finish == (None if matched is None else FinishReason("stop", matched=matched))
    stepped = StopChecker(asked)  # the same tokens, several a step
    for start in range(0, len(pieces), step_len):
        if stepped.finish is None:
            step = pieces[start : start + step_len]
            stepped.extend([PLAIN] * len(step), step)
    assert (stepped.text, stepped.num_tokens, stepped.finish) == (checker.text, checker.num_tokens, checker.finish)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(text=st.text("ab", max_size=20), stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_no_more_is_held_than_may_become_a_stop(text: str, stops: list[str]) -> None:
    checker = StopChecker(params(stop=stops))
    sent = ""
    for char in text:
        if checker.finish is not None:
            break
        checker.push(PLAIN, char)
        sent += checker.release()
        held = checker.text[len(sent) :]
        assert checker.finish is not None or held == "" or any(stop.startswith(held) for stop in stops)
