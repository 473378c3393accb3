"""Running nodes: one method a node, found by the node's class or its nearest ancestor; unknown ones are refused."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, nullcontext
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any, Protocol

from ramet.errors import UnsupportedNode
from ramet.lang.nodes import (
    Argument,
    CommitLazy,
    ConstantText,
    Gen,
    Image,
    Node,
    RoleBegin,
    RoleEnd,
    Select,
    Variable,
    VarScopeBegin,
    VarScopeEnd,
    Video,
)
from ramet.lang.observe import NodeFinished, NodeStarted
from ramet.lang.prompt import Prompt, Transcript, text_of
from ramet.lang.sampling import SglSamplingParams
from ramet.lang.variables import Cell

if TYPE_CHECKING:
    from ramet.lang.backends.base import BaseBackend

_INSTANT = (ConstantText, Argument, RoleBegin, RoleEnd, VarScopeBegin, VarScopeEnd)


class Owner(Protocol):
    """What the interpreter needs of the stream it works for."""

    @property
    def is_failed(self) -> bool:
        """Whether what is generated now is of no use any more."""

    def write(self, text: str, *, is_generated: bool = False, name: str | None = None) -> None:
        """Append to the prompt and tell who waits."""

    def add_piece(self, cell: Cell | None, text: str, meta_info: Any) -> None:
        """A part of a variable's text has come."""

    def set_value(self, cell: Cell | None, value: Any, meta_info: Any) -> None:
        """A variable has its value."""

    def wait_for(self, cell: Cell, source: object) -> Any:
        """The value of another node, waiting for it."""

    def emit(self, event: NodeStarted | NodeFinished) -> None:
        """Tell the observer."""


def is_instant(node: Node, cell: Cell | None) -> bool:
    """Whether a node runs without waiting for anyone, so that no thread is needed for it."""
    return isinstance(node, _INSTANT) or (isinstance(node, Variable) and cell is not None and cell.is_done)


class Interpreter:
    """Runs the nodes of one stream, in order, on one backend. Not thread-safe: its stream calls it from one thread at a time."""

    def __init__(
        self,
        backend: BaseBackend,
        params: SglSamplingParams,
        transcript: Transcript,
        owner: Owner,
        *,
        stream_id: str,
        group_id: str | None,
        is_streaming: bool,
    ) -> None:
        self.backend = backend
        self.params = params
        self.transcript = transcript
        self.owner = owner
        self.stream_id = stream_id
        self.group_id = group_id
        self.is_streaming = is_streaming

    def prompt(self, name: str | None = None) -> Prompt:
        """The state as a backend sees it."""
        state = self.transcript
        return Prompt(state.text, tuple(state.messages), state.role, name, self.stream_id, self.group_id, lambda: self.owner.is_failed)

    @singledispatchmethod
    def run(self, node: Node, cell: Cell | None) -> None:
        """Run one node; `cell` takes the value that the node makes (for a Variable: holds the value it reads).

        Raises UnsupportedNode for a node without a method, and whatever the backend raises.
        """
        raise UnsupportedNode(repr(node), self.backend.name, "it is not a node that a stream runs")

    @run.register(ConstantText)
    def _constant_text(self, node: ConstantText, cell: Cell | None) -> None:
        self.owner.write(node.value)

    @run.register(Argument)
    def _argument(self, node: Argument, cell: Cell | None) -> None:
        self.owner.write(str(node))

    @run.register(Gen)
    def _gen(self, node: Gen, cell: Cell | None) -> None:
        params = self.params.overridden_by(node.overrides()).with_stops(self.transcript.template.stop_str)
        prompt = self.prompt(node.name)
        self.owner.emit(NodeStarted(self.stream_id, repr(node), node.name))
        value: str | list[str]
        meta: dict[str, Any] | list[dict[str, Any]]
        if self.is_streaming and params.n == 1:
            value, meta = self._stream_gen(prompt, params, cell)
        else:
            value, meta = self.backend.generate(prompt, params)
            if self.owner.is_failed:
                return  # given up, perhaps halfway
            assert isinstance(value, str) == (params.n == 1), f"{self.backend.name} must give {params.n} texts"
            self.owner.write(text_of(value), is_generated=True, name=node.name)
        if self.owner.is_failed:
            return
        first_meta = meta[0] if isinstance(meta, list) else meta
        self.owner.emit(NodeFinished(self.stream_id, repr(node), node.name, first_meta))
        self.owner.set_value(cell, value, meta)

    def _stream_gen(self, prompt: Prompt, params: SglSamplingParams, cell: Cell | None) -> tuple[str, dict[str, Any]]:
        parts: list[str] = []
        meta: dict[str, Any] = {}
        pieces = self.backend.generate_stream(prompt, params)
        with closing(pieces) if isinstance(pieces, Generator) else nullcontext():  # closed early, it cancels the call
            for delta, meta in pieces:
                if self.owner.is_failed:
                    break
                parts.append(delta)
                self.owner.write(delta, is_generated=True, name=prompt.name)
                self.owner.add_piece(cell, delta, meta)
        return "".join(parts), meta

    @run.register(Select)
    def _select(self, node: Select, cell: Cell | None) -> None:
        self.owner.emit(NodeStarted(self.stream_id, repr(node), node.name))
        decision = self.backend.select(self.prompt(node.name), node.choices, node.temperature, node.choices_method)
        assert decision.decision in node.choices, f"{self.backend.name} chose {decision.decision!r}, which is no option of {node!r}"
        self.owner.write(decision.decision, is_generated=True, name=node.name)
        self.owner.emit(NodeFinished(self.stream_id, repr(node), node.name, decision.meta_info))
        self.owner.set_value(cell, decision.decision, decision.meta_info)

    @run.register(Image)
    @run.register(Video)
    def _image(self, node: Image | Video, cell: Cell | None) -> None:
        self.owner.write(self.backend.fill_image(self.prompt(), node))

    @run.register(RoleBegin)
    def _role_begin(self, node: RoleBegin, cell: Cell | None) -> None:
        state = self.transcript
        if state.needs_default_system(node.role):
            for part in (RoleBegin("system"), ConstantText(state.template.default_system_prompt or ""), RoleEnd("system")):
                self.run(part, None)
        self.owner.write(state.prefix(node.role))
        state.begin_role(node.role)

    @run.register(RoleEnd)
    def _role_end(self, node: RoleEnd, cell: Cell | None) -> None:
        suffix = self.transcript.suffix(node.role)
        self.transcript.end_role()
        self.owner.write(suffix)

    @run.register(VarScopeBegin)
    def _var_scope_begin(self, node: VarScopeBegin, cell: Cell | None) -> None:
        self.transcript.begin_scope(node.name)

    @run.register(VarScopeEnd)
    def _var_scope_end(self, node: VarScopeEnd, cell: Cell | None) -> None:
        self.owner.set_value(cell, self.transcript.end_scope(node.name), None)

    @run.register(Variable)
    def _variable(self, node: Variable, cell: Cell | None) -> None:
        assert cell is not None, "the stream looks the variable up when the node is appended"
        self.owner.write(text_of(self.owner.wait_for(cell, node.source)))

    @run.register(CommitLazy)
    def _commit_lazy(self, node: CommitLazy, cell: Cell | None) -> None:
        if not self.transcript.text:
            return  # nothing to compute: children of an empty state share nothing
        self.owner.emit(NodeStarted(self.stream_id, repr(node), None))
        self.backend.commit_lazy_operations(self.prompt())
        self.owner.emit(NodeFinished(self.stream_id, repr(node), None, None))
