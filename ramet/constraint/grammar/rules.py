"""A grammar as a tree for each rule, and what is true of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ramet.constraint.charset import SCALARS, Ranges, intersect


@dataclass(frozen=True, slots=True, eq=False)
class Char:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True, eq=False)
class Word:
    """Exactly this text, of two characters or more."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Ref:
    """Whatever the rule of this name matches; `offset` is the place in the text."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One part after the other; no part: the empty text."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Any of the options; no option: nothing at all."""

    options: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """The body between `min_count` and `max_count` times, None: without end."""

    body: Expr
    min_count: int
    max_count: int | None


Expr: TypeAlias = Char | Word | Ref | Row | Choice | Times
Rules: TypeAlias = Mapping[str, Expr]


def char(ranges: Ranges) -> Expr:
    """One character of a set, as far as UTF-8 can spell it; nothing at all for an empty set."""
    kept = intersect(ranges, SCALARS)
    return Char(kept) if kept else Choice(())


def literal(text: str) -> Expr:
    """Exactly this text."""
    return Row(()) if not text else Word(text) if len(text) > 1 else char(((ord(text), ord(text)),))


def reachable(rules: Rules, root: str) -> dict[str, Expr]:
    """The rules that the root needs, the root first."""
    found: dict[str, Expr] = {}
    todo = [root]
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = rules[name]
            todo += reversed([ref.name for ref in refs_of(rules[name])])
    return found


def refs_of(expr: Expr) -> list[Ref]:
    """The references in a tree, from left to right."""
    if isinstance(expr, Ref):
        return [expr]
    return [ref for child in children(expr) for ref in refs_of(child)]


def children(expr: Expr) -> tuple[Expr, ...]:
    """The trees right below."""
    if isinstance(expr, Row):
        return expr.parts
    if isinstance(expr, Choice):
        return expr.options
    return (expr.body,) if isinstance(expr, Times) else ()


def without_dead_ends(rules: Rules) -> dict[str, Expr]:
    """The same language without the options that match no text, such as a rule that always needs itself; a rule may be left with none."""
    productive = _least(rules, _matches_something)
    return {name: _pruned(expr, productive) for name, expr in rules.items()}


def nullable_rules(rules: Rules) -> frozenset[str]:
    """The rules that match the empty text."""
    return _least(rules, is_nullable)


def _least(rules: Rules, holds: Callable[[Expr, frozenset[str] | set[str]], bool]) -> frozenset[str]:
    """The rules for which something holds because it holds for those they refer to, and so on down."""
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, expr in rules.items():
        for ref in refs_of(expr):
            users[ref.name].add(name)
    found: set[str] = set()
    todo = set(rules)
    while todo:
        name = todo.pop()
        if name not in found and holds(rules[name], found):
            found.add(name)
            todo |= users[name] - found
    return frozenset(found)


def is_nullable(expr: Expr, nullable: frozenset[str] | set[str]) -> bool:
    """Whether a tree matches the empty text, given the rules that do."""
    if isinstance(expr, Ref):
        return expr.name in nullable
    if isinstance(expr, Row):
        return all(is_nullable(part, nullable) for part in expr.parts)
    if isinstance(expr, Choice):
        return any(is_nullable(option, nullable) for option in expr.options)
    return isinstance(expr, Times) and (expr.min_count == 0 or is_nullable(expr.body, nullable))


def regular_rules(rules: Rules, max_size: int, max_depth: int) -> dict[str, Expr]:
    """The rules that do not recurse, with those they refer to written out, as far as each stays within so many nodes and so deep."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    num_open = {}
    for name, expr in rules.items():
        needed = {ref.name for ref in refs_of(expr)}
        num_open[name] = len(needed)
        for other in needed:
            users[other].append(name)
    written: dict[str, Expr] = {}
    sizes: dict[str, int] = {}
    depths: dict[str, int] = {}
    todo = [name for name, count in num_open.items() if count == 0]
    while todo:
        name = todo.pop()
        size, depth = size_of(rules[name], sizes), depth_of(rules[name], depths)
        if size > max_size or depth > max_depth:
            continue
        written[name], sizes[name], depths[name] = substituted(rules[name], written), size, depth
        for user in users[name]:
            num_open[user] -= 1
            if num_open[user] == 0:
                todo.append(user)
    return written


def substituted(expr: Expr, written: Mapping[str, Expr]) -> Expr:
    """A tree with these rules in the place of references to them."""
    if isinstance(expr, Ref):
        return written.get(expr.name, expr)
    if isinstance(expr, Row):
        return Row(tuple(substituted(part, written) for part in expr.parts))
    if isinstance(expr, Choice):
        return Choice(tuple(substituted(option, written) for option in expr.options))
    return Times(substituted(expr.body, written), expr.min_count, expr.max_count) if isinstance(expr, Times) else expr


def depth_of(expr: Expr, depths: Mapping[str, int]) -> int:
    """How deep a tree nests, given the depths of the rules it refers to."""
    return depths[expr.name] if isinstance(expr, Ref) else 1 + max((depth_of(child, depths) for child in children(expr)), default=0)


def size_of(expr: Expr, sizes: Mapping[str, int]) -> int:
    """The nodes of a tree, given those of the rules it refers to."""
    if isinstance(expr, Ref):
        return sizes[expr.name]
    return len(expr.text) if isinstance(expr, Word) else 1 + sum(size_of(child, sizes) for child in children(expr))


def _matches_something(expr: Expr, productive: frozenset[str] | set[str]) -> bool:
    if isinstance(expr, Ref):
        return expr.name in productive
    if isinstance(expr, Row):
        return all(_matches_something(part, productive) for part in expr.parts)
    if isinstance(expr, Choice):
        return any(_matches_something(option, productive) for option in expr.options)
    return isinstance(expr, Char | Word) or expr.min_count == 0 or _matches_something(expr.body, productive)


def _pruned(expr: Expr, productive: frozenset[str]) -> Expr:
    if not _matches_something(expr, productive):
        return Choice(())
    if isinstance(expr, Row):
        return Row(tuple(_pruned(part, productive) for part in expr.parts))
    if isinstance(expr, Choice):
        return Choice(tuple(_pruned(option, productive) for option in expr.options if _matches_something(option, productive)))
    if isinstance(expr, Times):
        return (
            Times(_pruned(expr.body, productive), expr.min_count, expr.max_count) if _matches_something(expr.body, productive) else Row(())
        )
    return expr
