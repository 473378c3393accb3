"""A lowered syntax tree as arrays, which compiled code can follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ramet.constraint.kernels import ALT, CHARS, CONTINUES, DEAD, END_OF_CHAR, NOTHING, OVERLAP, REPEAT, SAME, SEQ, SINGLE
from ramet.constraint.nfa import Program
from ramet.constraint.utf8 import ByteNode

Ints = NDArray[np.int32]
MAX_SLICES: Final = 8  # bits of a byte
_MIN_REACH: Final = 3  # a repetition of fewer characters is walked as fast as it is looked up


@dataclass(frozen=True, slots=True, eq=False)
class FlatProgram:
    """What the kernels need of a program; `insides` are the places inside characters by their numbers.

    `slices` are the classes of characters that are repeated: many tokens consist of nothing else.
    """

    nodes: Ints  # [nodes, 5], see `kernels`
    options: Ints
    arcs: Ints  # [places, byte classes]
    places: Ints  # [places, 5 + slices]
    samples: Ints  # [slices]
    insides: tuple[ByteNode, ...]
    slices: tuple[ByteNode, ...]


def flatten(program: Program, byte_class: NDArray[np.uint8]) -> FlatProgram:
    """The nodes of a program and the places inside its characters."""
    insides: dict[ByteNode, int] = {}
    for op in program.nodes:
        if op[0] == "chars":
            for place in places(op[1]):
                insides.setdefault(place, len(insides))
    slices = _repeated(program)
    slice_of_node = [-1] * len(program.nodes)
    rows: list[tuple[int, int, int, int, int]] = []
    begins = [-1] * len(program.nodes)
    options: list[int] = []
    wraps: dict[int, int] = {}
    num_nodes = len(program.nodes)
    for node, op in enumerate(program.nodes):
        kind = op[0]
        if kind == "seq":
            begins[node] = begins[op[1]] if program.nodes[op[1]][0] == "chars" else -1
            rows.append((SEQ, op[1], op[2], -1, begins[node]))
        elif kind == "chars":
            slice_of_node[node] = slices.get(op[1], -1)
            begins[node] = insides[op[1]]
            rows.append((CHARS, -1, 0, slice_of_node[node], begins[node]))
        elif kind == "alt":
            best = max((slice_of_node[option] for option in op[1]), default=-1)
            rows.append((ALT, len(options), len(options) + len(op[1]), best, -1))
            options.extend(op[1])
        elif kind == "repeat":
            body = op[1]
            if program.nodes[body][0] == "repeat":  # a body that is a repetition itself goes into an alternation of its own
                body = wraps.setdefault(body, num_nodes + len(wraps))
            rows.append((REPEAT, body, op[2], -1 if op[3] is None else op[3], -1))
        else:
            rows.append((NOTHING, -1, -1, -1, -1))
    for body in wraps:
        rows.append((ALT, len(options), len(options) + 1, -1, -1))
        options.append(body)
    num_classes = int(byte_class[-1]) + 1
    arcs = arc_table(insides, byte_class, num_classes)
    numbers = [insides[root] for root in slices]
    is_open = arcs != DEAD
    place_rows = np.zeros((len(insides), OVERLAP + len(slices)), np.int32)
    place_rows[:, SINGLE] = [_single(place) for place in insides]
    place_rows[:, CONTINUES] = [place.is_inside_char for place in insides]
    samples = np.full(len(slices), -1, np.int32)
    for number, inside in enumerate(numbers):
        place_rows[:, OVERLAP + number] = (is_open & is_open[inside]).any(axis=1)
        place_rows[inside, OVERLAP + number] = SAME
        whole = np.flatnonzero(arcs[inside] == END_OF_CHAR)
        samples[number] = whole[0] if len(whole) else -1
    return FlatProgram(
        nodes=np.array(rows, np.int32).reshape(-1, 5),
        options=np.array(options, np.int32),
        arcs=arcs,
        places=place_rows,
        samples=samples,
        insides=tuple(insides),
        slices=tuple(slices),
    )


def places(root: ByteNode) -> list[ByteNode]:
    """All places inside the characters of a class, the root first."""
    found = {root: None}
    todo = [root]
    while todo:
        for _, _, target in todo.pop().arcs:
            if target is not None and target not in found:
                found[target] = None
                todo.append(target)
    return list(found)


def arc_table(numbers: dict[ByteNode, int], byte_class: NDArray[np.uint8], num_classes: int) -> Ints:
    """For each place and class of bytes the number of the next place, DEAD or END_OF_CHAR."""
    table = np.full((len(numbers), num_classes), DEAD, np.int32)
    classes: list[int] = byte_class.tolist()
    for place, number in numbers.items():
        row = table[number]
        for low, high, target in place.arcs:
            row[classes[low] : classes[high] + 1] = END_OF_CHAR if target is None else numbers[target]
    return table


def _repeated(program: Program) -> dict[ByteNode, int]:
    """The classes of characters that are repeated often, numbered; the first ones when they are many."""
    found: dict[ByteNode, int] = {}
    for op in program.nodes:
        if op[0] != "repeat" or (op[3] is not None and op[3] < _MIN_REACH):
            continue
        body = program.nodes[op[1]]
        inner: Sequence[int] = body[1] if body[0] == "alt" else (op[1],)
        widest: ByteNode | None = None
        for option in inner:
            key = program.nodes[option]
            if key[0] == "chars" and (widest is None or _num_first(key[1]) > _num_first(widest)):
                widest = key[1]
        if widest is not None and len(found) < MAX_SLICES:
            found.setdefault(widest, len(found))
    return found


def _num_first(place: ByteNode) -> int:
    return sum(high - low + 1 for low, high, _ in place.arcs)


def _single(place: ByteNode) -> int:
    low, high, _ = place.arcs[0]
    return low if len(place.arcs) == 1 and low == high else -1
