"""A variable's value, now or later."""

from __future__ import annotations

from typing import Any

from ramet.lang.prompt import text_of


class Cell:
    """The value that one node makes. Guarded by the lock of the stream that owns it; once done it never changes.

    `pieces` are the parts of its text as they came, each with the meta info of that moment.
    """

    __slots__ = ("is_done", "meta_info", "name", "pieces", "value")

    def __init__(self, name: str) -> None:
        self.name = name
        self.value: Any = None
        self.meta_info: Any = None
        self.pieces: list[tuple[str, Any]] = []
        self.is_done = False

    @classmethod
    def done(cls, name: str, value: Any, meta_info: Any = None) -> Cell:
        """A cell that has its value."""
        cell = cls(name)
        cell.finish(value, meta_info)
        return cell

    def finish(self, value: Any, meta_info: Any) -> None:
        """Give the value; a value that came without pieces is one piece."""
        assert not self.is_done, f"{self.name} has its value already"
        if not self.pieces:
            self.pieces.append((text_of(value), meta_info[0] if isinstance(meta_info, list) and meta_info else meta_info))
        self.value, self.meta_info, self.is_done = value, meta_info, True
