"""One step of the engine, from waiting requests to new tokens. Scheduler and executor meet here and nowhere else.

1 plan     the scheduler picks rows                       Plan
2 run      the executor computes them                     logits
3 sample   rules and a draw, for rows that reached the end of what is known
4 finish   stop rules, text, commit or go on              Chunk | Failed
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ramet.constraint.base import Matcher
from ramet.engine.constraints import Constraints
from ramet.engine.limits import Limits
from ramet.engine.stats import Stats
from ramet.errors import EngineBusy, InvalidConstraint, QueueFull, StopPatternTooSlow
from ramet.messages import Chunk, Counts, Failed, FinishReason, GenerateRequest, TokenLogprob
from ramet.sampling.logprobs import prompt_logprobs
from ramet.sampling.sampler import Sampled, Sampler, SampleRow
from ramet.sampling.stop import StopChecker
from ramet.schedule.request import Request
from ramet.schedule.scheduler import Scheduler, Step
from ramet.tokenizer import IncrementalDetokenizer, Tokenizer

if TYPE_CHECKING:
    from ramet.execute.runner import Runner


@dataclass(slots=True, eq=False)
class _Live:
    """Everything about one open request that the scheduler need not know."""

    message: GenerateRequest
    request: Request
    row: SampleRow
    stop: StopChecker
    detokenizer: IncrementalDetokenizer
    input_logprobs: list[TokenLogprob | None] = field(default_factory=list)  # from start_len on; None: not computed yet
    is_input_sent: bool = False
    matcher: Matcher | None = None
    output_ids: list[int] = field(default_factory=list)


class EngineCore:
    """Owns the open requests; not thread-safe, driven by one loop."""

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        sampler: Sampler,
        tokenizer: Tokenizer,
        limits: Limits,
        constraints: Constraints,
        eos_ids: tuple[int, ...],
        rng: random.Random,
    ) -> None:
        self.stats = Stats()
        self.scheduler = scheduler
        self._runner = runner
        self._sampler = sampler
        self._tokenizer = tokenizer
        self._limits = limits
        self._constraints = constraints
        self._eos_ids = eos_ids
        self._rng = rng
        self._live: dict[str, _Live] = {}

    @property
    def has_work(self) -> bool:
        """Whether any request is open."""
        return bool(self._live)

    def submit(self, messages: Sequence[GenerateRequest]) -> list[Chunk | Failed]:
        """Take in requests that arrived together; they have passed `Limits.check`. Beyond the queue's limit all of them fail."""
        options = self.scheduler.options
        if options.max_queued_requests is not None:
            num_queued = len(self.scheduler.waiting)
            num_free = max(0, options.max_running_requests - len(self.scheduler.running))
            if num_queued + len(messages) > options.max_queued_requests + num_free:
                return [Failed(message.request_id, QueueFull(num_queued, options.max_queued_requests)) for message in messages]
        requests: list[Request] = []
        failed: list[Chunk | Failed] = []
        for message in messages:
            try:
                live = self._open(message)
            except InvalidConstraint as error:  # compiled before in the caller's thread, but the cache may have dropped it since
                failed.append(Failed(message.request_id, error))
                continue
            self._live[message.request_id] = live
            requests.append(live.request)
            self.stats.num_requests += 1
        self.scheduler.submit(requests)
        return failed

    def abort(self, request_id: str) -> list[Chunk | Failed]:
        """End a request, or all samples of one, where it stands; what is computed stays cached. Nothing happens when it has ended."""
        lives = [live for live in self._live.values() if request_id in (live.message.request_id, live.message.sample_of)]
        self.stats.num_aborted += len(lives)
        return [self._end(live, (), (), is_aborted=True) for live in lives]

    def flush(self) -> int:
        """Drop all cached tokens; gives how many. Raises EngineBusy while requests are open."""
        if self._live:
            raise EngineBusy(f"the cache cannot be flushed while {len(self._live)} requests are open: wait for them or abort them")
        return self.scheduler.cache.flush()

    def check(self) -> None:
        """Recount the pool; call it when idle."""
        assert not self._live and not self.scheduler.has_work, "requests are open"
        self.scheduler.cache.check([])

    def step(self) -> list[Chunk | Failed]:
        """Run one step and give what it brought."""
        step = self.scheduler.plan()
        self._count(step)
        out: list[Chunk | Failed] = []
        if step.plan.rows:
            logits = self._runner.run(step.plan)
            self.scheduler.complete(step)
            out.extend(self._use(step, logits))
        else:
            assert step.cached, "requests are open and none can move: the scheduler is stuck"
        for request in step.cached:
            out.append(self._end_prefill_only(self._live[request.request_id]))
        return out

    def _open(self, message: GenerateRequest) -> _Live:
        params = message.params
        max_new_tokens = self._limits.max_new_tokens(message)
        if max_new_tokens != params.max_new_tokens:
            params = params.with_changes(max_new_tokens=max_new_tokens, min_new_tokens=min(params.min_new_tokens, max_new_tokens))
        # A stop string that is a special token never shows in the text when those are skipped; its id stops all the same.
        special = [self._tokenizer.token_to_id(text) for text in params.stop]
        special_ids = tuple(i for i in special if i is not None and i in self._tokenizer.special_ids and i not in params.stop_token_ids)
        if special_ids:
            params = params.with_changes(stop_token_ids=(*params.stop_token_ids, *special_ids))
        prompt_len = len(message.prompt_ids)
        compute_ids: Sequence[int] = message.prompt_ids
        first_logit: int | None = None
        input_logprobs: list[TokenLogprob | None] = []
        start_len = message.logprobs.start_len
        if message.logprobs.is_wanted and 0 <= start_len < prompt_len:
            first_logit = max(start_len - 1, 0)
            input_logprobs = [None] * (prompt_len - start_len)
            if start_len == 0:
                input_logprobs[0] = TokenLogprob(message.prompt_ids[0], None)
            if max_new_tokens == 0 and prompt_len > 1:
                compute_ids = message.prompt_ids[:-1]  # nothing looks at what would follow the last token
        request = Request(
            message.request_id,
            list(compute_ids),
            max_new_tokens,
            first_logit=first_logit,
            priority=message.priority,
            salt=message.cache_salt,
            group_id=message.group_id,
        )
        seed = params.sampling_seed if params.sampling_seed is not None else self._rng.getrandbits(63)
        output_ids: list[int] = []
        row = SampleRow(
            params=params,
            logprobs=message.logprobs,
            prompt_ids=message.prompt_ids,
            output_ids=output_ids,
            position=prompt_len,
            seed=seed,
            eos_ids=self._eos_ids,
            allowed=None,
        )
        detokenizer = IncrementalDetokenizer(
            self._tokenizer,
            skip_special_tokens=params.skip_special_tokens,
            spaces_between_special_tokens=params.spaces_between_special_tokens,
            prompt_ids=message.prompt_ids,
        )
        stop = StopChecker(params, self._eos_ids)
        compiled = self._constraints.compile(params)
        matcher = None if compiled is None else compiled.matcher()
        return _Live(message, request, row, stop, detokenizer, input_logprobs, output_ids=output_ids, matcher=matcher)

    def _count(self, step: Step) -> None:
        stats = self.stats
        stats.num_steps += 1
        stats.num_shared_in_pass += step.num_shared_in_pass
        stats.num_retractions = self.scheduler.num_retractions
        stats.num_evicted_tokens = self.scheduler.cache.num_evicted
        stats.max_running = max(stats.max_running, len(self.scheduler.running))
        num_decode = num_prefill = 0
        for row, request in zip(step.plan.rows, step.requests, strict=True):
            end = row.start + len(row.token_ids)
            num_prompt = max(0, min(end, request.prompt_len) - row.start)
            if num_prompt:
                num_prefill += num_prompt
                stats.num_computed_tokens += num_prompt
            elif len(row.token_ids) == 1:
                num_decode += 1
            stats.num_recomputed_tokens += max(0, min(end, request.len - 1) - max(row.start, request.prompt_len))
            stats.num_chunked_rows += end < request.len
        stats.num_mixed_steps += num_decode > 0 and num_prefill > 0

    def _use(self, step: Step, logits: Tensor) -> list[Chunk | Failed]:
        """Collect prompt logprobs, draw tokens and end what is done."""
        out: list[Chunk | Failed] = []
        drawing: list[_Live] = []
        indices: list[int] = []
        offset = 0
        for row, request in zip(step.plan.rows, step.requests, strict=True):
            live = self._live[request.request_id]
            end = row.start + len(row.token_ids)
            if row.num_logits and request.num_output == 0 and live.input_logprobs:
                self._take_input_logprobs(live, logits[offset : offset + row.num_logits], end - row.num_logits)
            offset += row.num_logits
            if end < request.len:
                continue
            failure = self._mask(live)
            if request.max_new_tokens == 0:
                out.append(self._end_prefill_only(live))
            elif failure is not None:
                out.append(failure)
            else:
                drawing.append(live)
                indices.append(offset - 1)
        assert offset == len(logits), "the executor gave another number of logits than the plan asks for"
        if drawing:
            chosen = logits if len(indices) == len(logits) else logits[torch.tensor(indices, device=logits.device)]
            for live in drawing:
                live.row.position = live.request.len
            for live, sampled in zip(drawing, self._sampler.sample(chosen, [live.row for live in drawing]), strict=True):
                out.append(self._accept(live, sampled))
        return out

    def _mask(self, live: _Live) -> Failed | None:
        """Put the tokens that a constraint allows next into the row; a constraint that cannot go on fails its request alone."""
        if live.matcher is None:
            return None
        try:
            live.row.allowed = live.matcher.mask()
        except InvalidConstraint as error:
            self._drop(live)
            return Failed(live.request.request_id, error)
        return None

    def _take_input_logprobs(self, live: _Live, logits: Tensor, start: int) -> None:
        """Row i of `logits` stands at position start + i and predicts the token after it."""
        ids, start_len = live.message.prompt_ids, live.message.logprobs.start_len
        positions = [p for p in range(start, start + len(logits)) if start_len <= p + 1 < len(ids)]
        if not positions:
            return
        first = positions[0]
        targets = [ids[p + 1] for p in positions]
        rows = logits[first - start : first - start + len(positions)]
        values = prompt_logprobs(rows, targets, live.message.logprobs, self._limits.num_valid_ids)
        for i, value in enumerate(values):
            live.input_logprobs[first + 1 + i - start_len] = value

    def _accept(self, live: _Live, sampled: Sampled) -> Chunk | Failed:
        """Add a drawn token to its request; gives the chunk for it, the last one if a stop rule says so."""
        token_id = sampled.token_id
        live.request.append(token_id)
        live.output_ids.append(token_id)
        self.stats.num_output_tokens += 1
        try:
            live.stop.push(token_id, live.detokenizer.push((token_id,)))
            self._follow_constraint(live, token_id)
        except (StopPatternTooSlow, InvalidConstraint) as error:  # the caller's pattern costs too much: no one else shall pay for it
            self._drop(live)
            return Failed(live.request.request_id, error)
        logprobs = (sampled.logprob,) if sampled.logprob is not None else ()
        if live.stop.finish is None:
            return self._chunk(live, live.stop.release(), (token_id,), None, logprobs)
        return self._end(live, (token_id,), logprobs)

    def _follow_constraint(self, live: _Live, token_id: int) -> None:
        """Move the constraint on by a token, and end the request when nothing may follow, with `ignore_eos` too."""
        matcher = live.matcher
        if matcher is None:
            return
        matcher.accept(token_id)
        is_complete = matcher.is_finished
        if not is_complete and not self._eos_ids and matcher.is_final:  # a model without any id that ends a text
            mask = matcher.mask()
            is_complete = mask is None or not bool(mask.any())
        if is_complete:
            live.stop.end(FinishReason("stop", matched=token_id))

    def _end_prefill_only(self, live: _Live) -> Chunk:
        self.stats.num_prefix_hints += not live.input_logprobs
        return self._end(live, (), ())

    def _end(self, live: _Live, token_ids: tuple[int, ...], logprobs: tuple[TokenLogprob, ...], *, is_aborted: bool = False) -> Chunk:
        """End a request: its computed tokens go to the tree, its last text goes out."""
        request = live.request
        tail = live.detokenizer.flush()
        finish = live.stop.add_tail(tail) if tail else live.stop.finish
        text = live.stop.release_rest()
        if is_aborted:
            finish = FinishReason("abort")
        assert finish is not None, f"{request} is ended and no rule says why"
        chunk = self._chunk(live, text, token_ids, finish, logprobs)
        self._drop(live)
        self.stats.num_finished += 1
        self.stats.num_prompt_tokens += request.prompt_len
        self.stats.num_cached_tokens += chunk.counts.num_cached
        return chunk

    def _drop(self, live: _Live) -> None:
        self.scheduler.finish(live.request)
        del self._live[live.request.request_id]

    def _chunk(
        self, live: _Live, text: str, token_ids: tuple[int, ...], finish: FinishReason | None, logprobs: tuple[TokenLogprob, ...]
    ) -> Chunk:
        request = live.request
        counts = Counts(
            prompt_len=len(live.message.prompt_ids),
            num_cached=request.num_cached,
            num_output=len(live.output_ids),
            num_retractions=request.num_retractions,
        )
        wants = live.message.logprobs.is_wanted
        chunk = Chunk(request.request_id, text, token_ids, counts, finish, output_logprobs=logprobs if wants else None)
        if wants and not live.is_input_sent:
            done = [value for value in live.input_logprobs if value is not None]
            if len(done) == len(live.input_logprobs) or finish is not None:
                live.is_input_sent = True
                chunk = replace(chunk, input_logprobs=tuple(done))
        return chunk
