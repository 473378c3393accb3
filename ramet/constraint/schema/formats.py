r"""The formats of strings, as patterns that match the whole string.

Each accepts only what its RFC accepts. `date`, `time`, `date-time`, `duration`, `uuid`, `ipv4`, `ipv6`, `uri`, `uri-reference`, the JSON
pointers and `byte` are whole, but for leap seconds and the year 0. Of host names those of up to 4 labels of 61 characters or 8 of 30,
without two hyphens in third and fourth place (punycode); of e-mail addresses those with an unquoted local part of up to 4 atoms and a host
name of two labels or more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from ramet.constraint.limits import Limits, Source
from ramet.constraint.regex import parse_regex
from ramet.constraint.syntax import Node

# Formats that say nothing about the text itself.
WITHOUT_EFFECT: Final = frozenset(("password", "binary", "path", "float", "double"))
# Whole numbers that fit so many bits.
INTEGER_BITS: Final[Mapping[str, int]] = {"int32": 32, "int64": 64}


def _date() -> str:
    any_year = r"(?:\d{3}[1-9]|\d\d[1-9]0|\d[1-9]00|[1-9]000)"
    leap_year = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
    long_month = r"(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    short_month = r"(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    return rf"(?:{any_year}-(?:{long_month}|{short_month}|02-(?:0[1-9]|1\d|2[0-8]))|{leap_year}-02-29)"


def _time() -> str:
    clock = r"(?:[01]\d|2[0-3]):[0-5]\d"
    return rf"{clock}:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-]{clock})"


def _duration() -> str:
    time = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
    days = r"\d+D"
    months = rf"\d+M(?:{days})?"
    date = rf"(?:{days}|{months}|\d+Y(?:{months})?)"
    return rf"P(?:{date}(?:{time})?|{time}|\d+W)"


def _ipv4() -> str:
    octet = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
    return rf"(?:{octet}(?:\.{octet}){{3}})"


def _ipv6() -> str:
    group = "[0-9a-fA-F]{1,4}"
    last = f"(?:{group}:{group}|{_ipv4()})"  # 32 bits
    options = [f"(?:{group}:){{6}}{last}"]
    for num_before in range(8):  # groups before the double colon
        before = f"{group}(?::{group}){{{num_before - 1}}}" if num_before else ""
        room = 7 - num_before  # groups that may stand behind it, at least one less than the rest
        behind = [f"(?:{group}:){{0,{room - 2}}}{last}"] if room >= 2 else []
        behind += [group] if room >= 1 else []
        options.append(f"{before}::(?:{'|'.join(behind)})?" if behind else f"{before}::")
    return f"(?:{'|'.join(options)})"


def _label(most: int) -> str:
    a, c = "[A-Za-z0-9]", "[A-Za-z0-9-]"
    return f"{a}(?:{c}?{a}|{c}{a}{c}{{0,{most - 4}}}{a}|{a}-{a}(?:{c}{{0,{most - 5}}}{a})?)?"


def _hostname(fewest_dots: int = 0) -> str:
    return "(?:" + "|".join(rf"{_label(most)}(?:\.{_label(most)}){{{fewest_dots},{dots}}}" for most, dots in ((61, 3), (30, 7))) + ")"


_ATOM: Final = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"


def _email() -> str:
    local = "|".join(rf"{_ATOM}{{1,{most}}}(?:\.{_ATOM}{{1,{most - 1}}}){{0,{dots}}}" for most, dots in ((32, 1), (16, 3)))
    return rf"(?:{local})@{_hostname(1)}"


_UNRESERVED: Final = "A-Za-z0-9._~-"
_DELIMITERS: Final = "!$&'()*+,;="
_SCHEME: Final = "[A-Za-z][A-Za-z0-9+.-]*"


def _characters(more: str) -> str:
    return f"(?:[{more}{_DELIMITERS}{_UNRESERVED}]|%[0-9A-Fa-f]{{2}})"


def _authority() -> str:
    literal = rf"\[(?:{_ipv6()}|[vV][0-9A-Fa-f]+\.[{_DELIMITERS}:{_UNRESERVED}]+)\]"
    return rf"(?:{_characters(':')}*@)?(?:{literal}|{_characters('')}*)(?::\d*)?"


def _uri_tail() -> str:
    inside = _characters(":@/?")
    return rf"(?:\?{inside}*)?(?:#{inside}*)?"


def _uri() -> str:
    segment = _characters(":@")
    path = rf"(?://{_authority()}(?:/{segment}*)*|/(?:{segment}+(?:/{segment}*)*)?|{segment}+(?:/{segment}*)*)?"
    return f"{_SCHEME}:{path}{_uri_tail()}"


def _uri_reference() -> str:
    segment = _characters(":@")
    first = _characters("@")
    path = rf"(?://{_authority()}(?:/{segment}*)*|/(?:{segment}+(?:/{segment}*)*)?|{first}+(?:/{segment}*)*)?"
    return f"(?:{_uri()}|{path}{_uri_tail()})"


def short_uri(most: int) -> str:
    """Web addresses of at most `most` characters: `scheme://host/path?query#fragment`, each part with its share of the room."""
    room = most - 40
    inside = f"[:@/?{_DELIMITERS}{_UNRESERVED}]|%[0-9A-Fa-f]{{2}}"
    path, tail = room // 9, room // 18  # of up to 3 characters each
    host = f"[{_UNRESERVED}]{{1,{room // 6}}}"
    return (
        rf"[A-Za-z][A-Za-z0-9+.-]{{0,19}}://{host}(?::\d{{1,5}})?(?:/(?:{inside}){{0,{path}}})?"
        rf"(?:\?(?:{inside}){{0,{tail}}})?(?:#(?:{inside}){{0,{tail}}})?"
    )


def short_email(most: int) -> str:
    """E-mail addresses of at most `most` characters, at least 60: both halves with their share of the room."""
    atom = f"{_ATOM}{{1,{min(most // 6, 31)}}}"
    label = _label((most - 2 * min(most // 6, 31) - 8) // 4)
    return rf"{atom}(?:\.{atom})?@{label}(?:\.{label}){{1,3}}"


def _pointer() -> str:
    return "(?:/(?:[^/~]|~[01])*)*"


_PATTERNS: Final[Mapping[str, Callable[[], str]]] = {
    "date": _date,
    "time": _time,
    "date-time": lambda: f"{_date()}[Tt]{_time()}",
    "duration": _duration,
    "uuid": lambda: "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "ipvanyaddress": lambda: f"(?:{_ipv4()}|{_ipv6()})",
    "hostname": _hostname,
    "email": _email,
    "uri": _uri,
    "uri-reference": _uri_reference,
    "json-pointer": _pointer,
    "relative-json-pointer": lambda: f"(?:0|[1-9][0-9]*)(?:#|{_pointer()})",
    "byte": lambda: "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
}
# Formats too large to be counted through, and their forms for a largest length of so many characters or more.
SHORT: Final[Mapping[str, tuple[Callable[[int], str], int]]] = {"uri": (short_uri, 100), "email": (short_email, 60)}
FORMATS: Final = tuple(sorted(_PATTERNS))


@lru_cache(maxsize=64)
def format_tree(name: str, most: int | None = None) -> Node:
    """The tree of a format's strings; with `most`, of its short form (see SHORT)."""
    pattern = _PATTERNS[name]() if most is None else SHORT[name][0](most)
    return parse_regex(Source("regex", "(?s)" + pattern, Limits()))
