"""Standard output that may go away: its failure is told apart from every failure of a program."""

from __future__ import annotations

from typing import Any, TextIO


class OutputLost(Exception):
    """Nothing more can be written to standard output; the cause says why. The fault of neither program nor command line."""


class Output:
    """A text file as it is, except that a write or flush that fails raises OutputLost, and that any text can be written.

    Characters that the file's encoding lacks are written as backslash escapes.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """Write all of it."""
        try:
            return self._file.write(text)
        except UnicodeEncodeError:
            encoding = self._file.encoding
            return self.write(text.encode(encoding, errors="backslashreplace").decode(encoding))
        except OSError as error:
            raise OutputLost("standard output is gone") from error

    def flush(self) -> None:
        """Hand what was written to the system."""
        try:
            self._file.flush()
        except OSError as error:
            raise OutputLost("standard output is gone") from error
