"""The command `ramet`. Exit codes: 0, 1 the program or the engine failed, 2 wrong use, 130 interrupted."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from ramet.cli.flags import engine_flags, run_flags, sampling_flags, with_flags
from ramet.cli.generate import generate_text
from ramet.cli.program import ProgramFailed
from ramet.cli.run import StartEngine, run_program
from ramet.errors import EngineError, RametError

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130


def start_engine(options: Mapping[str, Any]) -> Any:
    """An engine in this process; imported now, so that `--help` needs no torch."""
    from ramet.engine.offline import Engine

    return Engine(**options)


def build_app(start: StartEngine = start_engine) -> typer.Typer:
    """The command line over any way of starting an engine; tests bring their own."""
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
        console = Console()
        is_live = live and console.is_terminal and not as_json
        with _exit_codes():
            run_program(start, target, args, options, sampling, console=console, is_live=is_live, is_json=as_json)

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
            generate_text(start, sys.stdin.read() if prompt == "-" else prompt, options, sampling, sys.stdout)

    return app


def main() -> None:
    """The console script."""
    build_app()()


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
    except ProgramFailed as error:
        _say(f"error: {error}")
        for cause in _causes(error):
            _say(f"  caused by {type(cause).__name__}: {cause}{_place(cause)}")
        raise typer.Exit(FAILED) from error
    except RametError as error:
        _say(f"error: {error}")
        raise typer.Exit(FAILED if isinstance(error, EngineError) else WRONG_USE) from error
    except KeyboardInterrupt as error:
        _say("interrupted")
        raise typer.Exit(INTERRUPTED) from error


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


if __name__ == "__main__":
    main()
