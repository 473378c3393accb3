"""What the regular expressions mean, feature by feature: rows of (pattern, accepted, refused)."""

from __future__ import annotations

import re
import warnings

import pytest

from ramet.constraint.automaton import Automaton
from ramet.constraint.limits import Limits, Source
from ramet.constraint.regex import parse_regex
from ramet.errors import InvalidConstraint, InvalidRequest


def automaton(pattern: str, limits: Limits | None = None) -> Automaton:
    source = Source("regex", pattern, limits)
    return Automaton(parse_regex(source), source)


TABLE = [
    ("", [""], ["a", " "]),
    ("abc", ["abc"], ["ab", "abcd", "", "Abc"]),
    ("a|bc|", ["a", "bc", ""], ["abc", "b"]),
    (".", ["a", "é", "😀", "\r"], ["\n", "", "ab"]),
    ("(?s).", ["\n", "a"], [""]),
    ("(?s:.).", ["\na"], ["a\n"]),
    ("(?s)(?-s:.).", ["a\n"], ["\na"]),
    ("[a-c]x", ["ax", "cx"], ["dx", "-x"]),
    ("[^a-c]", ["d", "\n", "日"], ["a", ""]),
    ("[]-a]", ["]", "^", "a"], ["-", "b"]),
    ("[a-]", ["a", "-"], ["b"]),
    ("[-a]", ["a", "-"], ["b"]),
    ("[^]]", ["a", "["], ["]"]),
    (r"[\]\-\\]", ["]", "-", "\\"], ["a"]),
    (r"[\b]", ["\b"], ["b"]),
    (r"[\w.]+", ["a_.9"], ["é", "-"]),
    ("[[a]+", ["[a"], ["]"]),
    ("a*", ["", "aaa"], ["b"]),
    ("a+", ["a", "aaa"], [""]),
    ("a?b", ["b", "ab"], ["aab"]),
    ("a{2}", ["aa"], ["a", "aaa"]),
    ("a{2,}", ["aa", "aaaa"], ["a"]),
    ("a{,2}", ["", "a", "aa"], ["aaa", "a{,2}"]),
    ("a{1,3}", ["a", "aaa"], ["", "aaaa"]),
    ("a{,}", ["", "aaaa"], ["b"]),
    ("a{0}b", ["b"], ["ab"]),
    ("a{", ["a{"], ["a"]),
    ("a{}", ["a{}"], ["a"]),
    ("a{1,2", ["a{1,2"], ["a"]),
    ("a{x}", ["a{x}"], ["a"]),
    ("a{ 1}", ["a{ 1}"], ["a"]),
    ("x}]", ["x}]"], ["x"]),
    ("a*?b+?c??d{1,2}?", ["bd", "aabbcdd"], ["ad", "bddd"]),
    ("(ab)+", ["ab", "abab"], ["a", "aba"]),
    ("(?:ab)+", ["abab"], ["?:ab", "a"]),
    ("(?P<y>a)(?P<z>b)", ["ab"], ["a"]),
    ("(a|b(c|d))*", ["", "abcbda"], ["b", "c"]),
    ("(a?)*b", ["b", "aab"], ["a"]),
    ("(a*)*", ["", "aa"], ["b"]),
    ("(a*|b){2,3}", ["", "b", "bab", "bbb"], ["bbbb", "babb"]),
    ("(|a)+", ["", "aaa"], ["b"]),
    ("()", [""], ["a"]),
    ("(?#a comment)x(?#)+", ["x", "xx"], ["", "a"]),
    (r"\d\D\w\W\s\S", ["1a_- x"], ["1a_- ", "\u0661a_- x"]),
    (r"(?u)\d\w\s", ["\u0661é\u3000", "1a "], ["aé "]),
    (r"(?u:\w)\w", ["éa"], ["aé"]),
    (r"(?u)\w(?a:\w)", ["éa"], ["aé"]),
    ("(?i)straße", ["STRAßE", "straße"], ["STRASSE"]),
    ("(?i)yes", ["yes", "YES", "yEs"], ["?iyes", "i", "yeſ"]),
    ("(?iu)ks", ["\u212aſ", "KS"], ["k"]),
    ("(?i)é", ["é"], ["É"]),
    ("(?iu)é", ["é", "É"], ["e"]),
    ("(?iu)[𐐀-𐐂]😀(?-i:𐐀)", ["𐐨😀𐐀"], ["𐐨😀𐐨"]),
    ("(?i:a)b", ["ab", "Ab"], ["aB"]),
    ("(?i)a(?-i:b)", ["Ab"], ["AB"]),
    ("(?i)[^a-c]", ["d", "é"], ["A", "b"]),
    ("(?i)[X-c]", ["x", "C", "^"], ["d"]),
    ("(?i)(?s).", ["\n"], [""]),
    ("(?m)^a$", ["a"], ["a\n"]),
    (r"\x41\u00e9\U0001F600\n\t\\\.", ["Aé😀\n\t\\."], ["A"]),
    (r"\N{EM DASH}", ["—"], ["-"]),
    (r"\0\07\101\377", ["\0\aAÿ"], ["0"]),
    (r"[\1\08]", ["\1", "\0", "8"], ["1"]),
    (r"\ \-\@\é", [" -@é"], ["\\ "]),
    (r"\p{Lu}\p{L}\pN\P{L}", ["Aé9-"], ["aé9-", "Aé9x"]),
    (r"[\p{Sc}\d]+", ["€5$"], ["a"]),
    (r"\p{^Lu}\p{Uppercase_Letter}", ["aA"], ["AA"]),
    ("^a$", ["a"], ["^a$", "a\n"]),
    ("^^a$$", ["a"], ["^a"]),
    ("^yes|no$", ["yes", "no"], ["^yes", "no$", "yesno"]),
    ("(^ab)c", ["abc"], ["^abc"]),
    ("(^|a)$", ["", "a"], ["^"]),
    (r"\Aa\Z", ["a"], ["Aa"]),
    ("(^a)?b", ["b", "ab"], ["aab"]),
    ("(a$){1}", ["a"], ["aa"]),
    ("[a^$]", ["^", "$"], ["b"]),
    ("é{2}", ["éé"], ["é", "\xc3\xa9\xa9"]),
    ("[🙂-🙏]{3}", ["🙃🙄🙏"], ["🙁🙂🙂"]),
    ("\0abc", ["\0abc"], ["abc"]),
    ("(a|ab)(c|bcd)(d*)", ["abcd", "acddd", "abbcd"], ["abd"]),
    ("a{3}{", ["aaa{"], ["aaa"]),
]


@pytest.mark.parametrize(("pattern", "accepted", "refused"), TABLE, ids=[row[0] or "empty" for row in TABLE])
def test_table(pattern: str, accepted: list[str], refused: list[str]) -> None:
    built = automaton(pattern)
    assert [text for text in accepted if not built.accepts(text.encode())] == []
    assert [text for text in refused if built.accepts(text.encode())] == []
    if "\\p" not in pattern and "\\P" not in pattern:  # ours alone
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # [[ looks like a set in a set, and is none
            meaning = re.compile(pattern, 0 if pattern.startswith(("(?u)", "(?iu)")) else re.ASCII)
        assert [text for text in accepted if not meaning.fullmatch(text)] == []
        assert [text for text in refused if meaning.fullmatch(text)] == []


REFUSED = [
    ("[a-z", 0, "closed"),
    ("x[", 1, "closed"),
    ("[]", 0, "closed"),
    ("[a-", 0, "closed"),
    ("(ab", 0, "closed"),
    ("(?P<n>a", 0, "closed"),
    ("a)", 1, "without its ("),
    ("a{3,1}", 1, "above the upper"),
    ("*a", 0, "nothing to repeat"),
    ("a|*", 2, "nothing to repeat"),
    ("^*", 1, "nothing to repeat"),
    ("{2}", 0, "nothing to repeat"),
    ("a**", 2, "behind a quantifier"),
    ("a{2}{3}", 4, "behind a quantifier"),
    ("a???", 3, "behind a quantifier"),
    ("\\", 0, "at the end"),
    (r"ab\q", 2, "unknown escape"),
    (r"\x4", 0, "hexadecimal"),
    (r"\U00110000", 0, "no such code point"),
    (r"\N{NO SUCH THING}", 0, "no character"),
    (r"\N", 0, "braces"),
    (r"\400", 0, "octal"),
    (r"[\8]", 1, "unknown escape"),
    (r"[\q]", 1, "unknown escape"),
    ("[z-a]", 1, "ends before"),
    (r"[\d-z]", 1, "bad range"),
    (r"[a-\d]", 1, "bad range"),
    (r"\p{Latin}", 0, "general category"),
    (r"\p{}", 0, "braces"),
    ("(?P<1>a)", 4, "group name"),
    ("(?P<a>x)(?P<a>y)", 12, "twice"),
    ("(?q)", 2, "unknown flag"),
    ("(?L)a", 2, "unknown flag"),
    ("(?au)a", 2, "contradict"),
    ("(?a)(?u)a", 4, "contradict"),
    ("(?-u:a)", 0, "switched off"),
    ("(?i-i:a)", 0, "switched off"),
    ("a(?i)b", 1, "very start"),
    ("(?", 0, "unknown group"),
    ("(?#x", 0, "comment"),
    ("(?x)a b", 2, "verbose"),
    ("a(?=b)", 1, "look-ahead is not offered"),
    ("(?!a)b", 0, "negative look-ahead is not offered"),
    ("(?<=a)b", 0, "look-behind is not offered"),
    ("a(?<!a)b", 1, "negative look-behind is not offered"),
    ("(?>a)", 0, "atomic groups are not offered"),
    ("(a)(?(1)b|c)", 3, "conditionals"),
    ("(?<n>a)", 0, "(?P<name>...)"),
    (r"(a)\1", 3, "back-references are not offered"),
    ("(?P<n>a)(?P=n)", 8, "back-references are not offered"),
    (r"\bword\b", 0, "word boundaries are not offered"),
    (r"a\B", 1, "word boundaries are not offered"),
    ("a++", 1, "possessive quantifiers are not offered"),
    ("a{2}+", 1, "possessive quantifiers are not offered"),
    ("a^b", 1, "inside the pattern"),
    ("a$b", 1, "inside the pattern"),
    ("a*^b", 2, "inside the pattern"),
    ("(^a)*", 1, "inside the pattern"),
    ("(a$)+", 2, "inside the pattern"),
    ("a(b|^c)", 4, "inside the pattern"),
    (r"a\Z\n", 1, "inside the pattern"),
    ("(?i)[𐐀-𐐂]", 5, "beyond U+FFFF"),
    ("(?iu)[x𐐀]", 7, "beyond U+FFFF"),
    ("(?iu)ab𐐀", 7, "beyond U+FFFF"),
    (r"(?iu)\n|\U00010400", 8, "beyond U+FFFF"),
    (r"(?#\)b", 0, "comment"),
    ("[^\\s\\S]", None, "no text matches"),
    ("a{4294967295}", 1, "too large"),
    ("a{1900000000,2147483646}", None, "limit"),
    ("(a{5000}){5000}", None, "limit"),
    ("(" * 101 + ")" * 101, 100, "nest deeper"),
    ("a\ud83d", 1, "surrogate"),
    ("a" * (1 << 18) + "b", None, "limit"),
]


@pytest.mark.parametrize(("pattern", "offset", "why"), REFUSED, ids=[ascii(row[0][:40]) for row in REFUSED])
def test_refused_by_name_and_place(pattern: str, offset: int | None, why: str) -> None:
    with pytest.raises(InvalidConstraint, match=re.escape(why)) as caught:
        automaton(pattern)
    assert (caught.value.kind, caught.value.text, caught.value.offset) == ("regex", pattern, offset)
    assert isinstance(caught.value, InvalidRequest)
    assert caught.value.http_status == 400


def test_the_message_shows_kind_text_and_place() -> None:
    with pytest.raises(InvalidConstraint) as caught:
        automaton("x" * 100 + "(?=y)" + "z" * 100)
    assert "regex" in str(caught.value)
    assert "character 100" in str(caught.value)
    assert "(?=y)" in str(caught.value)
    assert len(str(caught.value)) < 200
