"""Syntax trees that vanish where a part of them can match nothing, and what is known of a tree without walking it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ramet.constraint.charset import SCALARS
from ramet.constraint.syntax import EMPTY, Alt, Anchor, Chars, Node, Repeat, Seq

NOTHING: Final = Alt(())  # compared by identity: only the functions below make it
ANY_TEXT: Final = Repeat(Chars(SCALARS), 0, None)


def join(*parts: Node) -> Node:
    """One part after the other; NOTHING when one of them is."""
    kept = tuple(part for part in parts if part is not EMPTY)
    if any(part is NOTHING for part in kept):
        return NOTHING
    return kept[0] if len(kept) == 1 else Seq(kept) if kept else EMPTY


def choose(options: Iterable[Node]) -> Node:
    """Any of the options that are not NOTHING."""
    kept = tuple({id(option): option for option in options if option is not NOTHING}.values())
    return kept[0] if len(kept) == 1 else Alt(kept) if kept else NOTHING


def maybe(node: Node) -> Node:
    """The node or the empty text."""
    return EMPTY if node is NOTHING or node is EMPTY else Repeat(node, 0, 1)


def repeat(node: Node, low: int, high: int | None) -> Node:
    """The node `low` to `high` times; NOTHING when the bounds cross."""
    if high is not None and high < low:
        return NOTHING
    if node is NOTHING:
        return EMPTY if low == 0 else NOTHING
    return EMPTY if high == 0 else node if (low, high) == (1, 1) else Repeat(node, low, high)


def is_nullable(node: Node) -> bool:
    """Whether the empty text matches."""
    if isinstance(node, Seq):
        return all(map(is_nullable, node.parts))
    if isinstance(node, Alt):
        return any(map(is_nullable, node.options))
    if isinstance(node, Repeat):
        return node.min_count == 0 or is_nullable(node.body)
    assert isinstance(node, Chars), f"{node!r} is an anchor"
    return False


def lengths(node: Node) -> tuple[int, int | None]:
    """The fewest and the most characters of a text that matches, None: without end. The tree must not be empty of texts."""
    if isinstance(node, Chars):
        return 1, 1
    if isinstance(node, Repeat):
        low, high = lengths(node.body)
        is_bounded = high == 0 or (high is not None and node.max_count is not None)
        return low * node.min_count, (high or 0) * (node.max_count or 0) if is_bounded else None
    assert not isinstance(node, Anchor), "anchors are gone before lengths are counted"
    pairs = [lengths(part) for part in (node.parts if isinstance(node, Seq) else node.options)]
    highs = [high for _, high in pairs]
    combine_low, combine_high = (sum, sum) if isinstance(node, Seq) else (min, max)
    return combine_low(low for low, _ in pairs), None if None in highs else combine_high(high for high in highs if high is not None)


def with_length(node: Node, low: int, high: int | None) -> Node | None:
    """The tree for the texts of `low` to `high` characters where only one part has no fixed length; None where it takes more than that."""
    shortest, longest = lengths(node)
    if low <= shortest and (high is None or (longest is not None and longest <= high)):
        return node
    if (high is not None and shortest > high) or (longest is not None and longest < low):
        return NOTHING
    parts = list(_flat(node))
    loose = [at for at, part in enumerate(parts) if len(set(lengths(part))) > 1]
    part = parts[loose[0]] if len(loose) == 1 else None
    if not isinstance(part, Repeat):
        return None
    unit, same = lengths(part.body)
    if unit != same:
        return None
    rest = shortest - unit * part.min_count
    fewest = max(part.min_count, -((rest - low) // unit))
    most = part.max_count if high is None else (high - rest) // unit
    most = most if part.max_count is None or most is None else min(most, part.max_count)
    parts[loose[0]] = repeat(part.body, fewest, most)
    return join(*parts)


def _flat(node: Node) -> Iterable[Node]:
    if isinstance(node, Seq):
        for part in node.parts:
            yield from _flat(part)
    else:
        yield node
