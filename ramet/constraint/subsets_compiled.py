"""The subset construction on flat arrays, by the steps of `kernels`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ramet.constraint import kernels as k
from ramet.constraint.compiling import Kernels
from ramet.constraint.flat import flatten
from ramet.constraint.limits import Source
from ramet.constraint.nfa import Program
from ramet.constraint.subsets import too_many_states
from ramet.constraint.utf8 import ByteNode

_FIRST_CAPACITY: Final = 1024
_WIDE: Final = 32  # positions
_MAX_AHEAD: Final = 8192  # positions
_MAX_FIRST_CAPACITY: Final = 1 << 15
_BUDGET: Final = 100_000  # ticks between two looks at the clock, and for so long others wait for the automaton: about a millisecond
_MAX_POOL: Final = 1 << 25  # positions in all lists; 128 MiB


CountTokens: TypeAlias = Callable[[tuple[ByteNode, ...]], NDArray[np.int64]]


class CompiledSubsets:
    """As `PlainSubsets`, with other numbers for the states, and fewer of them where counts are ambiguous.

    `slices` are the classes of characters that a walk may take at once; `count_tokens` says how many tokens consist of nothing else, by
    which the best one for a state is chosen.
    """

    def __init__(
        self, kernels: Kernels, count_tokens: CountTokens, program: Program, node: int, source: Source, samples: list[int]
    ) -> None:
        self._kernels = kernels
        self._source = source
        byte_class = np.zeros(256, np.uint8)
        for number, bound in enumerate(samples):
            byte_class[bound:] = number
        flat = flatten(program, byte_class)
        self.slices = flat.slices
        self._insides = flat.insides
        counts = np.zeros(16, np.int64)
        counts[k.NUM_FRAMES] = 1  # frame 0 is the end of the text
        counts[k.TICKS] = _BUDGET
        counts[k.MAX_COUNTED] = source.limits.max_dfa_states
        counts[k.ROOT_NODE] = node
        capacity = _FIRST_CAPACITY  # each node is a frame at least once
        while capacity < min(2 * len(flat.nodes), _MAX_FIRST_CAPACITY):
            capacity *= 2
        num_rows = min(capacity // 4, _FIRST_CAPACITY)  # of states
        frames = np.zeros((capacity, 12), np.int32)
        frames[0] = (-1, -1, -1, -1, 0, 0, 1, -1, 0, 0, 0, 0)
        num_classes = len(samples)
        self.tables = k.Tables(
            nodes=flat.nodes,
            options=flat.options,
            arcs=flat.arcs,
            places=flat.places,
            slices=np.column_stack([count_tokens(flat.slices), flat.samples]).astype(np.int32),
            frames=frames,
            frame_ids=np.full(2 * capacity, -1, np.int32),
            positions=np.zeros((capacity, 4), np.int32),
            position_ids=np.full(2 * capacity, -1, np.int32),
            states=np.zeros((num_rows, 9), np.int32),
            state_ids=np.full(2 * num_rows, -1, np.int32),
            table=np.full((num_rows, num_classes), k.UNKNOWN, np.int32),
            pool=np.zeros(4 * capacity, np.int32),
            counts=counts,
        )
        self._run(k.FIRST, k.ALL)
        self._expand_wide()

    @property
    def table(self) -> NDArray[np.int32]:
        """See `Subsets`."""
        return self.tables.table  # type: ignore[no-any-return]

    @property
    def num_states(self) -> int:
        """See `Subsets`."""
        return int(self.tables.counts[k.NUM_STATES])

    @property
    def num_bytes(self) -> int:
        """See `Subsets`."""
        return sum(array.nbytes for array in self.tables)

    def num_positions(self, state: int) -> int:
        """How large the set is."""
        return int(self.tables.states[state, k.LENGTH])

    def resolve(self, state: int, byte_class: int) -> int:
        """See `Subsets`."""
        return self._run(state, byte_class)

    def expand(self, state: int) -> None:
        """See `Subsets`."""
        self._run(state, k.ALL)

    def is_accepting(self, state: int) -> bool:
        """See `Subsets`."""
        return bool(self.tables.states[state, k.ACCEPTING])

    def forced_byte(self, state: int) -> int | None:
        """See `Subsets`."""
        forced = int(self.tables.states[state, k.FORCED])
        return None if forced < 0 else forced

    def is_inside_char(self, state: int) -> bool:
        """See `Subsets`."""
        return bool(self.tables.states[state, k.INSIDE_CHAR])

    def insides(self, state: int) -> Collection[ByteNode]:
        """See `Subsets`."""
        begin, length = self.tables.states[state, [k.BEGIN, k.LENGTH]]
        numbers = np.unique(self.tables.positions[self.tables.pool[begin : begin + length], 0])
        return [self._insides[number] for number in numbers.tolist()]

    def _expand_wide(self) -> None:
        """Work ahead on a list of words: the first mask should not wait for what hundreds of them begin with."""
        num_positions = state = 0
        while state < self.num_states and num_positions < _MAX_AHEAD and self.num_positions(state) > _WIDE:
            num_positions += self.num_positions(state)
            self.expand(state)
            state += 1

    def _run(self, state: int, byte_class: int) -> int:
        while True:
            code = int(self._kernels.run(self.tables, state, byte_class))
            if code >= k.DEAD:
                return code
            self.recover(code)

    def recover(self, code: int) -> None:
        """Make room, or look at the clock, so that a kernel can go on. Raises InvalidConstraint over a limit."""
        tables = self.tables
        if code == k.PAUSE:
            self._source.check_time()
            tables.counts[k.TICKS] = _BUDGET
        elif code == k.FULL_FRAMES:
            self._replace(frames=_double(tables.frames))
        elif code == k.FULL_POSITIONS:
            self._replace(positions=_double(tables.positions))
        elif code == k.FULL_STATES:
            self._replace(states=_double(tables.states), table=_double(tables.table))
        elif code == k.FULL_POOL:
            if 2 * len(tables.pool) > _MAX_POOL:
                raise too_many_states(self._source)
            self._replace(pool=_double(tables.pool))
        else:
            assert code == k.OVER_LIMIT, f"a kernel answered {code}"
            raise too_many_states(self._source)

    def _replace(self, **arrays: NDArray[np.int32]) -> None:
        """Put in larger arrays, with hash tables to match."""
        tables = self.tables._replace(**arrays)
        ids = {"frames": "frame_ids", "positions": "position_ids", "states": "state_ids"}
        self.tables = tables._replace(**{name: np.full(2 * len(getattr(tables, rows)), -1, np.int32) for rows, name in ids.items()})
        self._kernels.run(self.tables, k.REHASH, k.ALL)


def _double(array: NDArray[np.int32]) -> NDArray[np.int32]:
    grown = np.zeros((2 * len(array), *array.shape[1:]), np.int32)
    grown[: len(array)] = array
    return grown
