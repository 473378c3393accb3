"""The benchmark of constraints runs: on a small vocabulary, and with one turn, so that nothing here is a figure."""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ramet.constraint.vocabulary import Vocabulary

BENCH = Path(__file__).resolve().parents[2] / "bench"
WORDS = ["    ", '": "', '",\n', "name", "house", "blood", " status", "Harry", "Potter", "student", "Alive", "wand", "ab", "abc", "日本"]


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    if not BENCH.is_dir():
        pytest.skip("the folder bench is not part of this copy")
    sys.path.insert(0, str(BENCH))
    try:
        yield importlib.import_module("constraint")
    finally:
        sys.path.remove(str(BENCH))


@pytest.fixture(scope="module")
def sides(bench: Any) -> Any:
    return importlib.import_module("constraint_sides")


@pytest.fixture(scope="module")
def rows(bench: Any) -> Any:
    return importlib.import_module("constraint_rows")


@pytest.fixture(scope="module")
def patterns(bench: Any) -> Any:
    return importlib.import_module("constraint_patterns")


@pytest.fixture(scope="module")
def words(sides: Any) -> Any:
    pieces = [bytes([byte]) for byte in range(256)] + [word.encode() for word in WORDS]
    id_of = {piece: token_id for token_id, piece in enumerate(pieces)}

    def to_llguidance() -> Any:
        import llguidance

        class Wrapped:
            eos_token_id, bos_token_id, special_token_ids = len(pieces), None, [len(pieces)]
            tokens = [*pieces, b"\xff<end>"]

            def __call__(self, text: bytes | str) -> list[int]:
                return list(text if isinstance(text, bytes) else text.encode())

        return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Wrapped()))

    encode = sides.BytePairs(id_of, r"(?s).+")
    return sides.Words("small", Vocabulary([*pieces, b""], eos_ids=(len(pieces),)), encode, to_llguidance)


def test_all_rows_have_our_figure(bench: Any, rows: Any, patterns: Any, sides: Any, words: Any) -> None:
    ours = sides.make_sides(words, [])
    figures = [
        *rows.record_figures(words, ours, 1, num_requests=3, num_steps=4),
        *rows.hard_figures(words, ours, 1, [hard for hard in patterns.hard_patterns() if hard.name in ("IPv4", "(日本|中国|한국|é)*")]),
    ]
    assert len({figure.name for figure in figures}) == len(figures) == 12
    for figure in figures:
        assert isinstance(figure.values["ramet"], float) and figure.values["ramet"] > 0, figure
    out = io.StringIO()
    bench.show(figures, "title", "caption", Console(file=out, width=200))
    assert all(figure.name in out.getvalue() for figure in figures)
    assert json.loads(json.dumps([asdict(figure) for figure in figures]))[0]["values"].keys() == {"ramet"}


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
def test_a_peer_follows_the_same_tokens_with_the_same_masks(name: str, rows: Any, patterns: Any, sides: Any, words: Any) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    both = sides.make_sides(words, [name])
    paths = [words.encode(text) for text in patterns.records(3)]
    assert [b"".join(words.vocabulary.piece(i) for i in path).decode() for path in paths] == patterns.records(3)
    plan = rows.make_plan(paths, 6)
    found = rows.masks_agree(both, plan, 3)[name]
    equal, _, whole, _, narrower, _ = found.replace(",", "").split()
    assert int(whole) == 18 and int(equal) + int(narrower) == 18, found
    assert int(equal) == 18 or name == "llguidance"
    for side in both:
        assert all(value > 0 for value in rows.advance(side, 3, plan, 1).values())
        assert rows.worst_of_side(side, patterns.RECORD, paths[:1], 1) > 0


def test_a_side_that_cannot_is_reported(rows: Any, patterns: Any, sides: Any, words: Any) -> None:
    class Unable(sides.Ours):
        name = "xgrammar"

        def compile(self, pattern: str) -> Any:
            raise sides.SideFailed("no such thing")

    both = [sides.Ours(words), Unable(words)]
    figures = [*rows.hard_figures(words, both, 1, patterns.hard_patterns()[-1:]), *rows.advancing(words, both, [words.encode("{\n")], 1, 1)]
    assert all(figure.values["xgrammar"] in ("no such thing", "-") and figure.ratio("xgrammar") is None for figure in figures)


def test_a_plan_starts_everywhere_and_starts_again(rows: Any) -> None:
    plan = rows.make_plan([[1, 2, 3, 4], [5, 6, 7, 8]], 4)
    assert plan.before == [[], [5, 6]]
    assert plan.steps == [[1, 7], [2, 8], [3, 5], [4, 6]]
    assert plan.restarts == [[], [], [1], []]


def test_a_ratio_needs_two_figures(rows: Any) -> None:
    figure = rows.Figure("name", "words", "us", {"ramet": 2.0, "llguidance": 5.0, "xgrammar": "refuses"})
    assert (figure.ratio("llguidance"), figure.ratio("xgrammar")) == (2.5, None)


def test_byte_pairs_join_the_least_id_first(sides: Any) -> None:
    id_of = {b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"ab": 4, b"abc": 5}
    encode = sides.BytePairs(id_of, r"[a-z]+|\s")
    assert encode("abc") == [5] and encode("abcab") == [5, 4] and encode("bca") == [3, 0]


def test_the_enum_prompts_are_what_they_say(bench: Any) -> None:
    engine_rows = importlib.import_module("constraint_engine")
    for is_json in (True, False):
        for prompt in engine_rows.enum_prompts(is_json):
            assert len(set(prompt.options)) == len(prompt.options)
            assert not any(a != b and a.startswith(b) for a in prompt.options for b in prompt.options)
    assert engine_rows.softmax([0.0, math.log(3)]) == pytest.approx([0.25, 0.75])
    assert engine_rows.total_variation([0.5, 0.5], [1.0, 0.0]) == 0.5
