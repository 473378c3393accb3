"""The handed cases about regular expressions: what other engines got wrong."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ramet.constraint.compile import compile_constraint
from ramet.constraint.testing import accepts, byte_vocabulary
from ramet.constraint.vocabulary import Vocabulary
from ramet.errors import InvalidConstraint

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "handed.jsonl"


def cases(kind: str) -> list[Any]:
    if not CASES.exists():
        return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason="the handed cases are not beside this checkout"))]
    rows = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    return [pytest.param(row, id=row["id"]) for row in rows if row["check"]["kind"] == kind]


@pytest.mark.parametrize("case", cases("regex"))
def test_verdicts(case: dict[str, Any]) -> None:
    check = case["check"]
    try:
        wrong = [text for text in check["accept"] if not accepts("regex", check["pattern"], text)]
        wrong += [text for text in check["reject"] if accepts("regex", check["pattern"], text)]
    except InvalidConstraint as error:
        assert check.get("or_http") == error.http_status
        assert "not offered" in error.why
        return
    assert wrong == []


@pytest.mark.parametrize("case", cases("regex_invalid"))
def test_broken_patterns_are_refused(case: dict[str, Any]) -> None:
    for pattern in case["check"]["patterns"]:
        with pytest.raises(InvalidConstraint) as caught:
            accepts("regex", pattern, "")
        assert caught.value.text == pattern


@pytest.mark.parametrize("case", cases("choices"))
def test_choices(case: dict[str, Any]) -> None:
    text = json.dumps(case["check"]["choices"])
    assert all(accepts("choice", text, option) for option in case["check"]["choices"])
    assert not any(accepts("choice", text, option) for option in case["check"]["never"])


def test_a_leading_nul_is_a_character() -> None:  # RX-06
    assert accepts("regex", "\0abc", "\0abc")


def test_the_other_anchors_and_groups_of_the_cases() -> None:  # RX-12, RX-17
    assert [accepts("regex", "^yes|no$", text) for text in ("yes", "no", "^yes", "no$", "yesno")] == [True, True, False, False, False]
    assert accepts("regex", "(^ab)c", "abc")
    assert all(accepts("regex", "(?i)yes", text) for text in ("YES", "yes", "Yes"))
    for pattern in ("a^b", "[]", "a)"):
        with pytest.raises(InvalidConstraint):
            accepts("regex", pattern, "")


@pytest.mark.parametrize("pattern", ["a{1900000000,2147483646}", "(a{5000}){5000}"])
def test_huge_repetitions_are_refused_at_once(pattern: str) -> None:  # RX-15
    start_s = time.monotonic()
    with pytest.raises(InvalidConstraint, match="limit"):
        accepts("regex", pattern, "a")
    assert time.monotonic() - start_s < 2


def test_rows_are_wider_than_the_vocabulary() -> None:  # RX-23
    pieces = [bytes([byte]) for byte in range(256)] + [b"ab"] * 244
    mask = compile_constraint("regex", "[ab]{4}", Vocabulary(pieces, eos_ids=(3,), width=512)).matcher().mask()
    assert mask is not None
    assert mask.shape == (512,)
    assert mask.nonzero().flatten().tolist() == [ord("a"), ord("b"), *range(256, 500)]


def test_no_end_before_the_pattern_is_complete() -> None:  # RX-25
    vocabulary = byte_vocabulary()
    (end,) = vocabulary.eos_ids
    matcher = compile_constraint("regex", r"\d{8}", vocabulary).matcher()
    for number in range(8):
        mask = matcher.mask()
        assert mask is not None
        assert not mask[end]
        matcher.accept(ord(str(number)))
    mask = matcher.mask()
    assert mask is not None
    assert mask.nonzero().flatten().tolist() == [end]
