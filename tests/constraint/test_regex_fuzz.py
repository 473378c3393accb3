"""Random patterns of the offered subset, and typing errors in them, against Python's `re`."""

from __future__ import annotations

import random
import re
import warnings

import pytest

from ramet.constraint.automaton import Automaton
from ramet.constraint.limits import Source
from ramet.constraint.regex import parse_regex
from ramet.errors import InvalidConstraint

CHARS = "abcABZ019_ -\n\tkKsSıİſßéÉǆ\u212a\u0660日Ⅷ😀𐐀𐐨"
_ATOMS = [
    (".", "a b\n😀"), (r"\d", "07\u0660"), (r"\D", "a\u0660 "), (r"\w", "aZ_é日"), (r"\W", " -é😀"), (r"\s", " \t\u3000"),
    (r"\S", "aé"), ("[a-c]", "abc"), ("[^a-c]", "dé\n"), ("[abé-ü]", "aéÉ"), (r"[\d_-]", "0_-"), (r"[^\w\s]", "-é😀"),
    ("[K-Zk]", "Kk\u212asS"), ("[^ks]", "kKſa"), (r"[\W\d]", "0 é"), ("[😀-😂日]", "😀日"), (r"\x41", "Aa"), (r"\u00e9", "éÉ"),
    (r"\.", "."), (r"\n", "\n"), (r"[\]\\^-]", "]\\^-"), ("[]a]", "]a"), (r"\060", "0"), (r"\-", "-"), (r"[^\W\d_]", "aé"),
    ("[𐐀-𐐂]", "𐐀𐐨"), (r"[\n-\x7f]", "a\n~"), ("[+--]", "+,-"), ("[é-😀]", "éÉµ😀"),
]  # fmt: skip


def oracle(pattern: str) -> re.Pattern[str]:
    """What the documentation promises: `re.ASCII` unless the pattern switches Unicode on."""
    flags = re.compile(r"(?:\(\?#[^)]*\)|\(\?[a-z]+\))*\(\?[a-z]*u[a-z]*\)").match(pattern)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sets that look nested
        return re.compile(pattern, 0 if flags else re.ASCII)


def automaton(pattern: str) -> Automaton:
    source = Source("regex", pattern)
    return Automaton(parse_regex(source), source)


def random_pattern(rng: random.Random) -> tuple[str, list[str]]:
    """A pattern and some texts, most of which come near to matching it."""
    body, texts = _alternation(rng, 2)
    if rng.random() < 0.3:
        body = f"^{body}$" if rng.random() < 0.5 else f"(?:^{body})$"
    head = rng.choice(["", "", "", "(?i)", "(?s)", "(?u)", "(?iu)", "(?si)", "(?m)", "(?#x)", "(?i)(?u)"])
    texts += [_mutated(rng, text) for text in texts] + ["".join(rng.choices(CHARS, k=rng.randint(0, 4)))]
    # `re` tries every way to cut a text, which takes exponential time where repetitions nest.
    return head + body, [text[:8] for text in texts]


def mutated_pattern(rng: random.Random, pattern: str) -> str:
    """A small typing error."""
    return _mutated(rng, pattern, "()[]{}*+?|^$.\\-,:0123abPdwi<>=!#")


def _mutated(rng: random.Random, text: str, chars: str = CHARS) -> str:
    at = rng.randint(0, len(text))
    kept = text[at + 1 :] if rng.random() < 0.6 else text[at:]
    return text[:at] + (rng.choice(chars) if rng.random() < 0.7 else "") + kept


def _alternation(rng: random.Random, depth: int) -> tuple[str, list[str]]:
    parts = [_sequence(rng, depth) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    return "|".join(pattern for pattern, _ in parts), [text for _, texts in parts for text in texts][:6]


def _sequence(rng: random.Random, depth: int) -> tuple[str, list[str]]:
    pattern, texts = "", ["", "", ""]
    for _ in range(rng.choice([0, 1, 2, 2, 3])):
        atom, choices = _atom(rng, depth)
        low, high, mark = rng.choice(
            [(1, 1, "")] * 5 + [(0, 3, "*"), (1, 3, "+"), (0, 1, "?"), (2, 2, "{2}"), (0, 2, "{,2}"), (1, 4, "{1,}"), (1, 2, "{1,2}")]
        )
        pattern += atom + mark + (rng.choice(["", "?"]) if mark else "")
        texts = [text + "".join(rng.choice(choices) for _ in range(rng.randint(low, high))) for text in texts]
    return pattern, texts


def _atom(rng: random.Random, depth: int) -> tuple[str, list[str]]:
    kind = rng.random()
    if depth and kind < 0.3:
        body, texts = _alternation(rng, depth - 1)
        return rng.choice(["(", "(?:", "(?i:", "(?-i:", "(?s:", "(?u:", "(?a:", "(?iu-s:"]) + body + ")", texts
    if kind < 0.6:
        char = rng.choice(CHARS)
        return re.escape(char), [char, char.swapcase()[:1]]
    atom, members = rng.choice(_ATOMS)
    return atom, list(members)


def _verdicts(pattern: str, texts: list[str]) -> tuple[int, list[str]]:
    """How many verdicts were compared, and the texts on which they differ."""
    expected = oracle(pattern)
    try:
        built = automaton(pattern)
    except InvalidConstraint as error:
        if "beyond U+FFFF" in error.why:
            return 0, []
        assert "no text matches" in error.why, f"{pattern!r} is refused: {error}"
        return len(texts), [text for text in texts if expected.fullmatch(text)]
    return len(texts), [text for text in texts if built.accepts(text.encode()) != bool(expected.fullmatch(text))]


def fuzz_texts(seed: int, num_pairs: int) -> tuple[int, int]:
    """Compare this many pairs; returns how many were compared and how many matched."""
    rng = random.Random(seed)
    num_done = num_matched = 0
    while num_done < num_pairs:
        pattern, texts = random_pattern(rng)
        num, wrong = _verdicts(pattern, texts)
        assert wrong == [], f"{pattern!r}"
        num_done += num
        num_matched += sum(bool(oracle(pattern).fullmatch(text)) for text in texts)
    return num_done, num_matched


def fuzz_typing_errors(seed: int, num_patterns: int) -> tuple[int, int]:
    """Patterns that `re` refuses are refused; those it takes are refused by name or mean the same. Returns how many of each were seen."""
    rng = random.Random(seed)
    num_bad = num_good = 0
    for _ in range(num_patterns):
        pattern, texts = random_pattern(rng)
        pattern = mutated_pattern(rng, pattern)
        if re.search(r"\d\d+,?\d*\}|,\d\d+\}", pattern):
            continue  # a large count, for which `re` may take for ever
        try:
            expected = oracle(pattern)
        except (re.error, OverflowError, ValueError):
            if "\\p" not in pattern.lower():  # ours alone
                with pytest.raises(InvalidConstraint):
                    automaton(pattern)
                num_bad += 1
            continue
        try:
            built = automaton(pattern)
        except InvalidConstraint as error:
            assert "offered" in error.why or "no text matches" in error.why, f"{pattern!r}: {error}"
            continue
        wrong = [text for text in texts if built.accepts(text.encode()) != bool(expected.fullmatch(text))]
        assert wrong == [], f"{pattern!r}"
        num_good += 1
    return num_bad, num_good


def test_random_patterns_give_the_verdicts_of_re() -> None:
    num_pairs, num_matched = fuzz_texts(seed=1, num_pairs=12_000)
    assert num_pairs >= 12_000
    assert num_pairs / 5 < num_matched < num_pairs * 4 / 5  # both verdicts are really tried


def test_typing_errors_in_patterns_are_found_where_re_finds_them() -> None:
    num_bad, num_good = fuzz_typing_errors(seed=2, num_patterns=1_500)
    assert num_bad > 100
    assert num_good > 500
