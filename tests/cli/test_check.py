"""`ramet check`: exit codes, places, states, what is forced, tokens, and JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ramet.cli.app import build_app
from ramet.cli.check_report import pointer

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT.parent / "shared" / "models" / "stories260k"
DATE = "20[0-9]{2}-(0[1-9]|1[0-2])"


def check(*arguments: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(build_app(lambda options: pytest.fail("no engine is needed")), ["check", *arguments], input=stdin)


def found(*arguments: str, stdin: str | None = None) -> tuple[int, dict[str, Any]]:
    result = check("--json", *arguments, stdin=stdin)
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize(
    ("kind", "constraint", "accepted", "refused"),
    [
        ("regex", DATE, ["2024-01", "2099-12"], ["2024-13", "2024", "x", ""]),
        ("regex", "a*", ["", "aaa"], ["aab"]),
        ("choice", '["yes", "no", "日本"]', ["yes", "no", "日本"], ["ye", "日", "yes "]),
    ],
)
def test_verdicts_and_exit_codes(kind: str, constraint: str, accepted: list[str], refused: list[str]) -> None:
    for texts, exit_code in ((accepted, 0), (refused, 1), (accepted + refused, 1)):
        code, report = found(kind, constraint, "--inline", *(word for text in texts for word in ("--text", text)))
        assert code == exit_code
        assert [item["text"] for item in report["texts"]] == texts
        assert [item["is_accepted"] for item in report["texts"]] == [text in accepted for text in texts]


def test_a_refused_text_is_pointed_at() -> None:
    result = check("regex", DATE, "--inline", "--text", "2024-13")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "regex: 9 states, 3 of them without a choice; begins with '20'",
        "refused  '2024-13' at line 1, column 7: expected one of: 0-2",
        "    2024-13",
        "          ^",
        "    3 of 6 bytes forced before it",
    ]


def test_an_accepted_text_and_one_that_ends_too_early() -> None:
    lines = check("regex", DATE, "--inline", "--text", "2024-12", "--text", "2024").stdout.splitlines()
    assert lines[1] == "accepted '2024-12': 3 of 7 bytes forced"
    assert lines[2] == "refused  '2024' at line 1, column 5: ends too early, expected one of: -"
    assert lines[4] == "        ^"
    assert lines[5].endswith("next must be '-'")


def test_what_goes_on_after_the_end_is_told() -> None:
    assert "column 3: expected the end" in check("regex", "ab", "--inline", "--text", "abc").stdout
    assert "column 2: expected one of: b or the end" in check("regex", "ab?", "--inline", "--text", "ac").stdout


def test_places_count_lines_and_characters() -> None:
    code, report = found("regex", r"(é+\n)*", "--inline", "--text", "éé\néé\néxé\n")
    (text,) = report["texts"]
    assert code == 1
    assert (text["line"], text["column"], text["offset"], text["num_bytes"]) == (3, 2, 7, 12)
    assert (text["expected"], text["may_end"], text["num_forced_bytes"]) == ("\\x0a \\xc3", False, 5)


@pytest.mark.parametrize(
    ("text", "offset", "lines"),
    [
        ("abc", 1, ["abc", " ^"]),
        ("abc", 3, ["abc", "   ^"]),
        ("", 0, ["", "^"]),
        ("ab\ncd\nef", 4, ["cd", " ^"]),
        ("ab\ncd", 2, ["ab\\n", "  ^"]),
        ("日本x", 2, ["日本x", "    ^"]),
        ("a\x1b[2Jb", 5, ["a\\x1b[2Jb", "        ^"]),
        ("a" * 100 + "b" + "c" * 100, 100, ["..." + "a" * 60 + "b" + "c" * 39 + "...", " " * 63 + "^"]),
    ],
)
def test_the_caret_stands_under_the_character(text: str, offset: int, lines: list[str]) -> None:
    assert pointer(text, offset) == lines


@pytest.mark.parametrize(
    ("kind", "constraint", "offset", "column", "word"),
    [("regex", "ab[c", 2, 3, "class"), ("regex", "\na(?=b)", 2, 2, "look-ahead"), ("choice", '["a",\n x]', 7, 2, "JSON")],
)
def test_an_invalid_constraint_ends_with_2_and_a_caret(kind: str, constraint: str, offset: int, column: int, word: str) -> None:
    result = check(kind, constraint, "--inline", "--text", "abc")
    assert (result.exit_code, result.stdout) == (2, "")
    line, caret = result.stderr.splitlines()[-2:]
    assert word in result.stderr and f"character {offset}" in result.stderr
    assert line[len(caret) - 1] == constraint[offset] and caret.strip() == "^"
    code, report = found(kind, constraint, "--inline")
    assert (code, report["is_valid"], report["error"]["offset"], report["error"]["column"]) == (2, False, offset, column)


def test_a_constraint_without_a_place_at_fault() -> None:
    result = check("choice", "[]", "--inline")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_files_lose_the_line_break_at_their_end(tmp_path: Path) -> None:
    pattern, text = tmp_path / "pattern", tmp_path / "text"
    pattern.write_bytes(b"a\n+\n")
    for data, code in ((b"a\n\n", 0), (b"a\n", 1), (b"a\n\r\n", 0), (b"a\n\n\n", 0), (b"a\nb", 1)):
        text.write_bytes(data)
        assert found("regex", str(pattern), "--text-file", str(text))[0] == code, data


def test_standard_input_is_read_once(tmp_path: Path) -> None:
    assert found("regex", "-", "--text", "ab", stdin="a(b|c)\n")[0] == 0
    assert found("regex", "--inline", "--text-file", "-", "--", "-b?", stdin="-b\n")[0] == 0
    twice = check("regex", "-", "--text-file", "-", stdin="a")
    assert twice.exit_code == 2 and "only once" in twice.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["regex", "no/such/file"], "No such file"),
        (["regex", "a", "--inline", "--text-file", "no/such/file"], "--text-file"),
        (["regex", "a", "--inline", "--whitespace", "compact"], "--whitespace"),
        (["regexp", "a"], "regexp"),
        (["regex", "a", "--inline", "--tokenizer", "no/such/model"], "no/such/model"),
    ],
)
def test_wrong_use_is_told(arguments: list[str], word: str) -> None:
    result = check(*arguments)
    assert result.exit_code == 2
    assert word in result.stderr


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "latin1"
    path.write_bytes(b"caf\xe9")
    result = check("regex", str(path))
    assert result.exit_code == 2 and "UTF-8" in result.stderr


def test_bytes_of_the_command_line_that_are_no_text_are_refused_where_they_stand() -> None:
    code, report = found("regex", "--inline", "(?s).*", "--text", "ab\udce9cd")  # as Python reads the byte e9 there
    (text,) = report["texts"]
    assert (code, text["is_accepted"], text["offset"], text["text"]) == (1, False, 2, "ab\\xe9cd")


@pytest.mark.skipif(not MODEL.is_dir(), reason="the model stories260k is not in the folder beside the checkout")
def test_tokens_of_a_model_are_forced_or_sampled() -> None:
    arguments = ("regex", "Once upon a time there was a (girl|boy)", "--inline", "--text", "Once upon a time there was a girl")
    code, report = found(*arguments, "--text", "Once upon", "--tokenizer", str(MODEL))
    assert code == 1
    full, part = report["texts"]
    assert "".join(token["piece"] for token in full["tokens"]) == full["text"]
    assert full["num_tokens"] == len(full["tokens"]) > part["num_tokens"] > 0
    assert full["tokens"][0]["is_forced"] and full["tokens"][-1]["is_forced"]
    assert 1 <= full["num_sampled_tokens"] <= full["num_tokens"] // 3
    assert report["tokenizer"]["num_first_allowed"] >= 1
    assert report["tokenizer"]["compile_ms"] > 0 and report["tokenizer"]["first_mask_ms"] > 0
    words = check(*arguments, "--tokenizer", str(MODEL)).stdout
    assert f"{full['num_tokens']} tokens: {full['num_tokens'] - full['num_sampled_tokens']} forced" in words
    assert "may come first; compiled in" in words


def test_schemas_have_three_spacings() -> None:
    schema = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}'
    spaced, tight, free = '{"a": 1}', '{"a":1}', '{ "a": 1 }'
    for words, accepted in (([], [spaced]), (["--whitespace", "compact"], [tight]), (["--whitespace", "flexible"], [spaced, tight, free])):
        _, report = found("schema", schema, "--inline", *words, "--text", spaced, "--text", tight, "--text", free)
        assert [item["text"] for item in report["texts"] if item["is_accepted"]] == accepted


def test_a_grammar_has_no_states() -> None:
    grammar = 'root ::= "(" root ")" | "x"'
    code, report = found("ebnf", grammar, "--inline", "--text", "((x))", "--text", "((x)")
    assert code == 1
    assert (report["num_states"], [item["is_accepted"] for item in report["texts"]]) == (None, [True, False])
    assert report["texts"][1]["expected"] == ")"
    assert "no fixed number of states" in check("ebnf", grammar, "--inline").stdout


def test_it_is_shown_without_what_a_check_needs() -> None:
    code = "import sys; from ramet.cli.app import build_app; build_app(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, cwd=ROOT).returncode == 0
