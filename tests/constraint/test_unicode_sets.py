"""The character sets against the running Python, over all of Unicode."""

from __future__ import annotations

import random
import re
import unicodedata
from itertools import groupby

import pytest

from ramet.constraint.charset import MAX_CODE_POINT, SCALARS, Ranges, complement, intersect, union
from ramet.constraint.unicode_sets import category, ignore_case, shorthand
from ramet.constraint.utf8 import ByteNode, utf8_automaton

EVERYTHING = "".join(map(chr, range(MAX_CODE_POINT + 1)))


def runs(pattern: str, flags: int = 0) -> Ranges:
    return union((match.start(), match.end() - 1) for match in re.finditer(f"(?:{pattern})+", EVERYTHING, flags | re.DOTALL))


@pytest.mark.parametrize("letter", list("wdsWDS"))
@pytest.mark.parametrize("is_unicode", [True, False])
def test_shorthands_are_those_of_re(letter: str, is_unicode: bool) -> None:
    assert shorthand(letter, is_unicode) == runs(f"\\{letter}", 0 if is_unicode else re.ASCII)


def test_categories_are_those_of_unicodedata() -> None:
    by_name: dict[str, list[tuple[int, int]]] = {}
    at = 0
    for name, run in groupby(map(unicodedata.category, EVERYTHING)):
        length = sum(1 for _ in run)
        by_name.setdefault(name, []).append((at, at + length - 1))
        at += length
    for name, ranges in by_name.items():
        assert category(name) == union(ranges), name
    assert category("L") == union(pair for name in ("Lu", "Ll", "Lt", "Lm", "Lo") for pair in category(name) or ())
    assert category("Uppercase_Letter") == category("uppercase letter") == category("Lu")
    assert category("Latin") is None
    assert category("") is None


def test_cases_are_those_of_re() -> None:
    cased = [char for char in EVERYTHING if char.lower() != char or char.upper() != char]
    joined = "".join(cased)
    assert len(cased) > 2_500
    for char in random.Random(3).sample(cased, 500) + list("iIıİsSſkK\u212aßẞµΣσς\u0345ιΐ\u1fd3ﬅﬆǅǆᾳᾼ𐐀𐐨"):
        expected = {ord(other) for other in re.findall(re.escape(char), joined, re.IGNORECASE)} | {ord(char)}
        assert ignore_case(((ord(char), ord(char)),), is_unicode=True) == union((point, point) for point in expected), char


def test_set_algebra() -> None:
    assert union([(5, 9), (1, 2), (3, 3), (8, 12)]) == ((1, 3), (5, 12))
    assert complement(()) == ((0, MAX_CODE_POINT),)
    assert complement(complement(((0, 5), (9, MAX_CODE_POINT)))) == ((0, 5), (9, MAX_CODE_POINT))
    assert intersect(((0, 10), (20, 30)), ((5, 25),)) == ((5, 10), (20, 25))


def reads(root: ByteNode | None, data: bytes) -> bool:
    node: ByteNode | bool | None = root
    for byte in data:
        if not isinstance(node, ByteNode):
            return False
        node = node.step(byte)
    return node is True


@pytest.mark.parametrize("seed", range(6))
def test_the_bytes_of_a_set_are_read_and_no_others(seed: int) -> None:
    rng = random.Random(seed)
    bounds = [0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF, 0x40000, MAX_CODE_POINT]
    picks = sorted(max(0, min(MAX_CODE_POINT, rng.choice(bounds) + rng.randint(-70, 70))) for _ in range(rng.choice([2, 4, 8])))
    ranges = union(zip(picks[::2], picks[1::2], strict=True))
    root = utf8_automaton(ranges)
    edges = {point + step for pair in ranges for point in pair for step in (-1, 0, 1)} | {
        rng.randint(0, MAX_CODE_POINT) for _ in range(500)
    }
    for point in edges:
        if 0 <= point <= MAX_CODE_POINT and not 0xD800 <= point <= 0xDFFF:
            assert reads(root, chr(point).encode()) == any(low <= point <= high for low, high in ranges), hex(point)
    for bad in (b"\x80", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xff", b"a" * 2, b""):
        assert not reads(root, bad), bad


def test_automata_are_small_and_have_no_dead_ends() -> None:
    everything = utf8_automaton(SCALARS)
    assert everything is not None
    assert everything.num_nodes == 8
    assert utf8_automaton(((0xD800, 0xDFFF),)) is None
    assert utf8_automaton(((0xE9, 0xE9),), frozenset({0xC3})) is None
    kept = utf8_automaton(((0x61, 0x63), (0xE9, 0xEA)), frozenset({0x62, 0xC3, 0xAA}))
    assert [chr(point) for point in range(0x100) if reads(kept, chr(point).encode())] == ["b", "ê"]
