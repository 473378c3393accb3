"""Which parts of a grammar llguidance's lexer may take as one piece.

GBNF has no lexer: every way to read a text counts. llguidance has one, and it is greedy: of all pieces that the parser would take, it stays
with the longest, and never goes back. A piece for each character is always right and slow; so each regular part is one piece unless that
could lose a text, and else it is split into its own parts. Losing one takes

    a piece A that has matched,   a piece B (or A itself) that goes on with the byte c,   and c may follow A in the grammar.

All three are worked out too large rather than too small, over the first bytes of characters, since the lexer runs over bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from ramet.constraint.grammar.places import Places
from ramet.constraint.grammar.regex_text import regex_text
from ramet.constraint.grammar.rules import (
    Char,
    Choice,
    Expr,
    Ref,
    Row,
    Rules,
    Times,
    Word,
    children,
    is_nullable,
    literal,
    nullable_rules,
)
from ramet.constraint.limits import Source


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A regular part that the lexer takes whole; never empty. `origin` is the part of the grammar that it stands for."""

    expr: Expr
    origin: Expr


@dataclass(frozen=True, slots=True, eq=False)
class PieceRow:
    """One part after the other."""

    parts: tuple[Plan, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PieceChoice:
    """Any of the options."""

    options: tuple[Plan, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PieceTimes:
    """The body so many times."""

    body: Plan
    min_count: int
    max_count: int | None


Plan: TypeAlias = Piece | Ref | PieceRow | PieceChoice | PieceTimes

_MAX_PIECE_SIZE: Final = 50_000  # nodes
_MAX_PARTS: Final = 50_000  # of all plans
_NO_RULES: Final[frozenset[str]] = frozenset()


def plan_pieces(rules: Rules, source: Source) -> dict[str, Plan]:
    """For each rule its pieces, as large as they can be without losing a text. Raises InvalidConstraint when that takes too long."""
    planner = _Planner()
    known: dict[str, Places] = {}
    while True:
        plans = {name: planner.plan(expr) for name, expr in rules.items()}
        num_parts = sum(map(_num_parts, plans.values()))
        if num_parts > _MAX_PARTS:
            raise source.error(f"it takes {num_parts} parts, more than the limit of {_MAX_PARTS}: make it shorter, or less ambiguous")
        lost = _Follow(rules, plans, known, source).losing()
        if not lost:
            return plans
        planner.split |= lost


def _num_parts(plan: Plan) -> int:
    if isinstance(plan, PieceRow):
        return 1 + sum(map(_num_parts, plan.parts))
    if isinstance(plan, PieceChoice):
        return 1 + sum(map(_num_parts, plan.options))
    return 1 + _num_parts(plan.body) if isinstance(plan, PieceTimes) else 1


class _Planner:
    """Makes pieces of all that is regular, but what is in `split`."""

    def __init__(self) -> None:
        self.split: set[int] = set()
        self._letters: dict[str, Expr] = {}
        self._sizes: dict[int, float] = {}  # of trees without references; infinite for others

    def plan(self, expr: Expr) -> Plan:
        """A tree and its pieces."""
        if isinstance(expr, Ref):
            return expr
        if isinstance(expr, Char):
            return Piece(expr, expr)
        is_whole = id(expr) not in self.split and self._size(expr) <= _MAX_PIECE_SIZE
        if is_whole and not is_nullable(expr, _NO_RULES):
            return Piece(expr, expr)
        if isinstance(expr, Word):
            return PieceRow(tuple(map(self._letter, expr.text)))
        if isinstance(expr, Row):
            return PieceRow(tuple(map(self.plan, expr.parts)))
        if isinstance(expr, Choice):
            return PieceChoice(tuple(map(self.plan, expr.options)))
        if is_whole and expr.max_count != 0 and not is_nullable(expr.body, _NO_RULES):
            return PieceTimes(Piece(Times(expr.body, 1, expr.max_count), expr), 0, 1)
        return PieceTimes(self.plan(expr.body), expr.min_count, expr.max_count)

    def _size(self, expr: Expr) -> float:
        size = self._sizes.get(id(expr))
        if size is None:
            if isinstance(expr, Word):
                size = len(expr.text)
            else:
                size = math.inf if isinstance(expr, Ref) else 1 + sum(map(self._size, children(expr)))
            self._sizes[id(expr)] = size
        return size

    def _letter(self, letter: str) -> Piece:
        if letter not in self._letters:
            self._letters[letter] = literal(letter)
        return Piece(self._letters[letter], self._letters[letter])


class _Follow:
    """What may come first in each rule and behind each piece, as first bytes of characters, one bit a byte."""

    def __init__(self, rules: Rules, plans: Mapping[str, Plan], known: dict[str, Places], source: Source) -> None:
        self._plans = plans
        self._places = known  # by the text of the piece
        self._source = source
        self._texts: dict[int, str] = {}
        self._nullable = nullable_rules(rules)
        self._first = dict.fromkeys(plans, 0)
        self._behind_rule = dict.fromkeys(plans, 0)
        self._behind_piece: dict[int, int] = {}
        self._pieces: dict[int, Piece] = {}

    def losing(self) -> set[int]:
        """The origins of the pieces that must be split."""
        self._fill_first()
        self._fill_behind()
        # Equal pieces count once: what is compared is what they match and what is behind them.
        distinct: dict[str, Piece] = {}
        behinds: dict[str, int] = {}
        origins: dict[str, set[int]] = {}
        for piece_id, piece in self._pieces.items():
            text = self._text_of(piece)
            distinct[text] = piece
            behinds[text] = behinds.get(text, 0) | self._behind_piece[piece_id]
            origins.setdefault(text, set()).add(id(piece.origin))
        longer_pieces = [(text, self._places_of(piece)) for text, piece in distinct.items() if not isinstance(piece.expr, Char)]
        lost: set[int] = set()
        for text, piece in distinct.items():
            self._source.check_time()
            behind, mine = behinds[text], self._places_of(piece)
            for longer_text, theirs in longer_pieces:
                if theirs.rest & behind and theirs.first & mine.first and not origins[longer_text] <= lost:
                    self._source.check_time()
                    if mine.goes_on_in(theirs) & behind:
                        lost |= origins[longer_text]
        return lost

    def _fill_first(self) -> None:
        is_changed = True
        while is_changed:
            self._source.check_time()
            is_changed = False
            for name, plan in reversed(list(self._plans.items())):  # what a rule needs stands behind it, most often
                first = self._first_of(plan)
                if first != self._first[name]:
                    self._first[name] = first
                    is_changed = True

    def _fill_behind(self) -> None:
        before: dict[str, int] | None = None
        while before != self._behind_rule:
            self._source.check_time()
            before = dict(self._behind_rule)
            for name, plan in self._plans.items():
                self._walk(plan, self._behind_rule[name])

    def _text_of(self, piece: Piece) -> str:
        text = self._texts.get(id(piece))
        if text is None:
            text = self._texts[id(piece)] = regex_text(piece.expr)
        return text

    def _places_of(self, piece: Piece) -> Places:
        text = self._text_of(piece)
        places = self._places.get(text)
        if places is None:
            self._source.check_time()
            places = self._places[text] = Places(piece.expr)
        return places

    def _first_of(self, plan: Plan) -> int:
        if isinstance(plan, Ref):
            return self._first[plan.name]
        if isinstance(plan, Piece):
            return self._places_of(plan).first
        if isinstance(plan, PieceTimes):
            return 0 if plan.max_count == 0 else self._first_of(plan.body)
        first = 0
        for part in plan.options if isinstance(plan, PieceChoice) else plan.parts:
            first |= self._first_of(part)
            if isinstance(plan, PieceRow) and not self._is_nullable(part):
                break
        return first

    def _walk(self, plan: Plan, behind: int) -> None:
        if isinstance(plan, Ref):
            self._behind_rule[plan.name] |= behind
        elif isinstance(plan, Piece):
            self._pieces[id(plan)] = plan
            self._behind_piece[id(plan)] = self._behind_piece.get(id(plan), 0) | behind
        elif isinstance(plan, PieceChoice):
            for option in plan.options:
                self._walk(option, behind)
        elif isinstance(plan, PieceTimes):
            is_once = plan.max_count is not None and plan.max_count <= 1
            self._walk(plan.body, behind if is_once else behind | self._first_of(plan.body))
        else:
            for part in reversed(plan.parts):
                self._walk(part, behind)
                behind = self._first_of(part) | (behind if self._is_nullable(part) else 0)

    def _is_nullable(self, plan: Plan) -> bool:
        if isinstance(plan, Ref):
            return plan.name in self._nullable
        if isinstance(plan, PieceRow):
            return all(map(self._is_nullable, plan.parts))
        if isinstance(plan, PieceChoice):
            return any(map(self._is_nullable, plan.options))
        return isinstance(plan, PieceTimes) and (plan.min_count == 0 or self._is_nullable(plan.body))
