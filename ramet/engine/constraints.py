"""Constraints of requests: compiled in the caller's thread, found again by the engine's."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ramet.constraint.base import Compiled
from ramet.constraint.compile import ConstraintCache, compile_constraint
from ramet.constraint.vocabulary import Vocabulary
from ramet.params import SamplingParams


class Constraints:
    """Compiles what `SamplingParams` ask for, each constraint once; the vocabulary's byte tree is built when the first one comes."""

    def __init__(self, make_vocabulary: Callable[[], Vocabulary]) -> None:
        self._make_vocabulary = make_vocabulary
        self._vocabulary: Vocabulary | None = None
        self._lock = threading.Lock()
        self._cache = ConstraintCache()

    def compile(self, params: SamplingParams) -> Compiled | None:
        """The compiled constraint, or None when the text is free. Raises InvalidConstraint."""
        if params.regex is None:
            return None
        return compile_constraint("regex", params.regex, self._prepared(), cache=self._cache)

    def _prepared(self) -> Vocabulary:
        with self._lock:
            if self._vocabulary is None:
                vocabulary = self._make_vocabulary()
                vocabulary.prepare()
                self._vocabulary = vocabulary
            return self._vocabulary
