"""The kind "lark": llguidance's dialect, without what it would pass over."""

from __future__ import annotations

import json
import time

import pytest

from ramet.constraint.compile import compile_constraint
from ramet.constraint.testing import accepts, byte_vocabulary, explain_bytes
from ramet.errors import InvalidConstraint

BYTES = byte_vocabulary()

TABLE = [
    ('start: "a" b\nb: "b"+', ["ab", "abbb"], ["a", "b"]),
    ('start: "(" start ")" | "x"', ["x", "((x))"], ["((x)", ""]),
    ('start: start "a" | "b"', ["b", "baa"], ["a"]),
    ("%import common.INT\nstart: INT", ["12"], ["a", ""]),
    ('%ignore / +/\nstart: "a" "b"', ["ab", "a  b"], ["b a", " ab", "ab "]),
    ("start: A\nA: /[ab]+/ & /[bc]+/", ["b", "bb"], ["a", "c", ""]),
    ("start: A\nA: ~/(.|\\n)*x(.|\\n)*/", ["a", "\n"], ["x", "axb"]),
    ('start: x "c"\nx[lazy]: /[ab]*b/', ["abc", "bc"], ["abbc"]),
    ('start: "a"{2,3} "b"?', ["aa", "aaab"], ["a", "aaaa"]),
    ('start: /a/i "B"i', ["ab", "AB"], ["a"]),
    ("start: /[a-z]+/ /x/", [], ["abx"]),  # a terminal is greedy: the first one takes the x
    ('start: "é" /\\u0416/ /[^a]/', ["éЖ😀"], ["éЖa"]),
    ('start: "<a>" /<b>/ // <c>\n# <d> [stop=""]:\n', ["<a><b>"], ["<a>"]),
    ('start: [x] "b"\nx: "a"', ["ab", "b"], ["a"]),
    ('%llguidance {}\nstart: "a"', ["a"], ["b"]),
    (
        'start: "f(" args ")"\nargs: %json {"type": "array",\n  "items": {"type": "integer"}}',
        ["f([1, 2])", "f([])"],
        ["f([1,2])", 'f(["a"])'],
    ),
    ('start: %json {"type": "object", "properties": {"a": {"type": "integer"}}}', ['{"a": 1}'], ['{"a": ""}', '{"\\u0061": ""}']),
]

REFUSED = [
    ("", "empty", None),
    ("  \n", "empty", None),
    ("start: foo", 'unknown name: "foo"', 7),
    ('start: "b"\nx: "a', "lexer error", 16),
    ('x: "a"', "no start rule", None),
    ('start: "x"\nstart: "y"', "duplicate rule", 18),
    ("start: A\nA: A /x/", "circular", 12),
    ("start: /a(?=b)/", "invalid regex", 7),
    ("start: /(?-u:\\xff)/", "invalid regex", 7),
    ('start: start "a"', "no text matches", None),
    ("start: <[3]>", "tokens", 7),
    ("start: <|end|>", "tokens", 7),
    ('start: "a"\nstart2[max_tokens=3]: "a"', "max_new_tokens", 18),
    ('start: x\nx[temperature=0.5]: "a"', "temperature", 11),
    ('start: x\nx[lazy, capture="a]:b"]: "a"', "captures", 17),
    ('start: x\nx[stop="b"]: /a/', "suffix", 11),
    ('start: x\nx[other]: "a"', "lazy, suffix", 11),
    ('%llguidance {"no_forcing": true}\nstart: "a"', "options", 12),
    ('start: @x "a"', "grammars by name", 7),
    ('start: %lark {\nstart: "a"\n}', "grammar inside", 7),
    ('start: %json {"not": {}}', "keyword not", None),
    ("start: %json [", "JSON value", 13),
    ('{"grammars": [{"json_schema": {}}]}', "expecting rule", 0),
    ('start: "a"\0', "lexer error", 10),
]


@pytest.mark.parametrize(("grammar", "accepted", "refused"), TABLE)
def test_table(grammar: str, accepted: list[str], refused: list[str]) -> None:
    compiled = compile_constraint("lark", grammar, BYTES)
    assert [text for text in accepted if not explain_bytes(compiled, text.encode()).is_accepted] == []
    assert [text for text in refused if explain_bytes(compiled, text.encode()).is_accepted] == []


@pytest.mark.parametrize(("grammar", "why", "offset"), REFUSED)
def test_refused_with_its_place(grammar: str, why: str, offset: int | None) -> None:
    with pytest.raises(InvalidConstraint, match=why) as caught:
        compile_constraint("lark", grammar, BYTES)
    assert caught.value.offset == offset
    assert caught.value.text == grammar


def chain(num_schemas: int) -> str:
    schemas = {f"d{i}": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(num_schemas)}
    return json.dumps({"$ref": "#/$defs/d0", "$defs": {**schemas, f"d{num_schemas}": {}}})


HOSTILE = [
    'start: "a"{1900000000}',
    "start: /a{1900000000}/",
    "start: /(a{5000}){5000}/",
    "start: /.*a.{18}|.*b/",
    "start: " + "(" * 5000 + '"a"' + ")" * 5000,
    "start: /" + "(" * 2000 + "a" + ")" * 2000 + "/",
    'start: x{1,100000}\nx: "a"? "b"?',
    "\n".join(f"A{i}: A{i + 1} A{i + 1}" for i in range(60)) + '\nA60: "a"\nstart: A0',
    "\n".join(f"a{i}: a{i + 1} a{i + 1}" for i in range(60)) + '\na60: "a"\nstart: a0',
    "start: %json " + "[" * 50_000,
    'start: "a" start',
    "\n".join(f'a{i}: "x" a{i + 1} "b" | "y" start' for i in range(3000)) + '\na3000: "a"\nstart: a0',
    "start: " + '["a" ' * 20_000,
    "start: %json " + chain(1000),
    "start: %json " + chain(4000),
    "start: A\nA: ~(~(~(/(a|b)*a(a|b){15}/)))",
    "start: /\\p{L}{1,500}[\\w\\d]{1,300}/i",
]


@pytest.mark.parametrize("grammar", HOSTILE, ids=lambda grammar: repr(grammar[:30]))
def test_hostile_grammars_end_soon(grammar: str) -> None:
    start_s = time.process_time()
    try:
        matcher = compile_constraint("lark", grammar, BYTES).matcher()
        for letter in b"aab":
            assert len(matcher.forced_bytes()) <= 512
            if matcher.allows(letter):
                matcher.accept(letter)
    except InvalidConstraint as error:
        assert len(str(error)) < 1000
    assert time.process_time() - start_s < 4


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    for grammar in ("start: foo", 'start: "a', "start: A\nA: A", 'start: start "a"'):
        with pytest.raises(InvalidConstraint):
            accepts("lark", grammar, "")
    assert accepts("lark", 'start: "a"', "a")
    assert capfd.readouterr() == ("", "")
