"""Types, numbers, enums and strings: (schema, accepted, refused)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Row = tuple[Any, list[str], list[str]]

TYPES: list[Row] = [
    ({"type": "null"}, ["null"], ["", "nul", "None", "0", '"null"', " null", "null "]),
    ({"type": "boolean"}, ["true", "false"], ["True", "0", "null", "tru"]),
    ({"type": "integer"}, ["0", "7", "-7", "10", "123456789012345678901"], ["", "-", "01", "1.5", "1.0", "1e3", "+1", '"1"', ".5"]),
    ({"type": "number"}, ["0", "-1", "1.5", "0.25", "1e3", "1E-3", "-2.50e+10"], ["1.", ".5", "+1", "01", "1e", "NaN", "Infinity", "0x1"]),
    ({"type": ["integer", "null"]}, ["5", "null"], ["5.5", '"5"', "true"]),
    ({"type": ["number", "integer"]}, ["5", "5.5"], ["null"]),
    ({"type": ["string", "boolean"]}, ['"a"', "true"], ["a", "1"]),
    ({"type": "string", "title": "t", "description": "d", "default": 5, "examples": [1], "$comment": "c", "x-any": {}}, ['"a"'], ["5"]),
]

NUMBERS: list[Row] = [
    ({"type": "integer", "minimum": 100}, ["100", "250", "100000"], ["99", "7", "-100", "10", "0100"]),
    ({"type": "integer", "maximum": 10}, ["10", "9", "0", "-5", "-1000"], ["11", "100", "-"]),
    ({"type": "integer", "minimum": -7}, ["-7", "-1", "0", "12"], ["-8", "-", "-70", "-0"]),
    ({"type": "integer", "minimum": 5, "maximum": 123}, ["5", "9", "10", "99", "100", "123"], ["4", "124", "1230", "0", "-5"]),
    ({"type": "integer", "minimum": -15, "maximum": -3}, ["-15", "-3", "-10"], ["-16", "-2", "3", "15", "-"]),
    ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3}, ["1", "2"], ["0", "3", "-1"]),
    ({"type": "integer", "exclusiveMinimum": 1.5, "maximum": 4.5}, ["2", "4"], ["1", "5"]),
    ({"type": "integer", "minimum": 2.0}, ["2", "3"], ["1", "2.0"]),
    ({"type": "integer", "minimum": 7, "maximum": 7}, ["7"], ["6", "8", "77"]),
    ({"type": "integer", "minimum": 10**20}, [str(10**20), str(10**20 + 1)], [str(10**20 - 1)]),
    ({"type": "number", "minimum": 1, "maximum": 5}, ["1", "5", "4.99", "1.5", "5.0", "1.000"], ["5.7", "0.99", "6", "-3", "5.01", "1e0"]),
    ({"type": "number", "exclusiveMinimum": 0}, ["0.1", "5", "0.0001"], ["0", "-1", "0.0", "0.00", "-0.5"]),
    ({"type": "number", "exclusiveMinimum": 1.1}, ["1.2", "1.11", "2"], ["1.1", "1.10", "1", "0", "1.1000000000000001"]),
    ({"type": "number", "exclusiveMaximum": 3.0}, ["2.99", "-5", "0", "2.9999999999999"], ["3", "3.0", "3.1", "2.99999999999999999999"]),
    ({"type": "number", "minimum": 2}, ["2", "2.5", "20", "2.00"], ["1", "1.99", "-2"]),
    ({"type": "number", "minimum": -1.25, "maximum": 0.5}, ["-1.25", "-1.2", "0", "0.5", "0.49", "-0.1"], ["-1.26", "0.51", "-2", "1"]),
    ({"type": "number", "maximum": -0.5}, ["-0.5", "-1", "-0.51"], ["-0.4", "0", "0.5", "-0"]),
    ({"minimum": 1, "type": "number", "allOf": [{"maximum": 2}, {"minimum": 1.5}]}, ["1.5", "2"], ["1.4", "2.1"]),
    ({"type": "integer", "multipleOf": 5}, ["0", "5", "10", "-15", "12345"], ["1", "-7", "12"]),
    ({"type": "integer", "multipleOf": 7}, ["0", "7", "14", "-21", "700"], ["1", "8", "-20", "71"]),
    ({"type": "integer", "multipleOf": 3, "minimum": 10, "maximum": 20}, ["12", "15", "18"], ["9", "10", "21"]),
    ({"type": "integer", "multipleOf": 2, "allOf": [{"multipleOf": 3}]}, ["6", "12", "0"], ["2", "3", "4", "9"]),
    ({"type": "integer", "multipleOf": 1.5}, ["3", "6", "0"], ["1", "2", "4"]),
    ({"type": "number", "multipleOf": 0.5, "maximum": 10}, ["1.5", "2", "0.50", "-3.5"], ["1.25", "0.1", "10.5"]),
    ({"type": "number", "multipleOf": 1, "maximum": 10}, ["1", "2.0", "-3"], ["1.5"]),
    (
        {"type": "number", "multipleOf": 3},
        ["3", "-6.00", "999999999999999"],
        ["1", "3.5", "3e0", "1" + "0" * 15, "5486350736407423241041920.00"],
    ),
    ({"type": "number", "multipleOf": 0.25, "minimum": 0}, ["0.25", "1", "7.50"], ["0.3", "-1"]),
    ({"type": "integer", "format": "int32"}, ["2147483647", "-2147483648"], ["2147483648", "-2147483649"]),
    ({"type": "number", "not": {"minimum": 5}}, ["4.9", "-1"], ["5", "6"]),
    ({"type": "integer", "not": {"enum": [3, 5]}, "minimum": 0, "maximum": 6}, ["0", "4", "6"], ["3", "5", "7"]),
]

VALUES: list[Row] = [
    ({"enum": ["a", 1, None, False]}, ['"a"', "1", "null", "false"], ["a", "None", "False", "true", "0", "1.0"]),
    ({"const": 42}, ["42"], ["4", "42.0", "420"]),
    ({"const": None}, ["null"], ["None"]),
    ({"enum": [True]}, ["true"], ["True", "1", "false"]),
    ({"const": 1.5}, ["1.5"], ["1.50", "15e-1"]),
    ({"const": 'say "é"\\\n'}, ['"say \\"é\\"\\\\\\n"'], ['"say "é""', '"say \\"\\u00e9\\"\\\\\\n"']),
    ({"const": {"a": [1, {"b": None}], "c": {}}}, ['{"a": [1, {"b": null}], "c": {}}'], ['{"a":[1,{"b":null}],"c":{}}', "{}"]),
    ({"const": []}, ["[]"], ["[ ]", "[null]"]),
    ({"enum": ["a", 1, None], "type": "string"}, ['"a"'], ["1", "null"]),
    ({"enum": [1, 2, 3, 4], "minimum": 2, "not": {"const": 3}}, ["2", "4"], ["1", "3"]),
    ({"enum": ["a", "ab", "abc"], "minLength": 2, "pattern": "c$"}, ['"abc"'], ['"ab"', '"a"']),
    ({"allOf": [{"enum": [1, 2, 3]}, {"enum": [3, 2.0, 5]}]}, ["2", "3"], ["1", "5"]),
    ({"enum": ["東京", "café", "🙂"]}, ['"東京"', '"café"', '"🙂"'], ['"cafe"', '"\\u6771\\u4eac"']),
    ({"enum": [[1], {"a": 1}, "x"], "type": ["array", "string"]}, ["[1]", '"x"'], ['{"a": 1}']),
    ({"type": "string", "not": {"enum": ["a", "b"]}}, ['""', '"ab"', '"c"'], ['"a"', '"b"']),
    ({"type": "boolean", "not": {"const": True}}, ["false"], ["true"]),
]

STRINGS: list[Row] = [
    (
        {"type": "string"},
        ['""', '"a b"', '"é日🙂"', '"\\"\\\\\\/\\b\\f\\n\\r\\t"', '"\\u00e9\\u00E9\\ud83d\\ude42"'],
        ['"', '"a"b"', '"\\x"'],
    ),
    (
        {"type": "string"},
        ['"\x7f"', '"\u2028"'],
        ['"\n"', '"\t"', '"\x00"', '"\\u12"', '"\\ud83d"', '"\\ude42"', '"\\ud83d\\u0041"', '"\ud83d"'],
    ),
    (
        {"type": "string", "minLength": 2},
        ['"ab"', '"abc"', '"\\n\\n"', '"日本"'],
        ['""', '"a"', '"日"', '"\\n"', '"🙂"', '"\\ud83d\\ude42"'],
    ),
    ({"type": "string", "maxLength": 2}, ['""', '"ab"', '"🙂🙂"', '"\\ud83d\\ude42\\u0041"'], ['"abc"', '"\\u0041\\u0041\\u0041"']),
    ({"type": "string", "minLength": 1, "maxLength": 3}, ['"a"', '"abc"'], ['""', '"abcd"']),
    ({"type": "string", "maxLength": 0}, ['""'], ['"a"']),
    ({"type": "string", "minLength": 2, "allOf": [{"maxLength": 3}, {"minLength": 3}]}, ['"abc"'], ['"ab"', '"abcd"']),
    ({"type": "string", "maxLength": 100000}, ['"a"', '"' + "x" * 500 + '"'], []),
]

PATTERNS: list[Row] = [
    ({"pattern": "red|blue"}, ['"red"', '"blue"', '"a red b"', '"blued"'], ['"re"', '"red', 'blue"', '"green"']),
    ({"pattern": "^[0-9]{3}$"}, ['"042"'], ['"^042$"', '"42"', '"0420"', '"a042"']),
    ({"pattern": "^yes|no$"}, ['"yes"', '"yesterday"', '"no"', '"a no"'], ['"ayes"', '"nope"', '"^yes"']),
    ({"pattern": "^(yes|no)$"}, ['"yes"', '"no"'], ['"yesno"', '"yes "']),
    ({"pattern": "a"}, ['"a"', '"bab"', '"\\"a\\n"'], ['""', '"b"']),
    ({"pattern": ""}, ['""', '"x"'], ["1"]),
    ({"pattern": "^$"}, ['""'], ['"a"']),
    ({"pattern": '^"\\\\$'}, ['"\\"\\\\"'], ['""\\"', '"\\""']),
    ({"pattern": "^\\n$"}, ['"\\n"'], ['"n"', '"\\u000a"']),
    ({"pattern": "^.$"}, ['"a"', '"é"', '"🙂"', '"\\t"'], ['""', '"ab"', '"\\n"', '"\u2028"']),
    ({"pattern": "^[^]$"}, ['"a"', '"\\n"'], ['""']),
    ({"pattern": "^\\d+$"}, ['"12"'], ['"١"', '"1a"']),
    ({"pattern": "^\\w+$"}, ['"a_1"'], ['"é"', '"-"']),
    ({"pattern": "^\\s$"}, ['" "', '"\\t"', '"\u00a0"', '"\ufeff"'], ['"a"']),
    ({"pattern": "^\\S$"}, ['"a"', '"é"'], ['" "', '"\u00a0"']),
    ({"pattern": "^[\\s\\d]{2}$"}, ['" 1"'], ['"a1"']),
    ({"pattern": "^(?<year>\\d{4})-(?:0[1-9]|1[0-2])$"}, ['"2020-12"'], ['"2020-13"']),
    ({"pattern": "^\\p{Lu}\\p{L}+$"}, ['"Été"'], ['"été"']),
    ({"pattern": "^\\u00e9\\/\\x41\\cJ$"}, ['"é/A\\n"'], ['"e/AJ"']),
    ({"pattern": "^\\ud83d\\ude42\\u{1F642}$"}, ['"🙂🙂"'], ['"🙂"']),
    ({"pattern": "(^|-)a(-|$)"}, ['"a"', '"a-b"', '"b-a"', '"b-a-c"'], ['"ba"', '"ab"', '"b-ab"']),
    ({"pattern": "^a|^b"}, ['"a"', '"bx"'], ['"ca"']),
    ({"pattern": "(^a$|^b$)"}, ['"a"', '"b"'], ['"ab"', '"ca"']),
    ({"pattern": "^(a|b$)c?$"}, ['"a"', '"ac"', '"b"'], ['"bc"']),
    ({"pattern": "^(a|b$)c$"}, ['"ac"'], ['"b"', '"bc"', '"a"']),
    ({"pattern": "(a|^b)c"}, ['"ac"', '"xac"', '"bc"'], ['"xbc"']),
    ({"pattern": "a(^b|c)"}, ['"ac"'], ['"ab"', '"b"']),
    ({"pattern": "[[]"}, ['"["', '"a[b"'], ['"a"']),
    ({"pattern": "^[a-c]{2,}?$"}, ['"ab"', '"abc"'], ['"a"']),
    ({"pattern": "^(?=.*[A-Z])(?=.*\\d)[A-Za-z\\d]{4,6}$"}, ['"Ab12"', '"aaaA1"'], ['"ab12"', '"Abcd"', '"A1"', '"Ab12345"']),
    ({"pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"}, ['"1.5"', '"-3"', '".5"', '"007"'], ['"-"', '"."', '""', '"-."', '"a"']),
    ({"pattern": "^(?!admin)[a-z]+$"}, ['"user"', '"adm"'], ['"admin"', '"administrator"']),
    ({"pattern": "^[a-z]+$", "minLength": 2, "maxLength": 3}, ['"ab"', '"abc"'], ['"a"', '"abcd"', '"A"']),
    ({"pattern": "^[A-Z][a-z]*-[0-9]{2}$", "maxLength": 5}, ['"A-12"', '"Ab-12"'], ['"Abc-12"']),
    ({"pattern": "^([a-z]+-)*[a-z]+$", "maxLength": 5}, ['"a-b-c"', '"abcde"'], ['"abcdef"', '"a-"', '"a--b"', '"a-b-cd"']),
    ({"pattern": "a", "maxLength": 2}, ['"a"', '"ab"', '"ba"'], ['"bab"', '"b"', '""']),
    ({"pattern": "^(ab)+$", "minLength": 3, "maxLength": 5}, ['"abab"'], ['"ab"', '"ababab"']),
    ({"pattern": "a", "allOf": [{"pattern": "b"}]}, ['"ab"', '"ba"', '"xbya"'], ['"a"', '"b"']),
    ({"pattern": "^[ab]*$", "not": {"pattern": "aa"}}, ['"abab"', '""', '"a"'], ['"aab"', '"c"']),
]

FORMATS: list[Row] = [
    (
        "date",
        ["2031-02-28", "2024-02-29", "2000-02-29", "0001-12-31"],
        ["2031-13-01", "2023-02-29", "1900-02-29", "2020-04-31", "20-01-01", "0000-01-01"],
    ),
    ("time", ["23:59:59Z", "00:00:00+01:30", "12:00:00.123-08:00"], ["24:00:00Z", "12:60:00Z", "12:00:00", "12:00Z", "12:00:00+24:00"]),
    (
        "date-time",
        ["2020-01-31T23:20:50.52Z", "1937-01-01T12:00:27.87+00:20"],
        ["2020-02-30T00:00:00Z", "2020-01-31 23:20:50Z", "2020-01-31T23:20:50"],
    ),
    ("duration", ["P1D", "P4DT12H30M5S", "P1Y2M", "PT36H", "P4W", "P1M"], ["P", "PT", "1D", "P1D2H", "P1WT1H", "P1Y1W", "PT1S1M", "P1Y2D"]),
    (
        "email",
        ["joe@example.com", "a.b.c@x.org", "te~st+1@sub.example.co"],
        ["joe", "@x.com", "a@", ".a@x.com", "a..b@x.com", "a@-x.com", "a@x", "a b@x.com"],
    ),
    (
        "uuid",
        ["2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"],
        ["2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4ga-73b441d16380"],
    ),
    ("ipv4", ["1.2.3.4", "255.255.255.255", "0.0.0.0"], ["256.1.1.1", "1.2.3", "1.2.3.04", "1.2.3.4.5", "01.2.3.4"]),
    (
        "ipv6",
        ["::", "::1", "1::", "fe80::1:2", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4"],
        [":1", "1:::2", "1:2:3:4:5:6:7", "12345::", "1::2::3", "1:2:3:4:5:6:7:8:9"],
    ),
    ("hostname", ["example.com", "a", "a-b.c1", "xn.org"], ["-a.com", "a-.com", "a..b", ".a", "a_b.com", "a" * 64, "xn--x.com"]),
    (
        "uri",
        ["http://foo.bar/?baz=qux#quux", "urn:isbn:1", "mailto:a@b.c", "ftp://[::1]:80/x", "a:"],
        ["//foo.bar", "foo", "http:// a", "http://a b", ":a", "\\\\x", "http://[::1"],
    ),
    ("uri-reference", ["/abc", "#f", "", "a/b?c", "http://a"], ["\\\\x", "a b", "#a\\b"]),
    ("json-pointer", ["", "/a/b~0c~1", "/"], ["a", "/a~", "/~2"]),
    ("byte", ["", "TWFu", "TWE=", "TQ=="], ["T", "TW", "TWF", "T===", "TQ="]),
]


@pytest.mark.parametrize(("schema", "accepted", "refused"), TYPES + NUMBERS + VALUES + STRINGS)
def test_scalars(schema: Any, accepted: list[str], refused: list[str], check: Callable[..., None]) -> None:
    check(schema, accepted, refused)


@pytest.mark.parametrize(("schema", "accepted", "refused"), PATTERNS)
def test_patterns(schema: Any, accepted: list[str], refused: list[str], compiled: Callable[..., Any]) -> None:
    """Without jsonschema, whose patterns are Python's."""
    automaton = compiled({"type": "string", **schema}).automaton
    assert [text for text in accepted if not automaton.accepts(text.encode())] == []
    assert [text for text in refused if automaton.accepts(text.encode())] == []
    assert all(json.loads(text) is not None for text in accepted)


@pytest.mark.parametrize(("name", "accepted", "refused"), FORMATS)
def test_formats(name: str, accepted: list[str], refused: list[str], check: Callable[..., None]) -> None:
    check({"type": "string", "format": name}, map(json.dumps, accepted), map(json.dumps, refused))


@pytest.mark.parametrize(
    ("name", "most", "accepted", "refused"),
    [
        ("uri", 2083, ["http://example.com", "https://a.b:8080/x/y?z=1#f"], ["http://a b", "x"]),
        ("uri", 12, ["http://a.bc/", "a:b"], ["http://abc.de/"]),
        ("email", 80, ["joe@example.com"], ["joe@x", "a" * 70 + "@example.com"]),
        ("hostname", 253, ["example.com"], ["-a"]),
    ],
)
def test_formats_with_a_largest_length(name: str, most: int, accepted: list[str], refused: list[str], check: Callable[..., None]) -> None:
    check({"type": "string", "format": name, "maxLength": most}, map(json.dumps, accepted), map(json.dumps, refused))


@pytest.mark.parametrize("name", ["password", "binary", "path"])
def test_formats_that_say_nothing_about_the_text(name: str, check: Callable[..., None]) -> None:
    check({"type": "string", "format": name}, ['"any\\ntext"'], ["1"])


def test_escapes_in_a_pattern_have_one_spelling(check: Callable[..., None]) -> None:
    controls = "".join(map(chr, range(32))) + '"\\'
    check({"type": "string", "pattern": '^[\\x00-\\x1f"\\\\]+$'}, [json.dumps(controls)], ['"\\u0022"', '"\\/"', '"\\u000A"', '"a"'])
