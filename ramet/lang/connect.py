"""From what the user gives as `backend=` to a backend: known backends by name, and engines that are wrapped once."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from ramet.errors import InvalidParams
from ramet.lang.settings import global_config
from ramet.registry import Registry

if TYPE_CHECKING:
    from ramet.lang.backends.base import BaseBackend

# Rows are resolved when they are first used, so that the language itself imports no backend.
BACKENDS: Registry[Any] = Registry("backend")
BACKENDS.add("base", "ramet.lang.backends.base:BaseBackend")
BACKENDS.add("engine", "ramet.lang.backends.engine:EngineBackend")
BACKENDS.add("scripted", "ramet.lang.backends.scripted:ScriptedBackend")

# Engine id to its wrapper. A wrapper holds its engine, so an id is never of another engine while its entry lives.
_wrappers: weakref.WeakValueDictionary[int, BaseBackend] = weakref.WeakValueDictionary()
_wrappers_lock = threading.Lock()


def as_backend(given: Any) -> BaseBackend:
    """A backend as it is; an engine (anything with `generate` and `score`) in its one wrapper.

    Raises InvalidParams for anything else.
    """
    if isinstance(given, BACKENDS.get("base")):
        backend: BaseBackend = given
        return backend
    if not (callable(getattr(given, "generate", None)) and callable(getattr(given, "score", None))):
        raise InvalidParams("backend", given, "must be a backend or an Engine")
    with _wrappers_lock:
        wrapper = _wrappers.get(id(given))
        if wrapper is None:
            wrapper = _wrappers[id(given)] = BACKENDS.get("engine")(given)
        return wrapper


def find_backend(given: Any = None) -> BaseBackend | None:
    """The backend given, else the default one, else None."""
    chosen = global_config.default_backend if given is None else given
    return None if chosen is None else as_backend(chosen)


def need_backend(given: Any = None) -> BaseBackend:
    """The backend given, else the default one; raises InvalidParams where there is none."""
    backend = find_backend(given)
    if backend is None:
        raise InvalidParams("backend", None, "Please specify a backend: pass backend=... or call set_default_backend(...)")
    return backend
