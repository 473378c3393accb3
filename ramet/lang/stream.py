"""One prompt state: the queue of its nodes, the variables they make, and the first error.

append ──> queue ──> interpreter ──> text, variables, messages ──> readers wait here
                         │
                         └── error ──> kept: every later append and every later read raises StreamFailed from it
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ramet.errors import InvalidParams, ProgramError, StreamFailed, UnknownVariable, UnsupportedNode
from ramet.lang.chat import ChatTemplate
from ramet.lang.interpreter import Interpreter, is_instant
from ramet.lang.node_queue import NodeQueue
from ramet.lang.nodes import CommitLazy, ExprList, Gen, Node, Select, Variable, VarScopeEnd
from ramet.lang.observe import Event, Observer, StreamClosed, StreamJoined, StreamOpened, TextAppended, VariableSet
from ramet.lang.prompt import Prompt, Transcript
from ramet.lang.sampling import SglSamplingParams
from ramet.lang.variables import Cell

if TYPE_CHECKING:
    from ramet.lang.backends.base import BaseBackend


@dataclass(frozen=True, slots=True)
class ProgramContext:
    """What all streams of one program share."""

    backend: BaseBackend
    params: SglSamplingParams
    template: ChatTemplate
    observer: Observer | None = None
    is_streaming: bool = False  # the caller reads text while it is generated
    use_thread: bool = True
    verbosity: int = 0


class _End(Node):
    """Nothing follows: the stream closes when it gets here."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "its end"


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What the children of one fork begin with: the state of a parent that has run all its nodes."""

    transcript: Transcript
    cells: dict[str, Cell]
    prompt: Prompt


class Stream:
    """A prompt state that runs its nodes in the order they were appended. Safe to use from several threads."""

    def __init__(
        self,
        context: ProgramContext,
        stream_id: str,
        *,
        parent: Stream | None = None,
        snapshot: _Snapshot | None = None,
        index: int = 0,
        role: str = "program",
        group_id: str | None = None,
    ) -> None:
        self.context = context
        self.stream_id = stream_id
        self.parent = parent
        self.index = index
        self.group_id = group_id
        self.changed = threading.Condition()
        self._transcript: Transcript = Transcript(context.template) if snapshot is None else snapshot.transcript.copy()
        self.fork_position = len(self._transcript.text)
        self._inherited: dict[str, Cell] = {} if snapshot is None else snapshot.cells
        self._cells: dict[str, Cell] = dict(self._inherited)
        self._queue = NodeQueue(self, self.changed, self._notify, thread_name=f"ramet-stream-{stream_id}", use_thread=context.use_thread)
        self._is_ending = False  # nothing more may be appended
        self._is_finished = False
        self._error: BaseException | None = None
        self._failed_at = ""
        self._is_error_seen = False
        self._open_children: list[Stream] = []
        self._num_forks = 0
        self._num_children = 0
        self._listeners: list[Callable[[], None]] = []
        self._program_thread_id: int | None = None  # the thread of the function, while it runs apart from who reads
        self._interpreter = Interpreter(
            context.backend,
            context.params,
            self._transcript,
            self,
            stream_id=stream_id,
            group_id=group_id,
            is_streaming=context.is_streaming or context.observer is not None,
        )
        self.emit(StreamOpened(stream_id, None if parent is None else parent.stream_id, index, role))

    @property
    def node_id(self) -> str:
        """How nodes that refer to this stream print it."""
        return self.stream_id

    def prompt(self) -> Prompt:
        """The state at this moment, as a backend sees it."""
        return self._interpreter.prompt()

    def submit(self, node: Node) -> None:
        """Append a node, or each node of a list.

        Raises StreamFailed when an earlier node failed (or this one, if it ran at once) and ProgramError when the stream has ended.
        """
        for item in node if isinstance(node, ExprList) else (node,):
            source_cell = self._source_cell(item)
            with self.changed:
                self.raise_if_failed()
                if self._is_ending:
                    raise ProgramError(f"nothing can be appended to stream {self.stream_id}: it was joined or its program has ended")
                is_mine = self._enqueue(item, source_cell)
            if is_mine and self._queue.advance():
                with self.changed:
                    self.raise_if_failed()

    def set_var(self, name: str, value: Any, meta_info: Any = None) -> None:
        """Give a variable its value now; earlier generations of this name no longer count.

        Raises StreamFailed when the stream has failed.
        """
        with self.changed:
            self.raise_if_failed()
            self._cells[name] = Cell.done(name, value, meta_info)
            self._notify()
        self.emit(VariableSet(self.stream_id, name, value))

    def has_var(self, name: str) -> bool:
        """Whether the name is set or an appended node will set it; does not wait."""
        with self.changed:
            return name in self._cells

    def find_cell(self, name: str, is_outside: bool) -> Cell | None:
        """The cell of the last node appended under this name; None while an unknown name may still come. The lock is held.

        `is_outside`: the reader is not the program, which may append the name later.
        Raises UnknownVariable and StreamFailed.
        """
        self.raise_if_failed()
        cell = self._cells.get(name)
        if cell is None and (self._is_finished or not is_outside):
            raise UnknownVariable(name, tuple(self._cells))
        return cell

    def read(self, name: str, *, is_outside: bool = False, timeout: float | None = None) -> Cell:
        """The finished cell of a variable, waiting for it for at most `timeout` seconds.

        Raises UnknownVariable at once when no appended node sets the name, StreamFailed, TimeoutError, and ProgramError in a thread that
        the stream itself waits for.
        """
        found: list[Cell] = []

        def is_there() -> bool:
            cell = found[0] if found else self.find_cell(name, is_outside)
            if cell is not None:
                if not found:
                    found.append(cell)
                self.raise_if_failed()
            is_done = cell is not None and cell.is_done
            if not is_done:
                self.refuse_own_wait(is_outside=cell is None)
            return is_done

        with self.changed:
            if not self.changed.wait_for(is_there, timeout):
                raise TimeoutError(f"Timeout while waiting for event '{name}'")
        return found[0]

    def sync(self, *, is_outside: bool = False) -> None:
        """Wait until every appended node has run (seen from outside: until the program has ended).

        Raises StreamFailed, and ProgramError in a thread that the stream itself waits for.
        """
        with self.changed:
            self._wait_drained(is_outside)
            self.raise_if_failed()

    def text(self, *, is_outside: bool = False) -> str:
        """The whole text, after `sync`."""
        self.sync(is_outside=is_outside)
        return self._transcript.text

    def text_so_far(self) -> str:
        """The text at this moment; does not wait."""
        return self._transcript.text

    def messages(self, *, is_outside: bool = False) -> list[dict[str, Any]]:
        """The closed turns, after `sync`."""
        self.sync(is_outside=is_outside)
        return [dict(message) for message in self._transcript.messages]

    def error(self, *, is_outside: bool = False) -> BaseException | None:
        """The first error as it was raised, or None; waits as `sync` does. Raises ProgramError where `sync` does."""
        with self.changed:
            self._wait_drained(is_outside)
            self._is_error_seen = True
            return self._error

    def is_drained(self, is_outside: bool) -> bool:
        """Whether nothing is left to wait for. The lock is held."""
        return self._error is not None or self._is_finished or not (self._queue.is_busy or is_outside)

    def _wait_drained(self, is_outside: bool) -> None:
        """Wait until nothing is left to wait for, and keep the lock, which is held."""
        while not self.is_drained(is_outside):
            self.refuse_own_wait(is_outside)
            self.changed.wait()

    @contextmanager
    def running_program(self) -> Iterator[None]:
        """This thread runs the program's function inside the block, while others read."""
        self._program_thread_id = threading.get_ident()
        try:
            yield
        finally:
            self._program_thread_id = None

    def refuse_own_wait(self, is_outside: bool) -> None:
        """Raise ProgramError when what this thread is about to wait for is waiting for this thread. The lock is held.

        That is so in a backend or observer called by the stream; and, for the end of a program, in its function and in its forks.
        """
        this_thread_id = threading.get_ident()
        blocked: list[Stream] = [self]
        while blocked:
            stream = blocked.pop()
            is_mine = stream._queue.thread_id == this_thread_id or (is_outside and stream._program_thread_id == this_thread_id)
            if is_mine:
                where = "" if stream is self else f" (fork {stream.stream_id} does)"
                raise ProgramError(f"a stream cannot wait for itself: stream {self.stream_id} waits for this thread{where}")
            if is_outside or stream._is_ending:
                blocked += tuple(stream._open_children)

    def raise_if_failed(self) -> None:
        """Raise StreamFailed from the first error, if there is one."""
        if self._error is not None:
            self._is_error_seen = True
            what = f"{type(self._error).__name__}: {self._error}"
            raise StreamFailed(f"stream {self.stream_id} failed at {self._failed_at}: {what}") from self._error

    def fork(self, size: int, position_ids_offset: list[int] | None = None, role: str = "fork") -> list[Stream]:
        """`size` copies of this state with its variables; with more than one the prefix is committed first (the frontend hint).

        Waits until this stream is drained. Raises InvalidParams for a bad size, StreamFailed.
        """
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise InvalidParams("size", size, "the number of forks must be an integer of at least 0")
        if size > 1:
            self.submit(CommitLazy())
        with self.changed:
            self._wait_drained(is_outside=False)
            self.raise_if_failed()
            if self._is_ending:
                raise ProgramError(f"stream {self.stream_id} cannot fork: it was joined or its program has ended")
            group_id = f"{self.stream_id}#{self._num_forks}" if size > 1 else self.group_id
            first, self._num_children, self._num_forks = self._num_children, self._num_children + size, self._num_forks + 1
            assert all(cell.is_done for cell in self._cells.values()), "no node is left to make a value"
            # Taken under the lock: another thread may append to this stream again as soon as it is free.
            snapshot = _Snapshot(self._transcript.copy(), dict(self._cells), self.prompt())
        children: list[Stream] = []
        try:
            for index in range(size):
                child_id = f"{self.stream_id}.{first + index}"
                children.append(Stream(self.context, child_id, parent=self, snapshot=snapshot, index=index, role=role, group_id=group_id))
        finally:
            self._adopt(children)
        for child in children:
            self.context.backend.fork_program(snapshot.prompt, child.prompt(), position_ids_offset)
        return children

    def _adopt(self, children: list[Stream]) -> None:
        """Answer for these children from now on. Raises as an append does when this stream has failed or ended in the meantime."""
        with self.changed:
            error = self._error
            if error is None and self._is_finished:
                error = ProgramError(f"stream {self.stream_id} ended while it was forked")
            if error is None:
                self._open_children.extend(children)
                return
        for child in children:
            child.abandon(error, "its parent")
        with self.changed:
            self.raise_if_failed()
        raise error

    def join(self, children: list[Stream]) -> None:
        """End the children, wait for them, and gather each name they have set as a list in their order.

        A child that lacks a name counts as None; meta info is gathered the same way. Raises StreamFailed for a failed child, and
        ProgramError in a thread that a child waits for.
        """
        for child in children:
            child.end()
        for child in children:
            child.wait_finished()
        with self.changed:
            self._open_children = [child for child in self._open_children if child not in children]
        for child in children:
            with child.changed:
                child.raise_if_failed()
        names: dict[str, None] = {}
        for child in children:
            names.update(dict.fromkeys(name for name, cell in child._cells.items() if child._inherited.get(name) is not cell))
        for name in names:
            cells = [child._cells.get(name) for child in children]
            values = [cell.value if cell else None for cell in cells]
            self.set_var(name, values, [cell.meta_info if cell else None for cell in cells])
        for child in children:
            self.emit(StreamJoined(child.stream_id, self.stream_id))

    def end(self) -> None:
        """Nothing more will be appended: the stream closes once its queue is empty. Raises nothing; may be called twice."""
        with self.changed:
            if self._is_ending:
                return
            self._is_ending = True
            is_mine = self._error is None and self._enqueue(_End())
            orphans = [] if self._error is None else self._open_children
            self._notify()
        for child in orphans:
            child.abandon(self._error, "its parent")
        if is_mine:
            self._queue.advance()

    def abandon(self, error: BaseException | None, where: str) -> None:
        """The program is over early: keep its error, drop what is queued here and in the children, and theirs.

        Calls of the backend that are under way are told by `Prompt.is_abandoned`.
        """
        assert error is not None, "a stream is abandoned because of an error"
        left: list[tuple[Stream, str]] = [(self, where)]
        while left:  # no recursion: forks may be nested deeper than the stack
            stream, place = left.pop()
            stream._keep(error, place)
            with stream.changed:
                stream._is_ending = True
                left += [(child, "its parent") for child in stream._open_children]
                stream._open_children = []

    def wait_finished(self) -> None:
        """Wait until an ended stream has closed or failed. Raises ProgramError in a thread that the stream itself waits for."""
        with self.changed:
            self._wait_drained(is_outside=True)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change, from the thread that made it, with the lock held."""
        with self.changed:
            self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Stop calling it."""
        with self.changed:
            self._listeners.remove(listener)

    # What the interpreter calls.

    @property
    def is_failed(self) -> bool:
        """Whether an error is kept."""
        return self._error is not None

    def write(self, text: str, *, is_generated: bool = False, name: str | None = None) -> None:
        """Append to the prompt's text and tell who waits."""
        if not text:
            return
        with self.changed:
            self._transcript.text += text
            self._notify()
        self.emit(TextAppended(self.stream_id, text, is_generated, name))

    def add_piece(self, cell: Cell | None, text: str, meta_info: Any) -> None:
        """A part of a variable's text has come."""
        if cell is not None:
            with self.changed:
                cell.pieces.append((text, meta_info))
                self._notify()

    def set_value(self, cell: Cell | None, value: Any, meta_info: Any) -> None:
        """A variable has its value."""
        if cell is not None:
            with self.changed:
                cell.finish(value, meta_info)
                self._notify()
            self.emit(VariableSet(self.stream_id, cell.name, value))

    def wait_for(self, cell: Cell, source: object) -> Any:
        """The value of a cell of another stream; it was appended earlier, so the wait ends. Raises StreamFailed."""
        assert isinstance(source, Stream), "the source was checked when the node was appended"
        with source.changed:
            source.changed.wait_for(lambda: cell.is_done or source._error is not None)
            source.raise_if_failed()
        return cell.value

    def emit(self, event: Event) -> None:
        """Tell the observer; its errors are the program's."""
        if self.context.observer is not None:
            self.context.observer(event)

    # What the queue calls, and what it is given.

    def _enqueue(self, node: Node, cell: Cell | None = None) -> bool:
        """Queue a node and give its variable a cell; True when the caller must see to it that the queue advances. The lock is held."""
        if isinstance(node, Gen | Select | VarScopeEnd) and node.name is not None:
            self._cells[node.name] = cell = Cell(node.name)
        return self._queue.put(node, cell)

    def _source_cell(self, node: Node) -> Cell | None:
        """What a Variable reads, looked up when it is appended: a later node of the same name must not be waited for."""
        if not isinstance(node, Variable):
            return None
        if not isinstance(node.source, Stream):
            raise UnsupportedNode(repr(node), self.context.backend.name, "its source is not a running stream")
        with node.source.changed:
            return node.source.find_cell(node.name, is_outside=False)

    def is_instant(self, node: Node, cell: Cell | None) -> bool:
        """Whether a node waits for no one. The lock is held."""
        return not self._open_children if isinstance(node, _End) else is_instant(node, cell)

    def run(self, node: Node, cell: Cell | None) -> None:
        """Run one node, in its turn."""
        if isinstance(node, _End):
            self._finish()
        else:
            self._interpreter.run(node, cell)

    def _finish(self) -> None:
        """Close: children that were never joined end with their parent, and a failure that no one has looked at is the parent's."""
        for stream in self._descendants():
            stream.end()
        for child in self._open_children:
            child.wait_finished()
            with child.changed:
                error = None if child._is_error_seen else child._error
                child._is_error_seen = True
            if error is not None:
                self.fail(error, f"its fork {child.stream_id}, which was not joined")
                return
        if self.parent is None:
            self.context.backend.end_program(self.prompt())
            if self.context.verbosity >= 2:
                sys.stdout.write(self._transcript.text + "\n")
        self.emit(StreamClosed(self.stream_id, None))
        with self.changed:
            self._open_children = []
            self._is_finished = True
            self._notify()

    def _descendants(self) -> list[Stream]:
        """The children that were never joined, and theirs; the deepest first, so that no end waits for another."""
        found: list[Stream] = []
        left = list(self._open_children)
        while left:
            stream = left.pop()
            found.append(stream)
            left += tuple(stream._open_children)
        return found[::-1]

    def fail(self, error: BaseException, where: str) -> None:
        """Keep the first error and drop what is queued; later errors and those after the end change nothing."""
        self._keep(error, where)
        with self.changed:
            orphans = self._open_children if self._is_ending else []
        for child in orphans:
            child.abandon(error, "its parent")

    def _keep(self, error: BaseException, where: str) -> None:
        """`fail`, without a word to the children."""
        with self.changed:
            if self._error is not None or self._is_finished:
                return
            self._error, self._failed_at = error, where
            self._queue.drop()
            self._notify()
        try:
            self.emit(StreamClosed(self.stream_id, error))
        except Exception as second:
            error.add_note(f"the observer also failed: {type(second).__name__}: {second}")

    def _notify(self) -> None:
        self.changed.notify_all()
        for listener in self._listeners:
            listener()
