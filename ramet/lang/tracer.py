"""The constant prefix of a program, found by running its function on unknown arguments until something is not constant."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

from ramet.lang.nodes import Argument, ConstantText, ExprList, Node, RoleBegin, RoleEnd, VarScopeBegin, VarScopeEnd
from ramet.lang.sampling import SglSamplingParams
from ramet.lang.state import ProgramState
from ramet.lang.stream import ProgramContext, Stream

if TYPE_CHECKING:
    from ramet.lang.backends.base import BaseBackend
    from ramet.lang.run import SglFunction

_CONSTANT = (ConstantText, RoleBegin, RoleEnd, VarScopeBegin, VarScopeEnd)


class _NotConstant(BaseException):
    """What follows depends on arguments or on the model. Not an Exception, so that the traced function does not catch it."""


_is_tracing: ContextVar[bool] = ContextVar("ramet_is_tracing", default=False)


def stop_if_traced() -> None:
    """End the trace when a traced function starts a program of its own: nothing may run on placeholders."""
    if _is_tracing.get():
        raise _NotConstant


class _PrefixStream(Stream):
    """A stream that takes constants only."""

    def submit(self, node: Node) -> None:
        for item in node if isinstance(node, ExprList) else (node,):
            if isinstance(item, Argument) and item.value is not None:
                item = ConstantText(str(item))
            if not isinstance(item, _CONSTANT):
                raise _NotConstant
            super().submit(item)

    def fork(self, size: int, position_ids_offset: list[int] | None = None, role: str = "fork") -> NoReturn:
        raise _NotConstant


def trace_prefix(function: SglFunction, backend: BaseBackend, bound: Mapping[str, Any]) -> str:
    """The text that every run begins with, whatever its arguments; bound arguments count as constants.

    The function is called once with placeholders. Any error it raises on them ends the trace; an error that is its own comes again in
    the real run.
    """
    context = ProgramContext(backend, SglSamplingParams(), backend.get_chat_template(), use_thread=False)
    stream = _PrefixStream(context, "trace")
    arguments = {**{name: Argument(name) for name in function.arg_names}, **bound}
    token = _is_tracing.set(True)
    try:
        with suppress(_NotConstant, Exception):
            function.func(ProgramState(stream), **arguments)
    finally:
        _is_tracing.reset(token)
    return stream.text_so_far()
