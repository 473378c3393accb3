"""What `ramet check` found, in words or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ramet.constraint.testing import Explanation, StateCount, TokenStep
from ramet.errors import InvalidConstraint

_INDENT: Final = "    "
_LEN_BEFORE, _LEN_BEHIND = 60, 40  # characters of a line that are shown around the place at fault
_MAX_SHOWN_LEN: Final = 60  # characters of a text that are shown to name it


@dataclass(frozen=True, slots=True)
class Overview:
    """A constraint by itself: its states where it has an automaton, and the text that everything begins with."""

    kind: str
    states: StateCount | None
    forced: str


@dataclass(frozen=True, slots=True)
class TokenizerView:
    """A constraint over a real vocabulary; times do not hold the vocabulary's own preparation, which is done once for a model."""

    model: str
    num_tokens: int
    num_first_allowed: int
    compile_ms: float
    first_mask_ms: float


@dataclass(frozen=True, slots=True)
class Checked:
    """One text; `steps` are the tokens of its accepted part, None without a tokenizer."""

    text: str
    num_bytes: int
    explanation: Explanation
    steps: tuple[TokenStep, ...] | None


def print_report(overview: Overview, view: TokenizerView | None, checked: Sequence[Checked], out: Console) -> None:
    _say(out, f"{overview.kind}: {_states(overview.states)}" + (f"; begins with {overview.forced!r}" if overview.forced else ""))
    if view is not None:
        _say(
            out,
            f"{view.model}: {view.num_first_allowed:,} of {view.num_tokens:,} tokens may come first; "
            f"compiled in {view.compile_ms:.1f} ms, first mask in {view.first_mask_ms:.1f} ms",
        )
    for item in checked:
        found = item.explanation
        if found.is_accepted:
            _say(out, f"accepted {_shown(item.text)}: {_forced(found)}", "green")
        else:
            _say(out, f"refused  {_shown(item.text)} at line {found.line}, column {found.column}: {_expected(item)}", "bold red")
            for line in pointer(item.text, found.offset):
                _say(out, _INDENT + line)
            _say(out, f"{_INDENT}{_forced(found)} before it" + (f"; next must be {found.forced!r}" if found.forced else ""))
        if item.steps is not None:
            _say(out, _INDENT + _tokens(item.steps, len(found.accepted.encode())))


def _states(states: StateCount | None) -> str:
    if states is None:
        return "a grammar, which has no fixed number of states"
    more = "" if states.is_complete else "more than "
    return f"{more}{states.num_states:,} states, {states.num_forced:,} of them without a choice"


def _tokens(steps: Sequence[TokenStep], num_bytes: int) -> str:
    sampled = [repr(step.piece.decode(errors="replace")) for step in steps if not step.is_forced]
    num_spelled = sum(len(step.piece) for step in steps)
    short = f", and no token for byte {num_spelled}" if num_spelled < num_bytes else ""
    return " ".join([f"{len(steps)} tokens{short}: {len(steps) - len(sampled)} forced, {len(sampled)} sampled ", *sampled]).rstrip()


def _expected(item: Checked) -> str:
    found = item.explanation
    where = "ends too early, " if found.num_bytes == item.num_bytes else ""
    choices = " or ".join([f"one of: {found.expected}"] * bool(found.expected) + ["the end"] * found.may_end)
    return f"{where}expected {choices or 'nothing'}"


def _forced(found: Explanation) -> str:
    return f"{found.num_forced_bytes} of {found.num_bytes} bytes forced"


def print_error(error: InvalidConstraint, err: Console) -> None:
    _say(err, f"error: {error}", "bold red")
    if error.offset is not None:
        for line in pointer(error.text, error.offset):
            _say(err, _INDENT + line)


def pointer(text: str, offset: int) -> list[str]:
    """The line of a text around a character, cut to a width that can be read, and a line with a caret under that character."""
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    end = len(text) if end < 0 else max(end, offset + 1)  # a line break at fault is shown
    first, last = max(start, offset - _LEN_BEFORE), min(end, offset + _LEN_BEHIND)
    before = ("..." if first > start else "") + _visible(text[first:offset])
    return [before + _visible(text[offset:last]) + ("..." if last < end else ""), " " * cell_len(before) + "^"]


def _visible(text: str) -> str:
    """What moves no cursor: anything that cannot be printed as an escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN_LEN else text[: _MAX_SHOWN_LEN - 3] + "...")


def _say(console: Console, line: str, style: str = "") -> None:
    console.print(Text(line, style=style), soft_wrap=True)


def report_json(overview: Overview, view: TokenizerView | None, checked: Sequence[Checked]) -> dict[str, Any]:
    states = overview.states
    report: dict[str, Any] = {
        "kind": overview.kind,
        "is_valid": True,
        "num_states": None if states is None else states.num_states,
        "num_forced_states": None if states is None else states.num_forced,
        "has_all_states": None if states is None else states.is_complete,
        "forced": overview.forced,
        "texts": [_checked_json(item) for item in checked],
    }
    if view is not None:
        report["tokenizer"] = {name: getattr(view, name) for name in view.__dataclass_fields__}
    return report


def _checked_json(item: Checked) -> dict[str, Any]:
    found = item.explanation
    report: dict[str, Any] = {
        "text": item.text,
        "is_accepted": found.is_accepted,
        "num_bytes": found.num_bytes,
        "num_forced_bytes": found.num_forced_bytes,
        "offset": found.offset,
        "line": found.line,
        "column": found.column,
        "expected": found.expected,
        "may_end": found.may_end,
        "forced": found.forced,
    }
    if item.steps is not None:
        report["num_tokens"] = len(item.steps)
        report["num_sampled_tokens"] = sum(not step.is_forced for step in item.steps)
        report["tokens"] = [
            {"id": step.token_id, "piece": step.piece.decode(errors="backslashreplace"), "is_forced": step.is_forced} for step in item.steps
        ]
    return report


def error_json(error: InvalidConstraint) -> dict[str, Any]:
    report: dict[str, Any] = {"why": error.why, "offset": error.offset}
    if error.offset is not None:
        report["line"] = error.text.count("\n", 0, error.offset) + 1
        report["column"] = error.offset - error.text.rfind("\n", 0, error.offset)
    return report
