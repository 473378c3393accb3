"""Constraints of requests: compiled in the caller's thread, found again by the engine's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from ramet.constraint.base import Compiled
from ramet.constraint.compile import ConstraintCache, compile_constraint
from ramet.constraint.vocabulary import Vocabulary
from ramet.params import SamplingParams

# Where a JSON text may have white space, and the kind of constraint that says so.
JSON_KINDS: Final[Mapping[str, str]] = {"fixed": "json_schema", "compact": "json_schema_compact", "flexible": "json_schema_flexible"}

# A forward pass takes the interpreter's lock some hundred times. Against a thread that compiles it waits each time for as long as a turn
# lasts, 5 ms unless said otherwise: one step of the engine would take as long as the whole compilation.
_TURN_S: Final = 1e-4
_turns = threading.Lock()
_usual_turn_s: list[float] = []  # one entry for each thread that compiles; the first one holds what to go back to


class Constraints:
    """Compiles what `SamplingParams` ask for, each constraint once; the vocabulary's byte tree is built when the first one comes.

    `json_whitespace` says how the texts of a JSON Schema are spaced: "fixed" is `", "` and `": "`, "compact" is `","` and `":"`, "flexible"
    leaves a bounded choice to the model.
    """

    def __init__(self, make_vocabulary: Callable[[], Vocabulary], json_whitespace: str = "fixed") -> None:
        assert json_whitespace in JSON_KINDS, f"json_whitespace={json_whitespace!r}: known are {', '.join(JSON_KINDS)}"
        self._json_kind = JSON_KINDS[json_whitespace]
        self._make_vocabulary = make_vocabulary
        self._vocabulary: Vocabulary | None = None
        self._lock = threading.Lock()
        self._cache = ConstraintCache()

    def compile(self, params: SamplingParams) -> Compiled | None:
        """The compiled constraint, or None when the text is free; made in the thread of the caller. Raises InvalidConstraint."""
        if params.constraint is None:
            return None
        kind, text = params.constraint
        with _short_turns():
            return compile_constraint(self._json_kind if kind == "json_schema" else kind, text, self.vocabulary, cache=self._cache)

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of all of them, with its byte tree; built at the first use."""
        with self._lock:
            if self._vocabulary is None:
                vocabulary = self._make_vocabulary()
                vocabulary.prepare()
                self._vocabulary = vocabulary
            return self._vocabulary


@contextmanager
def _short_turns() -> Iterator[None]:
    """Threads of this process take short turns as long as anyone is in here."""
    with _turns:
        _usual_turn_s.append(_usual_turn_s[0] if _usual_turn_s else sys.getswitchinterval())
        sys.setswitchinterval(min(_TURN_S, _usual_turn_s[0]))
    try:
        yield
    finally:
        with _turns:
            usual_s = _usual_turn_s.pop()
            if not _usual_turn_s:
                sys.setswitchinterval(usual_s)
