"""The strings that a `pattern` lets through: those in which it is found somewhere, unless it says `^` or `$`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from ramet.constraint.limits import Source
from ramet.constraint.regex import parse_regex
from ramet.constraint.schema import ecma
from ramet.constraint.schema.trees import ANY_TEXT, choose, is_nullable, join
from ramet.constraint.syntax import EMPTY, Alt, Chars, Node, Repeat, Seq
from ramet.errors import InvalidConstraint


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A condition on a whole string: to match the tree, or not to."""

    node: Node
    is_excluded: bool = False


def read_pattern(source: Source, path: str, pattern: str) -> tuple[Rule, ...]:
    """The conditions of one pattern, all of which must hold.

    Look-ahead is offered right behind a leading `^`, where it is a condition of its own. Raises InvalidConstraint naming `path`.
    """
    own = Source("regex", pattern, source.limits)
    try:
        return _read(own)
    except InvalidConstraint as error:
        where = "" if error.offset is None or error.text != pattern else f" (character {error.offset})"
        raise source.error(f"{path}: in the pattern {pattern!r}{where}: {error.why}") from error


def _read(source: Source) -> tuple[Rule, ...]:
    rules = []
    pattern = source.text
    while pattern.startswith(("^(?=", "^(?!")):
        end = ecma.group_end(pattern, 1)
        if end is None or pattern[end : end + 1] in tuple("*+?{") or ecma.top_level_bars(pattern[end:]):
            break  # the parser says what is wrong with it
        rules.append(Rule(_searched(source, f"^(?:{pattern[4 : end - 1]})"), pattern[3] == "!"))
        pattern = "^" + pattern[end:]
    return (*rules, Rule(_searched(source, pattern)))


def _searched(source: Source, pattern: str) -> Node:
    text = ecma.to_python(source if pattern == source.text else Source("regex", pattern, source.limits))
    root = parse_regex(Source("regex", text, source.limits))
    if not _has_marks(root):
        return join(ANY_TEXT, root, ANY_TEXT)
    found = [
        join(EMPTY if at_start else ANY_TEXT, node, EMPTY if at_end else ANY_TEXT) for at_start, at_end, node in _anchored(source, root)
    ]
    return choose(found)


_Reading: TypeAlias = tuple[bool, bool, Node]  # one way to read a part: whether it stands at the start, at the end, and the part
_MAX_READINGS: Final = 64


def _mark(node: Node) -> str:
    """The mark that stands for an anchor, empty for any other node."""
    if isinstance(node, Seq) and len(node.parts) == 2:
        first, second = node.parts
        if isinstance(first, Chars) and isinstance(second, Chars) and first.ranges == second.ranges and len(first.ranges) == 1:
            low, high = first.ranges[0]
            if low == high and chr(low) in (ecma.START_MARK, ecma.END_MARK):
                return chr(low)
    return ""


def _has_marks(node: Node) -> bool:
    if _mark(node):
        return True
    if isinstance(node, Repeat):
        return _has_marks(node.body)
    inner = node.parts if isinstance(node, Seq) else node.options if isinstance(node, Alt) else ()
    return any(map(_has_marks, inner))


def _anchored(source: Source, node: Node) -> list[_Reading]:
    mark = _mark(node)
    if mark:
        return [(mark == ecma.START_MARK, mark == ecma.END_MARK, EMPTY)]
    if not _has_marks(node):
        return [(False, False, node)]
    if isinstance(node, Alt):
        return _merged(source, [reading for option in node.options for reading in _anchored(source, option)])
    if isinstance(node, Seq):
        whole: list[_Reading] = [(False, False, EMPTY)]
        for part in node.parts:
            readings = _anchored(source, part)
            whole = _merged(source, [one for left in whole for right in readings for one in _after(left, right)])
        return whole
    assert isinstance(node, Repeat), f"{node!r} holds no anchor"
    if node.max_count is None or node.max_count > 1:
        raise source.error("an anchor inside a repetition is not offered: write the anchor outside")
    once = _anchored(source, node.body) if node.max_count else []
    return once if node.min_count else _merged(source, [*once, (False, False, EMPTY)])


def _after(left: _Reading, right: _Reading) -> list[_Reading]:
    """Both parts in a row; nothing can stand before the start or behind the end."""
    before, behind = left[2], right[2]
    if right[0]:
        if not is_nullable(before):
            return []
        before = EMPTY
    if left[1]:
        if not is_nullable(behind):
            return []
        behind = EMPTY
    return [(left[0] or right[0], left[1] or right[1], join(before, behind))]


def _merged(source: Source, readings: list[_Reading]) -> list[_Reading]:
    groups: dict[tuple[bool, bool], list[Node]] = {}
    for at_start, at_end, node in readings:
        groups.setdefault((at_start, at_end), []).append(node)
    return [(at_start, at_end, choose(nodes)) for (at_start, at_end), nodes in groups.items()]
