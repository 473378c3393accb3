from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ramet.cache import CacheManager, NoPrefixCache, RadixPrefixCache
from ramet.config import ScheduleOptions
from ramet.schedule.request import Request, Status
from ramet.schedule.scheduler import Scheduler, Step
from ramet.schedule.shadow import ShadowPool


class Simulation:
    """A scheduler over a shadow pool: every step is run and checked, a drawn token is a hash of all tokens before it."""

    def __init__(self, num_slots: int, *, cached: bool = True, **options: Any) -> None:
        prefix = RadixPrefixCache() if cached else NoPrefixCache()
        self.scheduler = Scheduler(ScheduleOptions(**options), CacheManager(num_slots, prefix), random.Random(0))
        self.pool = ShadowPool(num_slots)
        self.admitted: list[Request] = []
        self.num_computed = 0
        self.num_shared = 0
        self.steps: list[Step] = []
        self.overtaken: dict[str, int] = {}

    def submit(self, requests: Sequence[Request]) -> None:
        self.scheduler.submit(requests)

    def step(self) -> Step:
        before = set(self.scheduler.running)
        step = self.scheduler.plan()
        self.admitted += [request for request in self.scheduler.running if request not in before]
        sequences = self.pool.run(step.plan)
        self.scheduler.complete(step)
        self.steps.append(step)
        self.num_shared += step.num_shared_in_pass
        for row, request, ids in zip(step.plan.rows, step.requests, sequences, strict=True):
            end = row.start + len(row.token_ids)
            assert np.array_equal(ids, request.ids[:end]), "the pool holds another sequence than the request"
            self.num_computed += max(0, min(end, request.prompt_len) - row.start)
            if end < request.len:
                assert row.num_logits == request.num_logits(row.start, end)
            elif request.max_new_tokens == 0:
                self.scheduler.finish(request)
            else:
                request.append(hash(tuple(ids.tolist())) % 97)
                if request.num_remaining == 0:
                    self.scheduler.finish(request)
        for request in step.cached:
            self.scheduler.finish(request)
        self.scheduler.cache.check([request.lease for request in self.scheduler.running if request.lease is not None])
        return step

    def run(self, max_steps: int = 10_000) -> None:
        while self.scheduler.has_work:
            assert len(self.steps) < max_steps, "the scheduler does not come to an end"
            self.step()


def outputs(requests: Sequence[Request]) -> list[list[int]]:
    return [request.ids[request.prompt_len :].tolist() for request in requests]


def distinct_edges(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens of the prompts' radix tree."""
    return len({tuple(prompt[: n + 1]) for prompt in prompts for n in range(len(prompt))})


def tree_prompts(rng: random.Random, num: int, *, depth: int = 4, fan_out: int = 3, run_len: int = 6) -> list[list[int]]:
    """Distinct prompts that share prefixes at random: paths of a tree whose edges are runs of tokens, a unique leaf at the end."""
    prompts = []
    for leaf in range(num):
        path: list[int] = []
        for level in range(rng.randint(0, depth)):
            branch = rng.randrange(fan_out)
            path += [1000 * level + 100 * branch + i for i in range(run_len)]
        prompts.append([*path, 50_000 + leaf, *(rng.randrange(90) for _ in range(rng.randint(0, 5)))])
    return prompts


def test_sharers_of_one_step_compute_each_token_once() -> None:
    prompts = [[*range(100), 200 + i, 300 + i] for i in range(8)]
    sim = Simulation(1000)
    requests = [Request(f"r{i}", prompt, 3) for i, prompt in enumerate(prompts)]
    sim.submit(requests)
    sim.step()
    assert sim.num_computed == distinct_edges(prompts) == 116
    assert sim.num_shared == 7 * 100
    assert sorted(request.num_cached for request in requests) == [0] + [100] * 7
    sim.run()
    alone = Simulation(1000, cached=False)
    plain = [Request(f"r{i}", prompt, 3) for i, prompt in enumerate(prompts)]
    alone.submit(plain)
    alone.run()
    assert outputs(requests) == outputs(plain)
    assert alone.num_computed == 8 * 102 and all(request.num_cached == 0 for request in plain)


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_a_long_shared_prefix_is_computed_once_whatever_the_chunk_size(chunk: int) -> None:
    prompts = [[*range(100), 200 + i] for i in range(6)]
    sim = Simulation(1000, chunked_prefill_size=chunk)
    requests = [Request(f"r{i}", prompt, 4) for i, prompt in enumerate(prompts)]
    sim.submit(requests)
    sim.run()
    assert sim.num_computed == 106
    assert sum(request.num_cached for request in requests) == sum(map(len, prompts)) - 106
    for step in sim.steps:
        prefill = sum(len(row.token_ids) for row, r in zip(step.plan.rows, step.requests, strict=True) if row.start < r.prompt_len)
        assert prefill <= chunk


def test_rows_stand_in_depth_first_order() -> None:
    rng = random.Random(3)
    prompts = tree_prompts(rng, 30)
    rng.shuffle(prompts)
    sim = Simulation(4000)
    sim.submit([Request(f"r{i}", prompt, 8) for i, prompt in enumerate(prompts)])
    for _ in range(3):
        step = sim.step()
        seen: dict[int, int] = {}
        for index, row in enumerate(step.plan.rows):
            for span in row.context:
                if span.key >= 0 and span.key in seen:
                    assert seen[span.key] == index - 1, "rows that share a span stand next to each other"
                seen[span.key] = index


def test_the_computing_request_is_aborted_and_a_sharer_takes_over() -> None:
    sim = Simulation(1000, chunked_prefill_size=20)
    first, second = Request("a", [*range(100), 1], 2), Request("b", [*range(100), 2], 2)
    sim.submit([first, second])
    sim.step()
    assert {row.request_id for row in sim.steps[-1].plan.rows} == {"a"}
    sim.step()  # 40 tokens are there
    sim.scheduler.finish(first)
    sim.run()
    assert (first.num_prompt_computed, second.num_prompt_computed) == (40, 61)
    assert second.num_cached == 40


@pytest.mark.parametrize("order", ["lpm", "dfs-weight", "fcfs", "random", "priority"])
def test_every_order_gives_the_same_outputs_and_finishes(order: str) -> None:
    prompts = tree_prompts(random.Random(5), 40)
    sim = Simulation(400, schedule_policy=order, chunked_prefill_size=33, max_running_requests=9)
    requests = [Request(f"r{i}", prompt, 1 + i % 7, priority=i % 3) for i, prompt in enumerate(prompts)]
    sim.submit(requests)
    sim.run()
    plain = Simulation(4000, cached=False)
    expected = [Request(f"r{i}", prompt, 1 + i % 7) for i, prompt in enumerate(prompts)]
    plain.submit(expected)
    plain.run()
    assert outputs(requests) == outputs(expected)
    assert all(request.status is Status.ENDED for request in requests)


@pytest.mark.parametrize("first_logit", [None, 4])
def test_a_twin_fills_the_promise_that_a_request_waits_for(first_logit: int | None) -> None:
    """A request draws just what another has as its prompt, and ends first: the logits that the other wants are still computed."""
    drawn = Simulation(1000)
    writer = Request("writer", [1, 2, 3], 9)
    drawn.submit([writer])
    drawn.run()
    prompt = writer.ids[:10].tolist()
    sim = Simulation(1000, chunked_prefill_size=1)
    again, reader = Request("again", [1, 2, 3], 9), Request("reader", prompt, 3, first_logit=first_logit)
    sim.submit([again])
    for _ in range(8):
        sim.step()
    sim.submit([reader])
    rows = []
    renewed: list[Request] = []
    renew = sim.scheduler._renew

    def spy(request: Request) -> bool:
        renewed.append(request)
        return renew(request)

    sim.scheduler._renew = spy  # type: ignore[method-assign]
    while sim.scheduler.has_work:
        rows += [row for row in sim.step().plan.rows if row.request_id == "reader"]
    assert renewed == [reader]
    assert sum(row.num_logits for row in rows) == (1 if first_logit is None else 6) + 2
    alone = Simulation(1000, cached=False)
    expected = Request("expected", prompt, 3)
    alone.submit([expected])
    alone.run()
    assert outputs([reader]) == outputs([expected])


def test_priority_goes_first() -> None:
    sim = Simulation(100, schedule_policy="priority", max_running_requests=1)
    sim.submit([Request(name, [10 + i], 1, priority=p) for i, (name, p) in enumerate([("low", 0), ("high", 5), ("mid", 2)])])
    sim.run()
    assert [request.request_id for request in sim.admitted] == ["high", "mid", "low"]


@pytest.mark.parametrize("seed", range(20))
def test_lpm_reaches_the_optimal_hit_rate(seed: int) -> None:
    """Theorem 3.1: a cache of the longest request's size, a batch that arrives together: each edge of its tree is computed once."""
    rng = random.Random(seed)
    prompts = tree_prompts(rng, 40)
    rng.shuffle(prompts)
    sim = Simulation(max(map(len, prompts)), schedule_policy="lpm", fairness_budget=None)
    requests = [Request(f"r{i}", prompt, 1) for i, prompt in enumerate(prompts)]
    sim.submit(requests)
    sim.run()
    total = sum(map(len, prompts))
    optimum = 1 - distinct_edges(prompts) / total
    assert sum(request.num_cached for request in requests) / total == pytest.approx(optimum)
    assert sim.num_computed == distinct_edges(prompts)


def test_first_come_first_served_does_not_reach_it() -> None:
    prompts = tree_prompts(random.Random(0), 40)
    random.Random(0).shuffle(prompts)
    sim = Simulation(max(map(len, prompts)), schedule_policy="fcfs")
    sim.submit([Request(f"r{i}", prompt, 1) for i, prompt in enumerate(prompts)])
    sim.run()
    assert sim.num_computed > distinct_edges(prompts)


def record_overtaking(sim: Simulation) -> dict[str, int]:
    """Prefill tokens of later arrivals admitted before each request, counted here and not by the queue."""
    overtaken: dict[str, int] = {}
    waiting = sim.scheduler.waiting
    admit = waiting.admit

    def spy(request: Request, prefill_len: int) -> None:
        if request.num_retractions == 0:
            for other in waiting:
                if other.sequence < request.sequence and other.num_retractions == 0:
                    overtaken[other.request_id] = overtaken.get(other.request_id, 0) + prefill_len
        admit(request, prefill_len)

    waiting.admit = spy  # type: ignore[method-assign]
    return overtaken


def adversary(fairness_budget: int | None, steps: int, own_len: int = 1) -> tuple[Simulation, Request]:
    """A cold request waits while each step brings one with a long hit, and there is room for one at a time."""
    sim = Simulation(3000, max_running_requests=1, fairness_budget=fairness_budget)
    sim.overtaken = record_overtaking(sim)
    hot = list(range(1000))
    sim.submit([Request("warm", hot, 1)])
    sim.run()
    cold = Request("cold", [9000 + i for i in range(50)], 1)
    sim.submit([Request("hot0", [*hot, 2000], 1), cold])
    for i in range(1, steps):
        sim.submit([Request(f"hot{i}", [*hot, *(2000 + i + 1000 * k for k in range(own_len))], 1)])
        sim.step()
        if cold.status is Status.ENDED:
            break
    return sim, cold


def test_a_cold_request_is_not_starved() -> None:
    """Case SC-05: at most `fairness_budget` prefill tokens overtake; without the bound it waits as long as hot traffic lasts."""
    sim, cold = adversary(fairness_budget=30, steps=200)
    assert cold.status is Status.ENDED
    assert sim.overtaken["cold"] == 30 and len(sim.admitted) <= 1 + 1 + 31 + 1
    wide, behind = adversary(fairness_budget=120, steps=200, own_len=50)
    assert behind.status is Status.ENDED and wide.overtaken["cold"] == 100, "two of fifty tokens each; a third would be too many"
    _, starved = adversary(fairness_budget=None, steps=200)
    assert starved.status is Status.WAITING


@pytest.mark.parametrize("order", ["lpm", "dfs-weight", "random", "priority"])
@pytest.mark.parametrize("seed", range(6))
def test_the_fairness_bound_holds_under_any_arrival(order: str, seed: int) -> None:
    rng = random.Random(seed)
    budget = rng.choice([0, 10, 60])
    sim = Simulation(
        300, schedule_policy=order, max_running_requests=rng.choice([1, 3, 8]), fairness_budget=budget, chunked_prefill_size=40
    )
    overtaken = record_overtaking(sim)
    prompts = tree_prompts(rng, 120)
    requests = [Request(f"r{i}", prompt, rng.randint(1, 6), priority=rng.randrange(3)) for i, prompt in enumerate(prompts)]
    waiting = list(requests)
    while waiting or sim.scheduler.has_work:
        arriving = waiting[: rng.randrange(6)]
        waiting = waiting[len(arriving) :]
        sim.submit(arriving)
        sim.step()
    assert all(tokens <= budget for tokens in overtaken.values())
    assert all(request.status is Status.ENDED for request in requests)


def test_siblings_are_admitted_together() -> None:
    sim = Simulation(1000, max_running_requests=100, schedule_policy="fcfs")
    sim.submit([Request("x", [1, 2], 1, group_id="g"), Request("y", [3, 4], 1), Request("z", [5, 6], 1, group_id="g")])
    sim.step()
    assert [request.request_id for request in sim.admitted] == ["x", "z", "y"]


@pytest.mark.parametrize("options", [{"max_running_requests": 1}, {"chunked_prefill_size": 5}])
def test_siblings_stay_together_over_several_passes(options: dict[str, int]) -> None:
    sim = Simulation(1000, schedule_policy="fcfs", **options)
    names = [("x", "g"), ("y", None), ("z", "g"), ("v", "h"), ("w", "g")]
    sim.submit([Request(name, [10 * i + k for k in range(5)], 2, group_id=group) for i, (name, group) in enumerate(names)])
    sim.run()
    assert [request.request_id for request in sim.admitted] == ["x", "z", "w", "y", "v"]


def test_decoding_goes_on_beside_a_long_prompt() -> None:
    sim = Simulation(1000, chunked_prefill_size=10)
    writers = [Request(f"w{i}", [i, i + 50], 30) for i in range(5)]
    sim.submit(writers)
    sim.step()
    long = Request("long", [200 + i for i in range(100)], 1)
    sim.submit([long])
    first = len(sim.steps)
    while long.status is not Status.ENDED:
        step = sim.step()
        rows = {row.request_id: len(row.token_ids) for row in step.plan.rows}
        assert all(rows[writer.request_id] == 1 for writer in writers), "one token each, in every step"
        assert rows["long"] == 10, "the whole budget is the prompt's"
    assert len(sim.steps) - first == 10
    early = Request("early", [500 + i for i in range(40)], 1)
    late = Request("late", [7, 8], 20)
    sim = Simulation(1000, chunked_prefill_size=10)
    sim.submit([early])
    sim.step()
    sim.submit([late])
    sim.run()
    assert late.num_output == 20


def test_room_is_kept_for_tokens_still_to_be_drawn() -> None:
    sim = Simulation(90)
    sim.submit([Request("long", [1] * 10, 80), Request("also", [2] * 10, 80)])
    sim.step()
    assert [request.request_id for request in sim.admitted] == ["long"], "both prompts fit, what they may draw does not"
    sim.run()
    assert len(sim.admitted) >= 2


def test_memory_runs_out_and_the_youngest_is_retracted_not_dropped() -> None:
    sim = Simulation(60, max_running_requests=8)
    requests = [Request(f"r{i}", [100 * i + k for k in range(10)], 30) for i in range(5)]
    sim.submit(requests)
    sim.run()
    assert sim.scheduler.num_retractions > 0
    assert all(request.num_output == 30 for request in requests)
    plain = Simulation(1000, cached=False)
    expected = [Request(f"r{i}", [100 * i + k for k in range(10)], 30) for i in range(5)]
    plain.submit(expected)
    plain.run()
    assert outputs(requests) == outputs(expected)


def test_a_prefix_that_is_only_cached_needs_no_step_when_it_is_there() -> None:
    sim = Simulation(100)
    prompt = list(range(20))
    hint = Request("hint", prompt, 0)
    sim.submit([hint])
    sim.run()
    assert hint.num_prompt_computed == 20 and sim.steps[0].plan.num_logits == 0
    again = Request("again", prompt, 0)
    sim.submit([again])
    step = sim.step()
    assert step.plan.rows == () and again.num_cached == 20 and again.status is Status.ENDED


def test_logits_are_wanted_from_the_first_position_asked_for() -> None:
    sim = Simulation(100, chunked_prefill_size=6)
    request = Request("r", list(range(20)), 1, first_logit=8)
    sim.submit([request])
    sim.run()
    assert [(row.start, len(row.token_ids), row.num_logits) for step in sim.steps for row in step.plan.rows] == [
        (0, 6, 0),
        (6, 6, 4),
        (12, 6, 6),
        (18, 2, 2),
    ]
    again = Request("s", list(range(20)), 1, first_logit=8)
    sim.submit([again])
    sim.run()
    assert again.num_cached == 8 and again.num_prompt_computed == 12


@pytest.mark.parametrize("seed", range(8))
def test_random_traffic_with_aborts(seed: int) -> None:
    """Arrivals, aborts at any moment, tight memory, small chunks: outputs never change and every slot comes back."""
    rng = random.Random(seed)
    num_slots = rng.choice([90, 150, 400])
    sim = Simulation(
        num_slots,
        max_running_requests=rng.choice([2, 6, 20]),
        chunked_prefill_size=rng.choice([3, 16, 200]),
        schedule_policy=rng.choice(["lpm", "dfs-weight", "fcfs"]),
        fairness_budget=rng.choice([None, 20, 1000]),
    )
    prompts = [p[:40] for p in tree_prompts(rng, 60)]
    prompts += [list(rng.choice(prompts)) for _ in range(20)]  # identical ones too
    requests = [Request(f"r{i}", p, rng.randint(0, 20), group_id=rng.choice([None, "a", "b"])) for i, p in enumerate(prompts)]
    waiting = list(requests)
    aborted: set[str] = set()
    while waiting or sim.scheduler.has_work:
        arriving = waiting[: rng.randrange(4)]
        waiting = waiting[len(arriving) :]
        sim.submit(arriving)
        if sim.scheduler.has_work:
            sim.step()
        alive = [*sim.scheduler.waiting, *sim.scheduler.running]
        if alive and rng.random() < 0.15:
            victim = rng.choice(alive)
            aborted.add(victim.request_id)
            sim.scheduler.finish(victim)
    plain = Simulation(10_000, cached=False, max_running_requests=1000)
    expected = [Request(r.request_id, r.ids[: r.prompt_len], r.max_new_tokens) for r in requests]
    plain.submit(expected)
    plain.run()
    for request, twin in zip(requests, expected, strict=True):
        if request.request_id in aborted:
            assert outputs([request])[0] == outputs([twin])[0][: request.num_output]
        else:
            assert outputs([request]) == outputs([twin])
    sim.scheduler.cache.check([])
    sim.scheduler.cache.flush()
    assert sim.scheduler.cache.slots.num_free == num_slots
