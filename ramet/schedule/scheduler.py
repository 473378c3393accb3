"""Each step: who keeps running, who is admitted, and which tokens are computed against which part of the tree.

The scheduler owns small managers (waiting queue, running set, headroom) and never sees a tensor. It is driven in a fixed round:

    plan()  ->  the step runs  ->  complete(step)  ->  append / finish / abort, in any order  ->  plan() ...
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ramet.cache import CacheManager
from ramet.config import ScheduleOptions
from ramet.schedule.admit import Headroom
from ramet.schedule.plan import Plan, Row, Span
from ramet.schedule.policy import ORDERS, View
from ramet.schedule.request import Request, Status
from ramet.schedule.running import RunningSet
from ramet.schedule.waiting import WaitingQueue


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What one step computes. `requests` belong to the rows of the plan; `cached` need no row: all they asked for is computed."""

    plan: Plan
    requests: tuple[Request, ...]
    cached: tuple[Request, ...]
    num_shared_in_pass: int  # context tokens that rows read although another row of this very step writes them


class Scheduler:
    """Continuous batching over a forest: decode rows, chunks of prompts and sharers of both in one step."""

    def __init__(self, options: ScheduleOptions, cache: CacheManager, rng: random.Random) -> None:
        self.cache = cache
        self.options = options
        self.waiting = WaitingQueue(ORDERS.get(options.schedule_policy), View(cache, rng), options.fairness_budget)
        self.running = RunningSet()
        self.headroom = Headroom()
        self.num_retractions = 0

    @property
    def has_work(self) -> bool:
        """Whether any request waits or runs."""
        return len(self.waiting) > 0 or len(self.running) > 0

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue new requests. Each must fit the pool on its own: the engine has refused those that never could."""
        for request in requests:
            assert request.prompt_len + max(0, request.max_new_tokens - 1) <= self.cache.num_slots, f"{request} can never fit"
        self.waiting.add(requests)

    def plan(self) -> Step:
        """Decide the next step: slots for the tokens just drawn, then newcomers, then rows within the token budget."""
        self._give_slots()
        self._admit()
        step = self._rows()
        if not step.plan.rows and not step.cached and len(self.waiting):
            self._admit()  # the last running request was just retracted: there is room now
            step = self._rows()
        self.headroom.on_step()
        return step

    def complete(self, step: Step) -> None:
        """Note that the step has run: its keys and values are in the pool."""
        for row, request in zip(step.plan.rows, step.requests, strict=True):
            assert request.lease is not None
            self.cache.mark_computed(request.lease, row.start + len(row.token_ids))
            covered = min(row.start + len(row.token_ids), request.prompt_len)
            request.num_prompt_computed += max(0, covered - row.start)
            request.num_prompt_covered = max(request.num_prompt_covered, covered)
            request.num_seen = row.start + len(row.token_ids)
            request.num_once_computed = max(request.num_once_computed, request.num_seen)

    def rewrite(self, request: Request, length: int, token_ids: Sequence[int], *, wants_logits: bool) -> None:
        """Put other tokens in the place of a running request's output from position `length` on.

        What was computed of the old ones is freed; where it lies in the tree, it stays cached there and the request takes a new lease,
        for which it is retracted when there is no room.
        """
        assert request.status is Status.RUNNING and request.lease is not None
        num_kept = length - wants_logits  # the logits that predict the first new token come with the token before it
        if num_kept >= request.lease.path_len:
            self.cache.truncate(request.lease, num_kept)
            request.cut(length)
            request.extend(token_ids, wants_logits=wants_logits)
            return
        self.cache.release(request.lease, request.ids)
        request.cut(length)
        request.extend(token_ids, wants_logits=wants_logits)
        request.lease = self.cache.reserve(request.ids, request.max_match_len, request.salt)
        if request.lease is None:
            self.running.remove(request)
            self._put_back(request)

    def finish(self, request: Request) -> None:
        """End a request, running or waiting; what it computed stays cached."""
        if request.status is Status.RUNNING:
            self._release(request)
        else:
            assert request.status is Status.WAITING
            self.waiting.remove(request)
        request.status = Status.ENDED

    def _release(self, request: Request) -> None:
        assert request.lease is not None
        self.running.remove(request)
        self.cache.release(request.lease, request.ids)
        request.lease = None

    def _give_slots(self) -> None:
        """A slot for every token drawn in the last step; short of memory, the youngest request is retracted."""
        for request in list(self.running):
            while request.status is Status.RUNNING:
                assert request.lease is not None
                needed = request.num_without_slot
                if needed == 0 or self.cache.extend(request.lease, needed):
                    break
                assert len(self.running) > 1, f"{request} runs alone and does not fit the pool"
                self._retract(self.running.youngest())

    def _retract(self, request: Request) -> None:
        self._release(request)
        self._put_back(request)

    def _put_back(self, request: Request) -> None:
        request.num_seen = 0
        request.is_parked = False
        request.num_retractions += 1
        self.num_retractions += 1
        self.headroom.on_retraction()
        self.waiting.add_retracted(request)

    def _renew(self, request: Request) -> bool:
        """Take a lease anew for a request whose promised tokens a finished twin has filled, the one with the wanted logits among them.

        That token is then computed once more, privately. False when there is no slot for it: the request is retracted.
        """
        assert request.lease is not None
        self.cache.release(request.lease, request.ids)
        request.lease = self.cache.reserve(request.ids, request.next_logit, request.salt)
        if request.lease is not None:
            return True
        self.running.remove(request)
        self._put_back(request)
        return False

    def _admit(self) -> None:
        """Move requests from waiting to running while slots, places and this step's token budget last."""
        if not len(self.waiting) or len(self.running) >= self.options.max_running_requests:
            return
        budget = self.options.chunked_prefill_size - sum(self._num_missing(request) for request in self.running)
        if budget <= 0:
            return
        self.waiting.start_pass()
        while len(self.running) < self.options.max_running_requests and budget > 0:
            request = self.waiting.head(self._prefill_len)
            if request is None:
                return
            prefill_len = self._prefill_len(request)
            headroom = self.headroom.tokens(self.running, request)
            lease = self.cache.reserve(request.ids, request.max_match_len, request.salt, headroom)
            if lease is None:
                return
            request.lease = lease
            self.waiting.admit(request, prefill_len)
            self.running.add(request)
            budget -= prefill_len

    def _prefill_len(self, request: Request) -> int:
        return request.len - self.cache.peek(request.ids[: request.max_match_len], request.salt)[1]

    def _num_missing(self, request: Request) -> int:
        """Tokens of a running request that still have to be computed, the one it just drew aside."""
        assert request.lease is not None
        missing = request.len - self.cache.first_missing(request.lease)
        return 0 if missing == 1 and request.num_output > 0 else missing

    def _rows(self) -> Step:
        """Rows for all running requests: one token each for those that decode, the rest of the budget for tokens that are known ahead.

        Among those the outputs come before the prompts: a forced run is short, and others wait for it less than it would for them.
        """
        budget = self.options.chunked_prefill_size
        chosen: list[tuple[tuple[int, ...], Row, Request]] = []
        cached: list[Request] = []
        private_keys = itertools.count(-1, -1)
        num_shared = 0
        for request in sorted(self.running, key=lambda request: request.num_output == 0):
            if request.is_parked:
                continue
            assert request.lease is not None
            if self.cache.first_missing(request.lease) > request.next_logit and not self._renew(request):
                continue
            lease = request.lease
            start = self.cache.first_missing(lease)
            missing = request.len - start
            if missing == 0:
                # Its prefix may still be promised by a row of this step; then it ends with a later one.
                if self.cache.is_computed(lease):
                    request.num_prompt_covered = request.prompt_len
                    cached.append(request)
                continue
            is_decode = missing == 1 and request.num_output > 0
            end = request.len if is_decode else start + min(missing, budget)
            if end == start:
                continue
            if not is_decode:
                budget -= end - start
            num_shared += start - self._num_computed(request)
            self.cache.plan(lease, end)
            chosen.append((tuple(node.uid for node in lease.node.path()), self._row(request, start, end, private_keys), request))
        chosen.sort(key=lambda item: item[0])
        plan = Plan(tuple(row for _, row, _ in chosen))
        return Step(plan, tuple(request for _, _, request in chosen), tuple(cached), num_shared)

    def _num_computed(self, request: Request) -> int:
        """Leading tokens of a running request whose keys and values are in the pool already."""
        lease = request.lease
        assert lease is not None
        position = 0
        for node in lease.node.path():
            assert node.value is not None
            position += node.value.num_computed
            if node.value.num_computed < len(node.key):
                return position
        return position + lease.num_tail_computed

    def _row(self, request: Request, start: int, end: int, private_keys: itertools.count[int]) -> Row:
        """The tokens start .. end of a request, with the spans before them. A node cut by `start` gives a span of this row alone."""
        lease = request.lease
        assert lease is not None
        context: list[Span] = []
        own: list[np.ndarray] = []
        position = 0
        for node in lease.node.path():
            assert node.value is not None
            slots, length = node.value.slots, len(node.key)
            if position + length <= start:
                context.append(Span(node.uid, position, slots))
            elif position < start:
                context.append(Span(next(private_keys), position, slots[: start - position]))
            if position + length > start and position < end:
                own.append(slots[max(start - position, 0) : end - position])
            position += length
        if start > position:
            context.append(Span(next(private_keys), position, lease.tail_slots[: start - position]))
        if end > position:
            own.append(lease.tail_slots[max(start - position, 0) : end - position])
        return Row(
            request_id=request.request_id,
            start=start,
            token_ids=request.ids[start:end].copy(),
            slots=np.concatenate(own) if len(own) > 1 else own[0].copy(),
            context=tuple(context),
            num_logits=request.num_logits(start, end),
        )
