"""The kind "ebnf": what is accepted and refused, and that every way to read a text counts."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from ramet.constraint.compile import compile_constraint
from ramet.constraint.grammar.gbnf import parse_gbnf
from ramet.constraint.grammar.rules import Char, Choice, Expr, Ref, Row, Word
from ramet.constraint.limits import Limits, Source
from ramet.constraint.testing import accepts, byte_vocabulary, explain_bytes
from ramet.errors import InvalidConstraint

BYTES = byte_vocabulary()

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (
             string ":" ws value ("," ws string ":" ws value)*   # a comment with "quotes
           )? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""

TABLE = [
    ('root ::= "a"', ["a"], ["", "b", "aa"]),
    ('root ::= ""', [""], ["a"]),
    ("root ::=", [""], ["a"]),
    ('root ::= "a" |', ["a", ""], ["aa"]),
    ('root ::= [a-z]+ "x"', ["abx", "xx", "ax"], ["x", "ab"]),
    ('root ::= "a" "b" "c" | "ab" "d"', ["abc", "abd"], ["ab"]),
    ('root ::= ("a" | "aa")* "ab"', ["ab", "aab", "aaaab"], ["a", "b"]),
    ('root ::= ("é" | "è")+ "è"', ["éè", "èè"], ["è", "é"]),
    ("root ::= [а-яё]{2,3}", ["дом", "ёж"], ["д", "дома", "do"]),
    ("root ::= [^a-c]", ["d", "é", "\n", "😀"], ["a", "c", ""]),
    ("root ::= [a-]", ["a", "-"], ["b"]),
    ("root ::= [-a]", ["a", "-"], ["b"]),
    (r"root ::= [\]\\\[\-\^]", ["]", "\\", "[", "-", "^"], ["a"]),
    (r"root ::= [^\n\r\t]", ["a"], ["\n", "\r", "\t"]),
    (r'root ::= "\x41\u00e9\U0001F600\"\\"', ['Aé😀"\\'], ["A"]),
    (r'root ::= "\x00" [\x00-\x1f]', ["\0\0", "\0\n"], ["\0", "\0a"]),
    ("root ::= .", ["a", "\n", "😀"], ["", "ab"]),
    ('root ::= "a"{3}', ["aaa"], ["aa", "aaaa"]),
    ('root ::= "a"{2,}', ["aa", "aaaaa"], ["a"]),
    ('root ::= "a"{0,2}', ["", "a", "aa"], ["aaa"]),
    ('root ::= ("ab"){ 1 , 2 }', ["ab", "abab"], ["", "ababab"]),
    ('root ::= "a"{0}', [""], ["a"]),
    ('root ::= "a"*?', ["", "aaa"], ["b"]),
    ('root ::= ("a"?)* ("b"*)+', ["", "aab", "bbb"], ["ba"]),
    ('root ::= x-1 X_2\nx-1 ::= "a"\nX_2 ::= "b"', ["ab"], ["a"]),
    ('root ::= fooBar foo-bar foo_bar\nfooBar ::= "1"\nfoo-bar ::= "2"\nfoo_bar ::= "3"', ["123"], ["111"]),
    ('root ::= "a" |\n  "b"\n  | "c" # why\n\n# a comment\n', ["a", "b", "c"], ["d"]),
    ('root ::=\n  "a" (\n "b"\n "c" )\n', ["abc"], ["a"]),
    ('root ::= "a"\r\nother ::= "b"\r\n', ["a"], ["b"]),
    ('root ::= "#" "|" "(" # "x"', ["#|("], ["#"]),
    ('root ::= "(" root ")" | "x"', ["x", "((x))"], ["((x)", "(x))", ""]),
    ('root ::= root "a" | "b"', ["b", "baa"], ["", "a", "ab"]),
    ('root ::= root root | "a" | ""', ["", "aaaa"], ["b"]),
    (
        'root ::= sum\nsum ::= sum "+" product | product\nproduct ::= product "*" n | n\nn ::= [0-9]+ | "(" sum ")"',
        ["1+2*(3+4)", "12"],
        ["1+", "(1"],
    ),
    ('root ::= "a" root "b" | ""', ["", "aabb"], ["aab", "abb"]),
    ('root ::= "a" | "b" x\nx ::= "c" x', ["a"], ["b", "bc"]),
    ('root ::= ("a" x)? "b"\nx ::= "c" x', ["b"], ["ab"]),
    ("root ::= " + "(" * 90 + '"a" | "b" root' + ")*" * 90, ["", "aba"], ["c"]),
    ("root ::= " + "(" * 90 + '"a" | "b" root' + ' "c")' * 90, ["a" + "c" * 89], ["a", "a" + "c" * 90]),
    (JSON, ["{}", '{"a": [1, -2.5e3,\n "x\\n\\u00e9"]}', '{"a":{"b":null}}'], ["[1]", '{"a" 1}', '{"a": 01}', "{'a': 1}"]),
]

REFUSED = [
    ("", "no rule", 0),
    ("# nothing", "no rule", 0),
    ('x ::= "a"', "no rule named root", 0),
    ("root ::= foo", "no rule named foo", 9),
    ('root ::= "a', "not closed", 9),
    ('root ::= "a\nb"', "not closed", 9),
    ("root ::= [a", "not closed", 9),
    ("root ::= []", "empty set", 9),
    ("root ::= [^]", "empty set", 9),
    ("root ::= [z-a]", "empty", 10),
    ('root ::= ("a"', "not closed", 9),
    ('root ::= "a")', "not expected", 12),
    ("root ::= *", "nothing to repeat", 9),
    ('root ::= "a"{2,1}', "empty", 12),
    ('root ::= "a"{x}', "number", 13),
    ('root ::= "a"{1', "} behind", 14),
    ('root ::= "a"{99999999999}', "too large", 13),
    ('root ::= "a" "b"\n"c"', "name of a rule", 17),
    ('root = "a"', "::=", 5),
    ('root ::= "a"\nroot ::= "b"', "twice", 13),
    (r'root ::= "\q"', "no escape", 10),
    (r'root ::= "\x4"', "hexadecimal", 10),
    (r'root ::= "\ud83d"', "no character", 10),
    (r'root ::= "\U00110000"', "no character", 10),
    ("root ::= <think>", "tokens", 9),
    ("root ::= <[1000]>", "tokens", 9),
    ("root ::= a & b", "not expected", 11),
    ('root ::= "a" root', "no text matches", None),
    ("root ::= root", "no text matches", None),
    (r"root ::= [^\x00-\U0010ffff]", "no text matches", None),
]


@pytest.mark.parametrize(("grammar", "accepted", "refused"), TABLE)
def test_table(grammar: str, accepted: list[str], refused: list[str]) -> None:
    compiled = compile_constraint("ebnf", grammar, BYTES)
    assert [text for text in accepted if not explain_bytes(compiled, text.encode()).is_accepted] == []
    assert [text for text in refused if explain_bytes(compiled, text.encode()).is_accepted] == []


@pytest.mark.parametrize(("grammar", "why", "offset"), REFUSED)
def test_refused_with_its_place(grammar: str, why: str, offset: int | None) -> None:
    with pytest.raises(InvalidConstraint, match=why) as caught:
        compile_constraint("ebnf", grammar, BYTES)
    assert caught.value.offset == offset
    assert ("line " in caught.value.why) == (offset is not None)


def test_line_and_column() -> None:
    with pytest.raises(InvalidConstraint, match="line 3, column 9: there is no rule named c"):
        accepts("ebnf", 'root ::= b\n\n  b ::= c "x"', "")


def matches(rules: dict[str, Expr], text: str) -> bool:
    """The meaning of the rules, worked out as the least sets of places where each can end."""
    ends: dict[tuple[str, int], set[int]] = {("root", 0): set()}

    def behind(expr: Expr, start: int) -> set[int]:
        if isinstance(expr, Char):
            return {start + 1} if start < len(text) and any(low <= ord(text[start]) <= high for low, high in expr.ranges) else set()
        if isinstance(expr, Word):
            return {start + len(expr.text)} if text.startswith(expr.text, start) else set()
        if isinstance(expr, Ref):
            return ends.setdefault((expr.name, start), set())
        if isinstance(expr, Row):
            places = {start}
            for part in expr.parts:
                places = {end for place in places for end in behind(part, place)}
            return places
        if isinstance(expr, Choice):
            return {end for option in expr.options for end in behind(option, start)}
        places = {start}
        for _ in range(expr.min_count):
            places = {end for place in places for end in behind(expr.body, place)}
        found = set(places)
        for _ in range(len(text) + 1 if expr.max_count is None else expr.max_count - expr.min_count):
            places = {end for place in places for end in behind(expr.body, place)}
            found |= places
        return found

    while True:
        before = {key: len(places) for key, places in ends.items()}
        for name, start in list(ends):
            ends[name, start] |= behind(rules[name], start)
        if before == {key: len(places) for key, places in ends.items()}:
            return len(text) in ends["root", 0]


def random_grammar(rng: random.Random) -> str:
    names = ["root", "x", "y"][: rng.randint(1, 3)]

    def part(depth: int) -> str:
        choice = rng.random()
        if depth == 0 or choice < 0.35:
            return rng.choice(
                [
                    '"' + "".join(rng.choice("abé") for _ in range(rng.randint(0, 3))) + '"',
                    "[" + rng.choice(["", "^"]) + "".join(rng.sample("abéè", 2)) + "]",
                    rng.choice(names),
                ]
            )
        parts = [part(depth - 1) for _ in range(rng.randint(1, 3))]
        if choice < 0.8:
            return "(" + (" | " if choice < 0.6 else " ").join(parts) + ")"
        return f"({parts[0]})" + rng.choice(["*", "+", "?", "{2}", "{0,2}", "{1,3}", "{2,}"])

    return "\n".join(f"{name} ::= {part(2)} {part(2)} | {part(1)}" for name in names)


TEXTS = ["".join(letters) for length in range(5) for letters in itertools.product("abéè" if length < 4 else "abé", repeat=length)]


@pytest.mark.parametrize("seed", range(5))
def test_random_grammars_equal_their_meaning(seed: int) -> None:
    rng = random.Random(seed)
    vocabulary = BYTES
    num_accepted = 0
    for _ in range(10):
        grammar = random_grammar(rng)
        rules = parse_gbnf(Source("ebnf", grammar))
        texts = rng.sample(TEXTS, 25)
        expected = [matches(rules, text) for text in texts]
        try:
            compiled = compile_constraint("ebnf", grammar, vocabulary)
        except InvalidConstraint as error:
            assert "no text matches" in error.why
            assert not any(expected), grammar
            continue
        assert [explain_bytes(compiled, text.encode()).is_accepted for text in texts] == expected, grammar
        num_accepted += sum(expected)
    assert num_accepted > 3


def doubling(num_rules: int) -> str:
    return "\n".join(f"{f'r{i}' if i else 'root'} ::= r{i + 1} r{i + 1}" for i in range(num_rules)) + f'\nr{num_rules} ::= "a"'


HOSTILE = [
    'root ::= "a"{1900000000}',
    'root ::= (("a"{5000}){5000})',
    "root ::= " + "(" * 5000 + '"a"' + ")" * 5000,
    'root ::= x{1000}\nx ::= "a"? y\ny ::= root | ""',
    "root ::= " + " | ".join(f'"w{i}x{i * 7}"' for i in range(1000)),
    'root ::= ([a-z]{0,50}){0,50} "b"',
    doubling(60),
    'root ::= (((("a"*)*)*)*)* "b"',
    "root ::= " + " ".join("[a-z]{0,300}" for _ in range(300)),
    'root ::= "' + "a" * 100_000 + '"',
    'root ::= [a-z]+ [a-y]+ [a-x]+ [a-w]+ "z"',
    "root ::= \0",
    "root ::= [\0-\U0010ffff]*",
    "::=" * 1000,
    'root ::= "a"' + "*" * 10_000,
    'root ::= r1 "b"\n' + "\n".join(f'r{i} ::= "x" r{i + 1} "b" | "y" root' for i in range(1, 1000)) + '\nr1000 ::= "a"',
    "root ::= r1\n" + "\n".join(f"r{i} ::= (((r{i + 1})))?" for i in range(1, 1000)) + '\nr1000 ::= "a" root',
    '"' * 999,
]


@pytest.mark.parametrize("grammar", HOSTILE, ids=lambda grammar: repr(grammar[:30]))
def test_hostile_grammars_end_soon(grammar: str) -> None:
    start_s = time.process_time()
    try:
        matcher = compile_constraint("ebnf", grammar, BYTES).matcher()
        for letter in b"aab":
            assert len(matcher.forced_bytes()) <= 512
            if matcher.allows(letter):
                matcher.accept(letter)
    except InvalidConstraint as error:
        assert len(str(error)) < 1000
    assert time.process_time() - start_s < 4


def test_limits_are_the_callers() -> None:
    with pytest.raises(InvalidConstraint, match="limit of 100"):
        accepts("ebnf", 'root ::= "a"{101}', "a", Limits(max_nfa_states=100))
    with pytest.raises(InvalidConstraint, match="limit of 2"):
        accepts("ebnf", 'root ::= ((("a")))', "a", Limits(max_nesting=2))
