"""From (kind, text, vocabulary) to a compiled constraint, each made once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeAlias

from ramet.constraint.base import Compiled
from ramet.constraint.limits import Limits, Source
from ramet.constraint.vocabulary import Vocabulary
from ramet.registry import Registry

Kind: TypeAlias = Callable[[Source, Vocabulary], Compiled]

KINDS: Final[Registry[Kind]] = Registry("constraint kind")
KINDS.add("regex", "ramet.constraint.kinds.regex:compile_regex")
KINDS.add("choice", "ramet.constraint.kinds.choice:compile_choice")
KINDS.add("int", "ramet.constraint.kinds.typed:compile_typed")
KINDS.add("float", "ramet.constraint.kinds.typed:compile_typed")
KINDS.add("bool", "ramet.constraint.kinds.typed:compile_typed")
KINDS.add("str", "ramet.constraint.kinds.typed:compile_typed")
KINDS.add("json_schema", "ramet.constraint.kinds.json_schema:compile_json_schema")
KINDS.add("json_schema_compact", "ramet.constraint.kinds.json_schema:compile_json_schema")
KINDS.add("json_schema_flexible", "ramet.constraint.kinds.json_schema:compile_json_schema")
KINDS.add("ebnf", "ramet.constraint.kinds.ebnf:compile_ebnf")
KINDS.add("lark", "ramet.constraint.kinds.lark:compile_lark")
KINDS.add("structural_tag", "ramet.constraint.kinds.structural_tag:compile_structural_tag")


def compile_constraint(
    kind: str, text: str, vocabulary: Vocabulary, *, limits: Limits | None = None, cache: ConstraintCache | None = None
) -> Compiled:
    r"""Compile a constraint, or take it from `cache`.

    `kind` is a row of KINDS: "regex" (its text is the pattern), "choice" (a JSON list of strings), "int", "float", "bool", "str" (no text).
    Takes milliseconds; states and masks are worked out as they are met. May be called from any thread, not from the engine's loop.
    Raises InvalidConstraint for what is wrong, not offered or over the limits, and ConfigError for an unknown kind.
    """
    make = KINDS.get(kind)
    limits = limits or Limits()
    if cache is None:
        return make(Source(kind, text, limits), vocabulary)
    return cache.get((kind, text, vocabulary, limits), lambda: make(Source(kind, text, limits), vocabulary))


Key: TypeAlias = tuple[str, str, Vocabulary, Limits]


class ConstraintCache:
    """The most recently used compiled constraints, no more of them and no more bytes than allowed.

    Callers that ask for the same one at the same time wait for one compilation.

    Errors are not kept: every caller that waited gets the error, the next one tries again.
    """

    def __init__(self, max_entries: int = 256, max_bytes: int = 1 << 30) -> None:
        assert max_entries > 0, f"a cache of {max_entries} entries"
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Key, Future[Compiled]] = OrderedDict()
        self._lock = threading.Lock()
        self.num_hits = 0
        self.num_misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key, make: Callable[[], Compiled]) -> Compiled:
        """The entry under a key, made by the first caller. Raises what `make` raises."""
        with self._lock:
            entry = self._entries.get(key)
            is_first = entry is None
            if entry is None:
                self.num_misses += 1
                entry = self._entries[key] = Future()
                while len(self._entries) > self._max_entries:
                    self._entries.popitem(last=False)
            else:
                self.num_hits += 1
                self._entries.move_to_end(key)
        if is_first:
            try:
                entry.set_result(make())
            except BaseException as error:
                with self._lock:
                    if self._entries.get(key) is entry:
                        del self._entries[key]
                entry.set_exception(error)
            else:
                self._drop_large(key)
        return entry.result()

    def _drop_large(self, newest: Key) -> None:
        """Drop what was used longest ago until the rest takes no more than it may; constraints grow while they are used."""
        with self._lock:
            sizes = {key: entry.result().num_bytes for key, entry in self._entries.items() if entry.done() and entry.exception() is None}
            num_bytes = sum(sizes.values())
            for key, size in sizes.items():
                if num_bytes <= self._max_bytes:
                    break
                if key != newest:
                    del self._entries[key]
                    num_bytes -= size
