"""The syntax tree that every constraint kind makes and the automaton is built from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from ramet.constraint.charset import Ranges, union


@dataclass(frozen=True, slots=True, eq=False)
class Chars:
    """One character of a set; surrogates in it are never matched."""

    ranges: Ranges


@dataclass(frozen=True, slots=True, eq=False)
class Seq:
    """One part after the other; no part: the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Alt:
    """Any of the options; no option: nothing at all."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    """The body between `min_count` and `max_count` times, None: without end."""

    body: Node
    min_count: int
    max_count: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Anchor:
    """The start (`^`) or the end (`$`) of the text; `offset` is its place in the pattern, for the error when it stands inside."""

    is_start: bool
    offset: int


Node: TypeAlias = Chars | Seq | Alt | Repeat | Anchor

EMPTY: Final = Seq(())


def seq(parts: Iterable[Node]) -> Node:
    """One part after the other."""
    kept = tuple(parts)
    return kept[0] if len(kept) == 1 else Seq(kept)


def alt(options: Iterable[Node]) -> Node:
    """Any of the options; single characters among them become one set."""
    kept = tuple(options)
    sets = [option for option in kept if isinstance(option, Chars)]
    if len(sets) > 1:
        merged = Chars(union(pair for option in sets for pair in option.ranges))
        kept = (merged, *(option for option in kept if not isinstance(option, Chars)))
    return kept[0] if len(kept) == 1 else Alt(kept)


def literal(text: str) -> Node:
    """Exactly this text."""
    return seq(map(_single, text))


@lru_cache(maxsize=4096)
def _single(char: str) -> Chars:
    """The node of one character; shared, since lists of words have hundreds of thousands of them."""
    return Chars(((ord(char), ord(char)),))


def is_finite(root: Node) -> bool:
    """Whether no repetition is without end. Shared parts are looked at once."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Repeat):
            if node.max_count is None and not _matches_only_empty(node.body):
                return False
            todo.append(node.body)
        elif isinstance(node, Seq):
            todo.extend(node.parts)
        elif isinstance(node, Alt):
            todo.extend(node.options)
    return True


def without_anchors(root: Node) -> Node | Anchor:
    """The same tree without `^` at the very start and `$` at the very end of a path, where they change nothing.

    Returns the first anchor that stands anywhere else.
    """
    try:
        return _strip(root, True, True)
    except _InnerAnchor as found:
        return found.anchor


class _InnerAnchor(Exception):
    def __init__(self, anchor: Anchor) -> None:
        super().__init__(anchor.offset)
        self.anchor = anchor


def _strip(node: Node, at_start: bool, at_end: bool) -> Node:
    if isinstance(node, Anchor):
        if not (at_start if node.is_start else at_end):
            raise _InnerAnchor(node)
        return EMPTY
    if isinstance(node, Alt):
        return alt(_strip(option, at_start, at_end) for option in node.options)
    if isinstance(node, Repeat):
        is_once = node.max_count is not None and node.max_count <= 1
        return Repeat(_strip(node.body, at_start and is_once, at_end and is_once), node.min_count, node.max_count)
    if isinstance(node, Seq):
        if all(isinstance(part, Chars) for part in node.parts):
            return node
        is_void = [_matches_only_empty(part) for part in node.parts]
        first = next((i for i, void in enumerate(is_void) if not void), len(is_void))
        last = next((i for i in reversed(range(len(is_void))) if not is_void[i]), -1)
        return seq(_strip(part, at_start and i <= first, at_end and i >= last) for i, part in enumerate(node.parts))
    return node


def _matches_only_empty(node: Node) -> bool:
    if isinstance(node, Seq):
        return all(map(_matches_only_empty, node.parts))
    if isinstance(node, Alt):
        return bool(node.options) and all(map(_matches_only_empty, node.options))
    if isinstance(node, Repeat):
        return node.max_count == 0 or _matches_only_empty(node.body)
    return isinstance(node, Anchor)
