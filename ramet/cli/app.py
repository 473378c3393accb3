"""The command `ramet`: its commands over any way of starting an engine, and how their failures are told."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import IO, Annotated, Any, cast

import typer
from rich.console import Console
from rich.text import Text

from ramet.cli.check_options import CheckKind, Whitespace, constraint_kind, read_text
from ramet.cli.flags import engine_flags, run_flags, sampling_flags, with_flags
from ramet.cli.generate import generate_text
from ramet.cli.output import Output, OutputLost
from ramet.cli.program import ProgramFailed
from ramet.cli.run import StartEngine, run_program
from ramet.errors import EngineError, InvalidParams, RametError

FAILED, WRONG_USE, INTERRUPTED, PIPE_CLOSED = 1, 2, 130, 141


class Told(typer.Exit):
    """An exit whose reason has been told, or needs no word."""


def import_engine() -> None:
    """Import all that an engine of this process needs, so that no file beside a program can stand in for a part of it."""
    names = ("ramet.engine.offline", "ramet.engine.launch", "gguf", "huggingface_hub")  # the last two would be imported late
    with _interrupts_held():
        for name in names:
            importlib.import_module(name)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """An interrupt comes when the block is over: raised inside the native code of an import, it would end the process with a dump."""
    seen: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()  # others get no signals, and may not ask for them
    if is_main:
        signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)
    if seen:
        raise KeyboardInterrupt


def start_engine(options: Mapping[str, Any]) -> Any:
    """An engine in this process; imported now, so that `--help` needs no torch."""
    import_engine()
    from ramet.engine.offline import Engine

    return Engine(**options)


def build_app(start: StartEngine | None = None) -> typer.Typer:
    """The command line over any way of starting an engine; tests bring their own."""
    start, prepare = (start_engine, import_engine) if start is None else (start, _nothing)
    app = typer.Typer(name="ramet", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

    @app.callback()
    def root(
        version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")] = False,
    ) -> None:
        """Run language-model programs on a runtime that shares their common prefixes."""

    @app.command()
    @with_flags(options=engine_flags(), sampling=run_flags())
    def run(
        target: Annotated[str, typer.Argument(metavar="FILE.py[:function]", show_default=False)],
        args: Annotated[
            str | None,
            typer.Option(help="JSON object, list of objects (a run each) or @FILE.", show_default=False),
        ] = None,
        live: Annotated[bool, typer.Option("--live/--no-live", help="Draw the branches while they grow, in a terminal.")] = True,
        as_json: Annotated[bool, typer.Option("--json", help="Print variables, text and counts as JSON, and nothing else.")] = False,
        *,
        options: dict[str, Any],
        sampling: dict[str, Any],
    ) -> None:
        """Run a program and watch its branches. Without --args, the rows are the file's own SAMPLES or sample_rows()."""
        with _exit_codes():
            console = Console(file=cast(IO[str], Output(sys.stdout)))
            is_live = live and console.is_terminal and not as_json
            with redirect_stdout(sys.stderr) if as_json else nullcontext():  # what the program prints is not our report
                run_program(
                    start, target, args, options, sampling, console=console, is_live=is_live, is_json=as_json, before_import=prepare
                )

    @app.command()
    @with_flags(options=engine_flags(), sampling=sampling_flags())
    def generate(
        prompt: Annotated[str, typer.Option(help="The text to go on from; - reads it from standard input.", show_default=False)],
        *,
        options: dict[str, Any],
        sampling: dict[str, Any],
    ) -> None:
        """Continue a prompt; the text is written as it comes."""
        with _exit_codes():
            generate_text(start, _read_input("--prompt") if prompt == "-" else prompt, options, sampling, Output(sys.stdout))

    @app.command()
    def check(
        kind: Annotated[CheckKind, typer.Argument(show_default=False, help="What the constraint is.")],
        constraint: Annotated[
            str, typer.Argument(metavar="FILE", show_default=False, help="The file that holds it; - reads standard input. See --inline.")
        ],
        text: Annotated[list[str] | None, typer.Option(help="A text to check; may be given several times.", show_default=False)] = None,
        text_file: Annotated[
            list[str] | None,
            typer.Option(help="A file with a text to check, - for standard input; may be given several times.", show_default=False),
        ] = None,
        inline: Annotated[bool, typer.Option("--inline", help="FILE is the constraint itself.")] = False,
        whitespace: Annotated[
            Whitespace | None, typer.Option(help="How JSON is spaced under a schema; fixed unless given.", show_default=False)
        ] = None,
        tokenizer: Annotated[
            str | None,
            typer.Option(
                metavar="MODEL", help="Look at the tokens of this model too; a folder with tokenizer.json will do.", show_default=False
            ),
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON, and nothing else.")] = False,
    ) -> None:
        """Say whether texts are accepted, where they fail, how large the constraint is and what it forces.

        Exit codes: 0 all accepted, 1 some refused, 2 the constraint is invalid.
        """
        with _exit_codes():
            if [constraint if not inline else "", *(text_file or [])].count("-") > 1:
                raise InvalidParams("--text-file", "-", "standard input can be read only once")
            row = constraint_kind(kind, whitespace)
            source = constraint if inline else read_text("FILE", constraint, _read_input)
            texts = [*(text or []), *(read_text("--text-file", name, _read_input) for name in text_file or [])]
            with _interrupts_held():
                from ramet.cli.check import check_constraint
            out, err = Console(file=cast(IO[str], Output(sys.stdout))), Console(stderr=True)
            code = check_constraint(row, source, texts, tokenizer=tokenizer, out=out, err=err, is_json=as_json)
        if code:
            raise Told(code)

    return app


def _nothing() -> None:
    """What an engine of the test's own needs."""


def _read_input(option: str) -> str:
    """All of standard input, for an option. Raises InvalidParams when it is closed or no text."""
    if sys.stdin is None:
        raise InvalidParams(option, "-", "standard input is closed")
    try:
        return sys.stdin.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidParams(option, "-", f"standard input is no text ({error})") from error


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from ramet import __version__

        typer.echo(f"ramet {__version__}")
        raise typer.Exit


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Errors as one red line on standard error and an exit code; anything that is our own fault keeps its traceback."""
    try:
        yield
    except OutputLost as lost:
        raise _end_without_output(lost.__cause__) from lost
    except ProgramFailed as error:
        if any(isinstance(cause, BrokenPipeError) for cause in _causes(error)) and _is_pipe_closed():
            raise Told(PIPE_CLOSED) from error  # it printed to a pipe that no one reads
        _say(f"error: {error}")
        for cause in _causes(error):
            _say(f"  caused by {type(cause).__name__}: {cause}{_place(cause)}")
        raise Told(FAILED) from error
    except RametError as error:
        _say(f"error: {error}")
        raise Told(FAILED if isinstance(error, EngineError) else WRONG_USE) from error
    except KeyboardInterrupt as error:
        _say("interrupted")
        raise Told(INTERRUPTED) from error


def _say(line: str) -> None:
    Console(stderr=True).print(Text(line, style="bold red"), soft_wrap=True)


def _causes(error: BaseException) -> Iterator[BaseException]:
    while error.__cause__ is not None:
        error = error.__cause__
        yield error


def _place(error: BaseException) -> str:
    """Where an error was raised; those of the package say what is wrong, and need no place."""
    frames = traceback.extract_tb(error.__traceback__)
    return "" if isinstance(error, RametError) or not frames else f" ({frames[-1].filename}:{frames[-1].lineno})"


def _end_without_output(error: BaseException | None) -> Told:
    if isinstance(error, BrokenPipeError):
        return Told(PIPE_CLOSED)  # as for every command whose reader has gone: not a word
    _say(f"error: cannot write to standard output: {getattr(error, 'strerror', error)}")
    return Told(FAILED)


def _is_pipe_closed() -> bool:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return True
    return False
