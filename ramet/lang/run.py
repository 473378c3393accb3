"""A program: a function of a state, and the ways to run it."""

from __future__ import annotations

import contextvars
import inspect
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ramet.errors import InvalidParams, ProgramError, UnsupportedNode
from ramet.lang.batch import run_rows
from ramet.lang.connect import need_backend
from ramet.lang.observe import current_observer
from ramet.lang.sampling import SglSamplingParams
from ramet.lang.settings import global_config
from ramet.lang.state import ProgramState
from ramet.lang.stream import ProgramContext, Stream
from ramet.lang.tracer import stop_if_traced, trace_prefix

if TYPE_CHECKING:
    from ramet.lang.backends.base import BaseBackend

MIN_CACHED_PREFIX_LEN = 64  # characters; a shorter constant prefix is not worth a call of its own
MAX_NUM_ROWS_AHEAD = 200  # rows of a `generator_style` batch that may run before they are asked for


class SglFunction:
    """A program made with `@function`: `run` it once, `run_batch` it over many rows, `bind` arguments.

    Raises InvalidParams when the function's first parameter is not named `s`, and for a coroutine or generator function.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        num_api_spec_tokens: int | None = None,
        bind_arguments: Mapping[str, Any] | None = None,
    ) -> None:
        _check_is_plain(func)
        parameters = list(inspect.signature(func).parameters.values())
        if not parameters or parameters[0].name != "s":
            raise InvalidParams("function", func, 'The first argument must be "s"')
        named = [p for p in parameters[1:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        self.func = func
        self.num_api_spec_tokens = num_api_spec_tokens
        self.bind_arguments = dict(bind_arguments or {})
        self.arg_names = [p.name for p in named]
        self._num_required = sum(p.default is p.empty for p in named)
        self._takes_any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.__name__ = getattr(func, "__name__", "program")
        self.__doc__ = func.__doc__

    def bind(self, **kwargs: Any) -> SglFunction:
        """A copy with arguments fixed; they win over those given to `run`. Raises InvalidParams for an unknown name."""
        for name in kwargs:
            if name not in self.arg_names and not self._takes_any_name:
                raise InvalidParams(
                    name, kwargs[name], f"{self.__name__} has no such argument; it has {', '.join(self.arg_names) or 'none'}"
                )
        return SglFunction(self.func, self.num_api_spec_tokens, {**self.bind_arguments, **kwargs})

    def run(
        self,
        *args: Any,
        max_new_tokens: int = 128,
        n: int = 1,
        stop: str | list[str] | None = None,
        stop_token_ids: list[int] | None = None,
        stop_regex: str | list[str] | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = -1,
        min_p: float = 0.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        ignore_eos: bool = False,
        return_logprob: bool | None = None,
        logprob_start_len: int | None = None,
        top_logprobs_num: int | None = None,
        return_text_in_logprobs: bool | None = None,
        stream: bool = False,
        backend: Any = None,
        use_thread: bool = True,
        **kwargs: Any,
    ) -> ProgramState:
        """Run the program and give its state; what the program appended last may still be running, and reading waits for it.

        The sampling values hold for every `gen` that does not give its own. With `stream` the program runs in its own thread and the
        state is given at once. `use_thread=False` runs every node where it is appended. What the function raises is raised here (with
        `stream`: by the reads of the state). Raises InvalidParams without a backend or for a value out of range.
        """
        params = SglSamplingParams.of(locals())
        return self._run(need_backend(backend), params, args, kwargs, is_streaming=stream, use_thread=use_thread)

    def run_batch(
        self,
        batch_kwargs: list[Any] | tuple[Any, ...],
        *,
        max_new_tokens: int = 128,
        n: int = 1,
        stop: str | list[str] | None = None,
        stop_token_ids: list[int] | None = None,
        stop_regex: str | list[str] | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = -1,
        min_p: float = 0.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        ignore_eos: bool = False,
        return_logprob: bool | None = None,
        logprob_start_len: int | None = None,
        top_logprobs_num: int | None = None,
        return_text_in_logprobs: bool | None = None,
        backend: Any = None,
        num_threads: int | str = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        return_errors: bool = False,
    ) -> Any:
        """Run the program once a row, in parallel; gives the finished states in the order of the rows.

        A row is a dict of arguments, or a tuple or list of them in the function's order. `num_threads="auto"` is
        max(96, 16 x CPUs), at most one a row; 1 runs the rows one after the other in this thread. `generator_style` gives an iterator
        that yields the states in order. With more than one row a constant prefix of more than 64 characters is cached first.

        The first row that fails ends the batch: rows that run are waited for, others do not start, and its error is raised. With
        `return_errors` every row runs, and a failed one gives its error instead of a state.
        """
        params = SglSamplingParams.of(locals())
        stop_if_traced()
        chosen = need_backend(backend)
        if not isinstance(batch_kwargs, list | tuple):
            raise InvalidParams("batch_kwargs", batch_kwargs, "must be a list with a row of arguments for each run")
        rows = [self._row(row) for row in batch_kwargs]
        if len(rows) > 1 and global_config.enable_precache_with_tracing:
            self._cache_prefix(chosen)

        def run_row(row: Mapping[str, Any]) -> ProgramState:
            state = self._run(chosen, params, (), row)
            state.sync()
            return state

        results: Iterator[ProgramState | Exception] = run_rows(
            run_row,
            rows,
            num_threads=num_threads,
            max_num_ahead=MAX_NUM_ROWS_AHEAD if generator_style else len(rows),
            has_progress_bar=progress_bar,
            return_errors=return_errors,
        )
        return results if generator_style else list(results)

    def cache(self, backend: Any = None) -> None:
        """Compute the constant prefix now, if it has more than 64 characters."""
        self._cache_prefix(need_backend(backend))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`run`; with a state as first argument, go on in that state and give what the function returns."""
        if args and isinstance(args[0], ProgramState):
            return self.func(*args, **{**kwargs, **self.bind_arguments})
        return self.run(*args, **kwargs)

    def _cache_prefix(self, backend: BaseBackend) -> None:
        prefix = trace_prefix(self, backend, self.bind_arguments)
        if len(prefix) > MIN_CACHED_PREFIX_LEN:
            backend.cache_prefix(prefix)

    def _row(self, row: object) -> Mapping[str, Any]:
        if isinstance(row, Mapping):
            return row
        if not isinstance(row, list | tuple):
            raise InvalidParams("batch_kwargs", row, "a row must be a dict, a tuple or a list of arguments")
        if not self._num_required <= len(row) <= len(self.arg_names):
            raise InvalidParams("batch_kwargs", row, "Given arguments mismatch the SGL function signature")
        return dict(zip(self.arg_names, row, strict=False))

    def _run(
        self,
        backend: BaseBackend,
        params: SglSamplingParams,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        is_streaming: bool = False,
        use_thread: bool = True,
    ) -> ProgramState:
        stop_if_traced()
        if self.num_api_spec_tokens is not None:
            label = f"function(num_api_spec_tokens={self.num_api_spec_tokens})"
            raise UnsupportedNode(label, backend.name, "speculation is for chat APIs; leave num_api_spec_tokens out")
        context = ProgramContext(
            backend, params, backend.get_chat_template(), current_observer(), is_streaming, use_thread, global_config.verbosity
        )
        stream = Stream(context, uuid.uuid4().hex)
        state = ProgramState(stream, is_outside=is_streaming)
        arguments = {**kwargs, **self.bind_arguments}

        def body() -> None:
            try:
                backend.begin_program(stream.prompt())
                state.ret_value = self.func(ProgramState(stream) if is_streaming else state, *args, **arguments)
                if inspect.iscoroutine(state.ret_value):
                    state.ret_value.close()
                    raise ProgramError(f"{self.__name__} returned a coroutine, which no one runs; {_PLAIN}")
            except BaseException as error:
                stream.abandon(error, f"the function {self.__name__}")
                if not is_streaming:
                    raise
            else:
                stream.end()

        if is_streaming:

            def body_apart() -> None:
                with stream.running_program():
                    body()

            run = contextvars.copy_context().run
            threading.Thread(target=run, args=(body_apart,), name=f"ramet-program-{self.__name__}", daemon=True).start()
        else:
            body()
        return state


_PLAIN = "write a program as a plain function: appending does not block, and reads wait"


def _check_is_plain(func: Callable[..., Any]) -> None:
    """Raise InvalidParams for a function whose body does not run when it is called."""
    kinds: dict[str, Callable[[Any], bool]] = {
        "a coroutine function (async def)": inspect.iscoroutinefunction,
        "an async generator function": inspect.isasyncgenfunction,
        "a generator function (yield)": inspect.isgeneratorfunction,
    }
    call = getattr(func, "__call__", None)  # noqa: B004  # of an object that is called like a function
    for kind, is_kind in kinds.items():
        if is_kind(func) or is_kind(call):
            raise InvalidParams("function", func, f"is {kind}, whose body would never run; {_PLAIN}")
