"""Ramet: a language for programs that call a language model, and a runtime that shares their prefixes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ramet.lang.api import (
    assistant,
    assistant_begin,
    assistant_end,
    flush_cache,
    function,
    gen,
    gen_int,
    gen_string,
    get_server_info,
    image,
    select,
    separate_reasoning,
    set_default_backend,
    system,
    system_begin,
    system_end,
    user,
    user_begin,
    user_end,
    video,
)
from ramet.lang.choices import exact_likelihood, greedy_token_selection, token_length_normalized, unconditional_likelihood_normalized
from ramet.lang.settings import global_config

if TYPE_CHECKING:
    from ramet.engine.offline import Engine

__version__ = "0.1.0"

__all__ = [
    "Engine",
    "__version__",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "exact_likelihood",
    "flush_cache",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "get_server_info",
    "global_config",
    "greedy_token_selection",
    "image",
    "select",
    "separate_reasoning",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
    "video",
]

_LAZY = {"Engine": "ramet.engine.offline"}  # what needs torch is imported when it is first used


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'ramet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
