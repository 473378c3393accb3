"""Showing a running program: a tree that grows in a terminal, or a line for every event."""

from __future__ import annotations

import threading
from itertools import groupby
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ramet.cli.counts import RunCounts
from ramet.cli.forest import Branch, Forest, Piece
from ramet.lang.observe import Event, NodeFinished, NodeStarted, StreamClosed, StreamJoined, StreamOpened, TextAppended, VariableSet

MAX_CONSTANT_LEN = 320  # characters of a constant text that are shown
CONSTANT, GENERATED, NAME, FAILED = "dim", "bold green", "cyan", "bold red"
_PICTURES = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


class View:
    """Something that is told of every event; this one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        return None

    def __call__(self, event: Event) -> None:
        """Take one event in; called from many threads, after the forest has taken it."""

    def refresh(self) -> None:
        """Called some ten times a second by the thread that waits."""


class TreeView(View):
    """The trees of all programs, redrawn in place; a program that has ended is printed once, in full, above those that run."""

    def __init__(self, console: Console, forest: Forest, title: str) -> None:
        self._console = console
        self._forest = forest
        self._title = title
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._printed: set[str] = set()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.refresh()
        rest = self._forest.snapshot(lambda roots: [tree(root, self._title) for root in roots if root.label not in self._printed])
        self._live.stop()
        for drawn in rest:  # programs that an interrupt cut short
            self._console.print(drawn)

    def refresh(self) -> None:
        """Draw what has changed."""

        def draw(roots: list[Branch]) -> tuple[list[RenderableType], list[RenderableType]]:
            ended = [root for root in roots if not root.is_open and root.label not in self._printed]
            self._printed.update(root.label for root in ended)
            running = [root for root in roots if root.is_open]
            return [tree(root, self._title) for root in ended], [tree(root, self._title) for root in running]

        ended, running = self._forest.snapshot(draw)
        for drawn in ended:
            self._live.console.print(drawn)
        self._live.update(_Tail(Group(*running)), refresh=True)


class LineView(View):
    """One line for every event, for logs: constants and generated text as they are complete."""

    def __init__(self, console: Console, forest: Forest) -> None:
        self._console = console
        self._forest = forest
        self._lock = threading.Lock()
        self._generated: dict[str, list[str]] = {}  # stream id to what its open call has given so far
        self._finished: dict[str, str | None] = {}  # stream id to the variable whose call has just ended

    def __call__(self, event: Event) -> None:
        """Print the line of an event, if it has one."""
        with self._lock:
            line = self._line(event)
            if line is not None:
                label = self._forest.branch(event.stream_id).label
                self._console.print(Text(f"{label:<6} {line}"), soft_wrap=True)

    def _line(self, event: Event) -> str | None:
        if isinstance(event, TextAppended):
            if not event.is_generated:
                return f"+ {shortened(event.text)!r}"
            self._generated.setdefault(event.stream_id, []).append(event.text)
        elif isinstance(event, NodeFinished):
            self._finished[event.stream_id] = event.name
            text = "".join(self._generated.pop(event.stream_id, ()))
            return f"{event.label}{_told(event)}" + (f" -> {text!r}" if text else "")
        elif isinstance(event, VariableSet):
            # The line of the call has shown the value already.
            is_shown = self._finished.pop(event.stream_id, None) == event.name
            return None if is_shown else f"{event.name} = {event.value!r}"
        elif isinstance(event, StreamOpened):
            parent = self._forest.branch(event.stream_id).parent
            return f"{event.role} starts" if parent is None else f"{event.role} of {parent.label}"
        elif isinstance(event, StreamJoined):
            return f"joined into {self._forest.branch(event.parent_id).label}"
        elif isinstance(event, StreamClosed):
            return "ends" if event.error is None else f"failed: {type(event.error).__name__}: {visible(str(event.error))}"
        else:
            assert isinstance(event, NodeStarted), f"unknown event {event!r}"
        return None


class _Tail:
    """As many of the last lines as the terminal has room for: what grows stays in sight."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._inner, options.update(height=None), pad=False)
        for line in lines[-max(1, console.size.height - 2) :]:
            yield from line
            yield Segment.line()


def tree(branch: Branch, title: str = "") -> Tree:
    """A branch and all that hangs on it: forks hang below the text that they share."""
    drawn = Tree(_header(branch, title), guide_style="dim")
    _grow(drawn, branch)
    return drawn


def counts_table(counts: RunCounts, width: int) -> Table:
    """The sums of a run: one column each, or one line each where `width` characters are too few for that."""
    cells = counts.cells()
    is_wide = sum(max(len(name), len(value)) + 2 for name, value in cells.items()) <= width
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", show_header=is_wide)
    if is_wide:
        for name in cells:
            table.add_column(name, justify="right", no_wrap=True)
        table.add_row(*cells.values())
    else:
        table.add_column(style="bold", no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        for name, value in cells.items():
            table.add_row(name, value)
    return table


def visible(text: str) -> str:
    """The text with control characters as pictures of themselves: what a model writes must not steer the terminal."""
    return text.translate(_PICTURES)


def shortened(text: str) -> str:
    """The text, or its two ends with the number of characters between them."""
    if len(text) <= MAX_CONSTANT_LEN:
        return text
    end_len = MAX_CONSTANT_LEN // 2
    return f"{text[:end_len]} [... {len(text) - 2 * end_len} characters ...] {text[-end_len:]}"


def _grow(node: Tree, branch: Branch) -> None:
    hold = node
    for is_text, items in groupby(branch.items, key=lambda item: isinstance(item, Piece)):
        if is_text:
            text = Text.assemble(*(part for item in items if isinstance(item, Piece) for part in _parts(item)))
            text.rstrip()  # a line break at either end would be an empty line of the tree
            hold = node.add(text[len(text.plain) - len(text.plain.lstrip("\n")) :])
        else:
            for item in items:
                assert isinstance(item, Branch), "an item is a piece or a branch"
                _grow(hold.add(_header(item, "")), item)


def _header(branch: Branch, title: str) -> Text:
    header = Text(f"{branch.role} {branch.label}", style=NAME)
    if title:
        header.append(f" {title}", style="bold")
    if branch.error is not None:
        header.append(f"  failed: {type(branch.error).__name__}: {visible(str(branch.error))}", style=FAILED)
    elif branch.is_waiting:
        header.append("  ...", style="yellow")
    return header


def _parts(piece: Piece) -> list[tuple[str, str]]:
    if not piece.is_generated:
        return [(visible(shortened(piece.text)), CONSTANT)]
    named = [] if piece.name is None else [(f"[{visible(piece.name)}] ", NAME)]
    return [*named, (visible(piece.text), GENERATED)]


def _told(event: NodeFinished) -> str:
    """What the backend says about the tokens of a call."""
    meta = event.meta_info or {}
    names = {"prompt_tokens": "prompt", "cached_tokens": "reused", "completion_tokens": "generated"}
    told = [f"{meta[key]} {word}" for key, word in names.items() if meta.get(key) is not None]
    return f" [{', '.join(told)}]" if told else ""
