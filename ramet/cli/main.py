"""The console script: what must hold even while the command line is imported, and after it has ended."""

from __future__ import annotations

import os
import sys

INTERRUPTED, PIPE_CLOSED = 130, 141  # 128 and the number of the signal, as a shell reports them


def main() -> None:
    """Run the command line.

    Exit codes: 0, 1 the program or the engine failed or a checked text was refused, 2 wrong use or an invalid constraint,
    130 interrupted, 141 the reader of the output has gone.
    """
    sys.exit(_run())


def _run() -> int:
    if sys.stdout is None:
        _say("error: standard output is closed")
        return 1
    try:
        from ramet.cli.app import Told, build_app  # here, so that an interrupt of the imports is answered as well

        code, is_told = 0, False
        try:
            build_app()()
        except SystemExit as end:
            code, is_told = end.code if isinstance(end.code, int) else 0, isinstance(end.__context__, Told)
            if isinstance(end.__context__, BrokenPipeError):  # the help was cut short
                code = PIPE_CLOSED
        if code == INTERRUPTED and not is_told:
            _say("interrupted")
    except KeyboardInterrupt:
        _say("interrupted")
        code = INTERRUPTED
    except OSError as error:  # of help or of the version; the commands tell about their own
        return _lost(error)
    try:
        sys.stdout.flush()
    except OSError as error:
        return _lost(error, is_told=code != 0)
    return code


def _lost(error: OSError, is_told: bool = False) -> int:
    """Standard output takes nothing any more: say so, unless its reader has just gone, and let no later flush fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return PIPE_CLOSED
    if not is_told:
        _say(f"error: cannot write to standard output: {error.strerror}")
    return 1


def _say(line: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
