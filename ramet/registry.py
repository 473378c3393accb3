"""A table of named rows, some of them imported only when chosen."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from ramet.errors import ConfigError

T = TypeVar("T")


class Registry(Generic[T]):
    """Names to objects; a row is the object itself or a dotted path `package.module:attribute` resolved at first use.

    Raises ConfigError for an unknown name (listing the known ones). Registering a name twice is our fault and asserts.
    """

    def __init__(self, option: str) -> None:
        self._option = option
        self._rows: dict[str, T | str] = {}

    def add(self, name: str, row: T | str) -> None:
        """Add one row; a name can be taken only once."""
        assert name not in self._rows, f"{self._option} {name!r} is registered twice"
        self._rows[name] = row

    def get(self, name: str) -> T:
        """The object under a name, imported now if its row is a dotted path."""
        if name not in self._rows:
            near = difflib.get_close_matches(name, self._rows, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError(self._option, name, f"unknown; {hint}known: {', '.join(sorted(self._rows))}")
        row = self._rows[name]
        if isinstance(row, str):
            module, _, attribute = row.partition(":")
            loaded: T = getattr(importlib.import_module(module), attribute)
            self._rows[name] = loaded
            return loaded
        return row

    def names(self) -> tuple[str, ...]:
        """The known names, sorted."""
        return tuple(sorted(self._rows))

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(self._rows))
