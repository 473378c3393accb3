"""Settings of the language that hold for the whole process, as published."""

from __future__ import annotations

import difflib
from typing import Any

_DEFAULTS: dict[str, Any] = {
    "verbosity": 0,
    "default_backend": None,
    "enable_precache_with_tracing": True,
    "skip_special_tokens_in_output": True,
    "spaces_between_special_tokens_in_out": True,
}


class GlobalConfig:
    """The settings; setting or reading a name that is not one of them raises AttributeError.

    `verbosity`: 2 writes the text of every finished program to standard output. `default_backend`: used where none is given.
    `enable_precache_with_tracing`: `run_batch` computes the constant prefix of a program first.
    `skip_special_tokens_in_output`, `spaces_between_special_tokens_in_out`: how an engine turns tokens into text.
    """

    verbosity: int
    default_backend: Any
    enable_precache_with_tracing: bool
    skip_special_tokens_in_output: bool
    spaces_between_special_tokens_in_out: bool

    def __init__(self) -> None:
        self.__dict__.update(_DEFAULTS)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _DEFAULTS:
            raise AttributeError(_unknown(name))
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_unknown(name))


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _DEFAULTS, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"global_config has no setting {name!r}: {hint}known: {', '.join(_DEFAULTS)}"


global_config = GlobalConfig()
