"""What a program holds in its hands: `s`, and the copies that a fork gives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ramet.errors import InvalidParams, ProgramError
from ramet.lang.nodes import ConstantText, Node, RoleBegin, RoleEnd, VarScopeBegin, VarScopeEnd, as_node
from ramet.lang.reading import TextReader, VariableReader, read_pieces, read_pieces_async
from ramet.lang.stream import Stream


class ProgramState:
    """One prompt that grows: append with `+=`, read a variable with `s[name]`, branch with `fork`.

    Appending never waits for the model; reading waits for what is read. When something in the stream fails, every later append and read
    raises StreamFailed with the original error as its cause; `error()` gives the original. What a stream itself waits for, such as its
    backend or observer, cannot wait for the stream: such a read raises ProgramError. `ret_value` is what the program's function returned,
    once it has.
    """

    ret_value: Any

    def __init__(self, stream: Stream, *, is_outside: bool = False) -> None:
        self.stream_executor = stream
        self._is_outside = is_outside  # the reader of a streaming program: what is not there yet may still come

    def __iadd__(self, other: Any) -> ProgramState:
        if isinstance(other, ProgramState):
            raise InvalidParams("appended", other, "a state cannot be appended; append its text() or one of its variables")
        self.stream_executor.submit(as_node(other, "appended"))
        return self

    def system(self, expr: str | Node | None = None) -> Any:
        """Append a system turn; without `expr` a context manager whose body is the turn."""
        return self._role("system", expr)

    def user(self, expr: str | Node | None = None) -> Any:
        """Append a user turn; without `expr` a context manager whose body is the turn."""
        return self._role("user", expr)

    def assistant(self, expr: str | Node | None = None) -> Any:
        """Append an assistant turn; without `expr` a context manager whose body is the turn."""
        return self._role("assistant", expr)

    def _role(self, role: str, expr: str | Node | None) -> Any:
        if expr is None:
            return self._between(RoleBegin(role), RoleEnd(role))
        node = as_node(expr, role)
        for part in (RoleBegin(role), node, RoleEnd(role)):
            self.stream_executor.submit(part)
        return None

    def var_scope(self, name: str) -> AbstractContextManager[None]:
        """A context manager; all text appended in it becomes the variable `name`."""
        return self._between(VarScopeBegin(name), VarScopeEnd(name))

    @contextmanager
    def _between(self, first: Node, last: Node) -> Iterator[None]:
        self.stream_executor.submit(first)
        yield
        self.stream_executor.submit(last)

    def fork(self, size: int = 1, position_ids_offset: list[int] | None = None) -> ProgramStateGroup:
        """`size` parallel copies of this state; waits until what was appended has run.

        Raises InvalidParams for a bad size and UnsupportedNode when the backend cannot shift positions.
        """
        return ProgramStateGroup([ProgramState(child) for child in self.stream_executor.fork(size, position_ids_offset)], self)

    @contextmanager
    def copy(self, position_ids_offset: list[int] | None = None) -> Iterator[ProgramState]:
        """One copy, joined at the end of the block: this state's text stays, what the copy set becomes lists of one."""
        children = self.stream_executor.fork(1, position_ids_offset, role="copy")
        yield ProgramState(children[0])
        self.stream_executor.join(children)

    def text(self) -> str:
        """The whole text, once everything appended has run."""
        return self.stream_executor.text(is_outside=self._is_outside)

    def messages(self) -> list[dict[str, Any]]:
        """The closed turns as `{"role", "content"}`, once everything appended has run."""
        return self.stream_executor.messages(is_outside=self._is_outside)

    def sync(self) -> None:
        """Wait until everything appended has run."""
        self.stream_executor.sync(is_outside=self._is_outside)

    def error(self) -> BaseException | None:
        """The first error of this stream as it was raised, or None, once everything appended has run; does not raise it."""
        return self.stream_executor.error(is_outside=self._is_outside)

    def text_iter(self, var_name: str | None = None) -> Iterator[str]:
        """Yield text as it comes: of the program, or of one variable. Without streaming the text comes in one piece.

        Raises UnknownVariable for a name that the program has not set when it ends, StreamFailed.
        """
        for text, _ in read_pieces(self.stream_executor, self._reader(var_name)):
            if text:
                yield text

    async def text_async_iter(self, var_name: str | None = None, return_meta_data: bool = False) -> AsyncIterator[Any]:
        """`text_iter` for asyncio; with `return_meta_data` yields (text, meta info) of a variable.

        Raises InvalidParams for `return_meta_data` without a name: the whole text has no meta info.
        """
        if return_meta_data and var_name is None:
            raise InvalidParams("return_meta_data", return_meta_data, "only a variable has meta info: give var_name")
        async for text, meta_info in read_pieces_async(self.stream_executor, self._reader(var_name)):
            if return_meta_data:
                yield text, meta_info
            elif text:
                yield text

    def _reader(self, var_name: str | None) -> TextReader | VariableReader:
        if var_name is not None:
            return VariableReader(self.stream_executor, var_name, self._is_outside)
        return TextReader(self.stream_executor, self._is_outside)

    def get_var(self, name: str) -> Any:
        """The value of the last generation appended under this name, waiting for it. Raises UnknownVariable (a KeyError)."""
        return self.stream_executor.read(name, is_outside=self._is_outside).value

    def set_var(self, name: str, value: Any) -> None:
        """Give a variable its value; the text does not change."""
        self.stream_executor.set_var(name, value)

    def get_meta_info(self, name: str, timeout: float | None = None) -> Any:
        """What the backend tells about a variable (a list after `n` > 1 or a join; None for one that no call made).

        Waits for at most `timeout` seconds. Raises UnknownVariable and TimeoutError.
        """
        return self.stream_executor.read(name, is_outside=self._is_outside, timeout=timeout).meta_info

    def __getitem__(self, name: str) -> Any:
        return self.get_var(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.set_var(name, value)

    def __contains__(self, name: str) -> bool:
        """Whether the name is set, or something appended will set it; does not wait."""
        return self.stream_executor.has_var(name)

    def __repr__(self) -> str:
        return f"ProgramState({self.stream_executor.stream_id}, text={self.stream_executor.text_so_far()!r})"


class ProgramStateGroup:
    """The copies that one fork gave, in order."""

    def __init__(self, states: list[ProgramState], parent: ProgramState) -> None:
        self.states = states
        self.parent = parent

    def join(self, mode: str = "gather_variable") -> None:
        """End the copies and bring what they made into the parent.

        `gather_variable`: each name they set becomes a list in the parent, one value a copy, None for a copy that lacks it; meta info
        likewise. `concate_and_append`: what each copy appended is appended to the parent, one after the other.

        Raises StreamFailed when a copy has failed and InvalidParams for another mode.
        """
        if mode not in ("gather_variable", "concate_and_append"):
            raise InvalidParams("mode", mode, "Invalid join mode: use gather_variable or concate_and_append")
        children = [state.stream_executor for state in self.states]
        self.parent.stream_executor.join(children)
        if mode == "concate_and_append":
            for child in children:
                self.parent.stream_executor.submit(ConstantText(child.text()[child.fork_position :]))

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, index: int) -> ProgramState:
        return self.states[index]

    def __setitem__(self, index: int, state: ProgramState) -> None:
        if state is not self.states[index]:  # `group[i] += x` puts the same state back
            raise ProgramError("a copy cannot be replaced by another state; append to it")

    def __iter__(self) -> Iterator[ProgramState]:
        return iter(self.states)

    def __iadd__(self, other: Node | list[Any] | tuple[Any, ...] | Callable[[int], Any]) -> ProgramStateGroup:
        """A node goes to every copy, `f(i)` to copy i, the entries of a list or tuple to the copies one by one."""
        if isinstance(other, Node):
            parts: list[Any] = [other] * len(self)
        elif isinstance(other, list | tuple):
            if len(other) != len(self):
                raise InvalidParams("appended", other, f"has {len(other)} entries for {len(self)} copies")
            parts = list(other)
        elif callable(other):
            parts = [other(index) for index in range(len(self))]
        else:
            raise InvalidParams("appended", other, "Invalid value: give a node, a list with an entry a copy, or a function of the index")
        for state, part in zip(self.states, parts, strict=True):
            state += part
        return self
