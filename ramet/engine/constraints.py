"""Constraints of requests: compiled in the caller's thread, found again by the engine's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from ramet.constraint.base import Compiled
from ramet.constraint.compile import ConstraintCache, compile_constraint
from ramet.constraint.vocabulary import Vocabulary
from ramet.params import SamplingParams

# Where a JSON text may have white space, and the kind of constraint that says so.
JSON_KINDS: Final[Mapping[str, str]] = {"fixed": "json_schema", "compact": "json_schema_compact", "flexible": "json_schema_flexible"}


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
