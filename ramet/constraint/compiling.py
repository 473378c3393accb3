"""The steps of `kernels`, compiled by numba."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ramet.constraint import kernels

_IN_ORDER: Final = (  # each calls only those before it
    "frame_hash",
    "make_frame",
    "push_repeat",
    "push_node",
    "position_hash",
    "make_position",
    "make_literal_closure",
    "make_closure",
    "member_hash",
    "is_even",
    "is_free",
    "make_state",
    "covers",
    "prune",
    "first_state",
    "resolve",
    "rehash",
    "run",
    "follow_run",
    "walk_tree",
    "mark_slice",
)


class Kernels(NamedTuple):
    """The steps that Python code calls; they let go of the interpreter's lock."""

    run: Callable[..., int]
    walk_tree: Callable[..., int]
    mark_slice: Callable[..., int]


def plain_kernels() -> Kernels:
    """The steps without a compiler, far slower: for tests."""
    return Kernels(**{name: getattr(kernels, name) for name in Kernels._fields})


def compiled_kernels() -> Kernels:
    """The compiled steps: taken from disk in half a second, made in some ten and kept where that can be written."""
    import numba  # type: ignore[import-not-found, import-untyped, unused-ignore]

    namespace = dict(vars(kernels))
    for name in _IN_ORDER:
        plain = getattr(kernels, name)
        copy = types.FunctionType(plain.__code__, namespace, name)
        copy.__module__ = kernels.__name__
        signature = _signature(numba.types, plain)
        options: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True, "no_cpython_wrapper": name not in Kernels._fields}
        try:
            namespace[name] = numba.njit(signature, cache=True, **options)(copy)
        except RuntimeError:  # numba finds no folder for its cache that can be written
            namespace[name] = numba.njit(signature, **options)(copy)
    return Kernels(**{name: namespace[name] for name in Kernels._fields})


def _signature(numba_types: Any, function: Callable[..., Any]) -> Any:
    """The one signature of a step, by its annotations: fixed, so that nothing is compiled twice or while a request waits."""

    def array(kind: str) -> Any:
        name, num_dimensions = kind.split()
        return numba_types.Array(getattr(numba_types, name), int(num_dimensions), "C")

    def record(kind: Any, fields: dict[str, str]) -> Any:
        return numba_types.NamedTuple([array(fields[name]) for name in kind._fields], kind)

    known = {
        "int": numba_types.int64,
        "bool": numba_types.boolean,
        "None": numba_types.void,
        "Tables": record(kernels.Tables, kernels.TABLE_TYPES),
        "Slices": record(kernels.Slices, kernels.SLICE_TYPES),
    } | {name: array(kind) for name, kind in kernels.ARRAY_TYPES.items()}
    hints = dict(function.__annotations__)
    returned = known[hints.pop("return")]
    return returned(*(known[hint] for hint in hints.values()))
