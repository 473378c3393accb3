"""Rules and their pieces in the Lark dialect of llguidance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ramet.constraint.grammar.lexemes import Piece, PieceChoice, PieceRow, Plan
from ramet.constraint.grammar.regex_text import counts_text, regex_text
from ramet.constraint.grammar.rules import Ref

_MAX_DEPTH: Final = 8  # of brackets in a rule; llguidance refuses some 30


def lark_text(plans: Mapping[str, Plan], root: str) -> str:
    """The grammar that llguidance reads; names are numbers there, and each piece is a terminal, equal ones once."""
    return _Writer(plans).write(root)


class _Writer:
    def __init__(self, plans: Mapping[str, Plan]) -> None:
        self._plans = plans
        self._numbers = {name: number for number, name in enumerate(plans)}
        self._pieces: dict[str, int] = {}
        self._inner: list[str] = []  # rules for what nests deeper than llguidance reads

    def write(self, root: str) -> str:
        lines = [f"start: r{self._numbers[root]}"]
        lines += [f"r{self._numbers[name]}: {self._text(plan, 0)}" for name, plan in self._plans.items()]
        lines += self._inner
        lines += [f"P{number}: /{text}/" for text, number in self._pieces.items()]
        return "\n".join(lines) + "\n"

    def _text(self, plan: Plan, depth: int) -> str:
        if isinstance(plan, Piece):
            return f"P{self._pieces.setdefault(regex_text(plan.expr), len(self._pieces))}"
        if isinstance(plan, Ref):
            return f"r{self._numbers[plan.name]}"
        if depth == _MAX_DEPTH:
            line = self._text(plan, 0)
            self._inner.append(f"i{len(self._inner)}: {line}")
            return f"i{len(self._inner) - 1}"
        if isinstance(plan, PieceRow):
            return "(" + " ".join(self._text(part, depth + 1) for part in plan.parts) + ")" if plan.parts else '""'
        if isinstance(plan, PieceChoice):
            return "(" + " | ".join(self._text(option, depth + 1) for option in plan.options) + ")"
        return f"({self._text(plan.body, depth + 1)}){counts_text(plan.min_count, plan.max_count)}" if plan.max_count != 0 else '""'
