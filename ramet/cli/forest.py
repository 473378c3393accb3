"""What a running program looks like: branches with their text, built from the events of its streams."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ramet.lang.observe import Event, NodeFinished, NodeStarted, StreamClosed, StreamJoined, StreamOpened, TextAppended, VariableSet

T = TypeVar("T")


@dataclass(slots=True)
class Piece:
    """Text of one kind: constant, or generated for the variable `name`."""

    text: str
    is_generated: bool
    name: str | None


@dataclass(slots=True)
class Branch:
    """One stream: its pieces and its forks, in the order they came."""

    label: str  # 1, 1.1, 1.2, ...
    role: str
    parent: Branch | None
    items: list[Piece | Branch] = field(default_factory=list)
    variables: dict[str, Any] = field(default_factory=dict)
    is_waiting: bool = False  # a call of the model is under way
    is_open: bool = True
    error: BaseException | None = None
    num_children: int = 0


class Forest:
    """All programs that are observed. An observer that may be called from many threads; read it through `snapshot`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._branches: dict[str, Branch] = {}
        self._is_new_piece: set[str] = set()  # streams whose next text starts a piece of its own
        self.roots: list[Branch] = []

    def __call__(self, event: Event) -> None:
        """Take one event in."""
        with self._lock:
            self._take(event)

    def snapshot(self, read: Callable[[list[Branch]], T]) -> T:
        """What `read` makes of the roots while nothing changes."""
        with self._lock:
            return read(self.roots)

    def branch(self, stream_id: str) -> Branch:
        """The branch of a stream that was opened."""
        with self._lock:
            return self._branches[stream_id]

    def _take(self, event: Event) -> None:
        if isinstance(event, StreamOpened):
            self._open(event)
            return
        branch = self._branches[event.stream_id]
        if isinstance(event, TextAppended):
            self._append(branch, event)
        elif isinstance(event, NodeStarted):
            branch.is_waiting = True
            self._is_new_piece.add(event.stream_id)
        elif isinstance(event, NodeFinished):
            branch.is_waiting = False
        elif isinstance(event, VariableSet):
            branch.variables[event.name] = event.value
        elif isinstance(event, StreamClosed):
            branch.is_open = branch.is_waiting = False
            branch.error = event.error
        else:
            assert isinstance(event, StreamJoined), f"unknown event {event!r}"
            branch.is_open = False

    def _open(self, event: StreamOpened) -> None:
        parent = None if event.parent_id is None else self._branches[event.parent_id]
        if parent is None:
            branch = Branch(str(len(self.roots) + 1), event.role, None)
            self.roots.append(branch)
        else:
            parent.num_children += 1
            branch = Branch(f"{parent.label}.{parent.num_children}", event.role, parent)
            parent.items.append(branch)
        self._branches[event.stream_id] = branch

    def _append(self, branch: Branch, event: TextAppended) -> None:
        last = branch.items[-1] if branch.items else None
        is_same = isinstance(last, Piece) and (last.is_generated, last.name) == (event.is_generated, event.name)
        if is_same and event.stream_id not in self._is_new_piece:
            assert isinstance(last, Piece)
            last.text += event.text
        else:
            branch.items.append(Piece(event.text, event.is_generated, event.name))
        self._is_new_piece.discard(event.stream_id)
