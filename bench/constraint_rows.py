"""The rows of bench/constraint.py: what is timed, and how."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from constraint_patterns import RECORD, Hard, records
from constraint_sides import Batch, Ours, Side, SideFailed, Words

from ramet.constraint.testing import iterate_states

BUDGET_S = 6.0  # after so much time a slow cell is not repeated
NUM_HARD_PATHS, HARD_PATH_LEN = 4, 24


@dataclass(frozen=True, slots=True)
class Span:
    """What one action took."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: a figure for each side, or why it has none. `aim` is for our figure, `ratio_aims` for peer / ours."""

    name: str
    words: str
    unit: str
    values: dict[str, float | str]
    aim: float | None = None
    ratio_aims: dict[str, float] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)  # for the file only

    def ratio(self, peer: str) -> float | None:
        """The peer's figure in units of ours."""
        ours, theirs = self.values.get("ramet"), self.values.get(peer)
        return theirs / ours if isinstance(ours, float) and isinstance(theirs, float) and ours > 0 else None


def span(action: Callable[[], object]) -> Span:
    """Time one call."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        action()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    finally:
        if was_enabled:
            gc.enable()
    return Span(wall, cpu)


def turns(repeats: int, budget_s: float = BUDGET_S) -> Iterator[int]:
    """Numbers of turns; fewer than `repeats` when they take too long."""
    start = time.perf_counter()
    for turn in range(repeats):
        yield turn
        if time.perf_counter() - start > budget_s:
            return


def least(action: Callable[[], object], repeats: int) -> Span:
    """The least times of several calls, after one that warms up."""
    action()
    spans = [span(action) for _ in turns(repeats)]
    return Span(min(item.wall_s for item in spans), min(item.cpu_s for item in spans))


def record_figures(words: Words, sides: Sequence[Side], repeats: int, num_requests: int, num_steps: int) -> Iterator[Figure]:
    """The character record: compilation, all masks, a batch that advances through it, the worst cold mask."""
    is_large = words.vocabulary.width > 100_000
    yield first_masks("record: compile + first mask", words, sides, RECORD, repeats, aim=10.0)
    yield all_masks(words, sides, repeats)
    paths = [words.encode(text) for text in records(num_requests)]
    yield from advancing(words, sides, paths, repeats, num_steps)
    yield worst_of_all_states(words, sides, repeats, aim=1.0 if is_large else 0.7)
    values = worst_on_paths(sides, RECORD, [paths[0]], repeats)
    yield Figure("record: worst cold mask on one path", words.name, "ms", values)


def first_masks(name: str, words: Words, sides: Sequence[Side], pattern: str, repeats: int, aim: float | None) -> Figure:
    """From the text of a pattern to the mask of its start."""
    values: dict[str, float | str] = {}
    wall_ms: dict[str, float] = {}

    def first(side: Side) -> None:
        fresh(side, pattern).fill(0)

    for side in sides:
        with_reason(values, side, partial(timed_ms, partial(first, side), side, repeats, wall_ms))
    return Figure(name, words.name, "ms", values, aim=aim, more={"wall_ms": wall_ms})


def fresh(side: Side, pattern: str) -> Batch:
    """A matcher of a pattern compiled now; for llguidance the matcher is what compiles."""
    return side.batch(side.compile(pattern), 1)


def with_reason(values: dict[str, float | str], side: Side, make: Callable[[], float]) -> None:
    """Put in a side's figure, or why there is none."""
    try:
        values[side.name] = make()
    except SideFailed as error:
        values[side.name] = str(error)


def timed_ms(action: Callable[[], object], side: Side, repeats: int, wall_ms: dict[str, float]) -> float:
    """The least CPU time of an action; the wall time goes to the file."""
    took = least(action, repeats)
    wall_ms[side.name] = 1e3 * took.wall_s
    return 1e3 * took.cpu_s


def all_masks(words: Words, sides: Sequence[Side], repeats: int) -> Figure:
    """Every mask of the record, as a thread in the background prepares them; the peers have nothing of the kind."""
    ours = ours_of(sides)
    numbers: list[int] = []

    def prepare() -> None:
        numbers.append(ours.compile(RECORD).prepare(max_states=10_000))

    took = least(prepare, repeats)
    more = {"num_masks": numbers[-1], "wall_ms": 1e3 * took.wall_s}
    return Figure(f"record: compile + all {numbers[-1]} masks", words.name, "ms", {"ramet": 1e3 * took.cpu_s}, aim=60.0, more=more)


def advancing(words: Words, sides: Sequence[Side], paths: Sequence[Sequence[int]], repeats: int, num_steps: int) -> Iterator[Figure]:
    """Requests at different places of the record, a token each a step; caches are warm, everything was walked once before."""
    plan = make_plan(paths, num_steps)
    times = {side.name: advance(side, len(paths), plan, repeats) for side in sides}
    agreed = masks_agree(sides, plan, len(paths))
    num = len(paths)
    rows: tuple[tuple[str, str, dict[str, float]], ...] = (
        ("masks", "masks of a step", {"llguidance": 50.0, "xgrammar": 100.0}),
        ("accept", "tokens of a step accepted", {}),
        ("both", "masks and tokens of a step", {}),
        ("parallel", "masks of a step, parallel (ours: copied into one tensor)", {}),
    )
    for key, label, aims in rows:
        values: dict[str, float | str] = {name: found if isinstance(found, str) else 1e6 * found[key] for name, found in times.items()}
        more = {"steps": num_steps, "equal_masks": agreed} if key == "masks" else {}
        yield Figure(f"record: {num} requests, {label}", words.name, "us", values, ratio_aims=aims, more=more)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch does: the tokens before it starts, and in each step a token for each request; None starts it anew first."""

    before: list[list[int]]
    steps: list[list[int]]
    restarts: list[list[int]]


def make_plan(paths: Sequence[Sequence[int]], num_steps: int) -> Plan:
    """Request i starts at i / num of its path; at the end of its path it starts again."""
    places = [i * len(path) // len(paths) for i, path in enumerate(paths)]
    before = [list(path[:place]) for path, place in zip(paths, places, strict=True)]
    steps, restarts = [], []
    for _ in range(num_steps):
        ended = [i for i, path in enumerate(paths) if places[i] == len(path)]
        for i in ended:
            places[i] = 0
        restarts.append(ended)
        steps.append([path[place] for path, place in zip(paths, places, strict=True)])
        places = [place + 1 for place in places]
    return Plan(before, steps, restarts)


def advance(side: Side, size: int, plan: Plan, repeats: int) -> dict[str, float] | str:
    """Mean seconds of a step, each step's time being the least of all turns; or why there are none.

    One turn before those that count warms up what a side keeps. The parallel way has its own turns, since some sides keep the last mask.
    """
    try:
        batch = side.batch(side.compile(RECORD), size)
        serial: list[list[Span]] = []
        accepting: list[list[Span]] = []
        parallel: list[list[Span]] = []
        walk(batch, plan, batch.fill_all)
        for _ in turns(repeats):
            filled, accepted = walk(batch, plan, batch.fill_all)
            serial.append(filled)
            accepting.append(accepted)
        for _ in turns(repeats):
            parallel.append(walk(batch, plan, batch.fill_parallel)[0])
    except SideFailed as error:
        return str(error)
    masks, accept = mean_of_least(serial, "cpu_s"), mean_of_least(accepting, "cpu_s")
    return {"masks": masks, "accept": accept, "both": masks + accept, "parallel": mean_of_least(parallel, "wall_s")}


def walk(batch: Batch, plan: Plan, fill: Callable[[], None]) -> tuple[list[Span], list[Span]]:
    """The whole plan once: the times of the masks and of the tokens of each step."""
    to_beginning(batch, plan)
    filled: list[Span] = []
    accepted: list[Span] = []
    for tokens, ended in zip(plan.steps, plan.restarts, strict=True):
        for i in ended:
            batch.restart(i)
        filled.append(span(fill))
        accepted.append(span(partial(batch.accept_all, tokens)))
    return filled, accepted


def mean_of_least(of_turns: Sequence[Sequence[Span]], clock: str) -> float:
    return float(np.min([[getattr(item, clock) for item in turn] for turn in of_turns], axis=0).mean())


def to_beginning(batch: Batch, plan: Plan) -> None:
    """Put every request to its first place."""
    for i, tokens in enumerate(plan.before):
        batch.restart(i)
        for token in tokens:
            batch.accept(i, token)


def masks_agree(sides: Sequence[Side], plan: Plan, size: int) -> dict[str, str]:
    """At how many places each peer's mask is ours; others may be narrower."""
    ours = ours_of(sides)
    our_batch = ours.batch(ours.compile(RECORD), size)
    found: dict[str, str] = {}
    for side in sides:
        if side is ours:
            continue
        try:
            batch = side.batch(side.compile(RECORD), size)
            num_equal = num_narrower = num_all = 0
            for one in (our_batch, batch):
                to_beginning(one, plan)
            for tokens, ended in zip(plan.steps[:16], plan.restarts, strict=False):
                for one in (our_batch, batch):
                    for i in ended:
                        one.restart(i)
                    one.fill_all()
                for i in range(size):
                    mine, theirs = our_batch.allowed(i), batch.allowed(i)
                    is_equal = bool((mine == theirs).all())
                    num_equal += is_equal
                    num_narrower += not is_equal and not (theirs & ~mine).any()
                    num_all += 1
                for one in (our_batch, batch):
                    one.accept_all(tokens)
            found[side.name] = f"{num_equal} of {num_all} equal, {num_narrower} narrower"
        except SideFailed as error:
            found[side.name] = str(error)
    return found


def worst_of_all_states(words: Words, sides: Sequence[Side], repeats: int, aim: float) -> Figure:
    """The dearest of all states of the record, each when it is first met, nearest to the start first; ours only."""
    ours = ours_of(sides)
    found: list[list[float]] = []
    for _ in turns(repeats):
        compiled = ours.compile(RECORD)
        # The state's own mask before anything behind it is worked out: as cold as it can be met.
        found.append([span(partial(compiled.masks.row, state)).cpu_s for state in iterate_states(compiled.automaton)])
    per_state = np.min(found, axis=0)
    more = {"num_states": len(per_state), "mean_ms": 1e3 * float(per_state.mean())}
    return Figure("record: worst cold mask of all states", words.name, "ms", {"ramet": 1e3 * float(per_state.max())}, aim=aim, more=more)


def worst_on_paths(sides: Sequence[Side], pattern: str, paths: Sequence[Sequence[int]], repeats: int) -> dict[str, float | str]:
    """The dearest mask along paths, for each side."""
    values: dict[str, float | str] = {}
    for side in sides:
        with_reason(values, side, partial(worst_of_side, side, pattern, paths, repeats))
    return values


def worst_of_side(side: Side, pattern: str, paths: Sequence[Sequence[int]], repeats: int, refused: dict[str, int] | None = None) -> float:
    """The dearest mask along paths, in ms, each mask when it is first met; compiled anew in every turn.

    A side that refuses a token leaves the path there; `refused` counts these paths.
    """
    found: list[list[float]] = []
    num_refused = 0
    for turn in turns(repeats):
        batch = fresh(side, pattern)
        times: list[float] = []
        for path in paths:
            batch.restart(0)
            for token in path:
                times.append(span(partial(batch.fill, 0)).cpu_s)
                try:
                    batch.accept(0, token)
                except SideFailed:
                    num_refused += turn == 0
                    break
        found.append(times)
    if num_refused:
        if refused is None:
            raise SideFailed("refuses a token of the path")
        refused[side.name] = num_refused
    return 1e3 * float(np.min(found, axis=0).max())


def hard_figures(words: Words, sides: Sequence[Side], repeats: int, patterns: Sequence[Hard]) -> Iterator[Figure]:
    """Compilation and the worst mask along random paths, for each pattern."""
    ours = ours_of(sides)
    for hard in patterns:
        compile_ms: dict[str, float | str] = {}
        worst_ms: dict[str, float | str] = {}
        wall_ms: dict[str, float] = {}
        refused: dict[str, int] = {}
        paths = random_paths(ours, words, hard.text)
        for side in sides:
            text = hard.text if side is ours or hard.peer_text is None else hard.peer_text
            with_reason(compile_ms, side, partial(timed_ms, partial(fresh, side, text), side, repeats, wall_ms))
            if isinstance(compile_ms[side.name], float):
                with_reason(worst_ms, side, partial(worst_of_side, side, text, paths, repeats, refused))
            else:
                worst_ms[side.name] = "-"
        yield Figure(f"{hard.name}: compile", words.name, "ms", compile_ms, aim=50.0, more={"wall_ms": wall_ms})
        yield Figure(
            f"{hard.name}: worst mask", words.name, "ms", worst_ms, aim=2.0, more={"num_masks": sum(map(len, paths)), "refused": refused}
        )


def random_paths(ours: Ours, words: Words, pattern: str) -> list[list[int]]:
    """Tokens drawn evenly from what is allowed, a long path each; an end is taken only where nothing else is left."""
    rng = random.Random(2)
    compiled = ours.compile(pattern)
    paths: list[list[int]] = []
    for _ in range(NUM_HARD_PATHS):
        matcher = compiled.matcher()
        path: list[int] = []
        while len(path) < HARD_PATH_LEN:
            mask = matcher.mask()
            assert mask is not None
            allowed = [i for i in mask.nonzero().flatten().tolist() if i not in words.vocabulary.eos_ids]
            if not allowed:
                break
            path.append(rng.choice(allowed))
            matcher.accept(path[-1])
        paths.append(path)
    return paths


def ours_of(sides: Sequence[Side]) -> Ours:
    side = sides[0]
    assert isinstance(side, Ours)
    return side
