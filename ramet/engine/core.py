"""One step of the engine, from waiting requests to new tokens. Scheduler and executor meet here and nowhere else.

1 plan     the scheduler picks rows                       Plan
2 run      the executor computes them                     logits
3 sample   rules and a draw, for rows that reached the end of what is known
4 follow   constraint: what is forced behind a draw is written at once; the next mask is made while the model runs
5 finish   stop rules, text, commit or go on              Chunk | Failed
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from ramet.engine.guide import Guide, Guides
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

_MASK_GRACE_S: Final = 0.002  # how long all rows of a step together wait for masks before they go on without some
_PARKED_WAIT_S: Final = 0.05  # how long a step without any row waits; then messages are looked at
_MAX_DRAWS: Final = 64  # for one token
_SEED_STEP: Final = 0x1E3779B97F4A7C15  # makes the draws of one position independent


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
    guide: Guide | None = None
    output_ids: list[int] = field(default_factory=list)
    output_logprobs: list[TokenLogprob | None] = field(default_factory=list)  # where wanted, one an output token; None: not computed yet
    num_sent: int = 0  # output tokens that went out in chunks
    num_taken_back: int = 0  # of those, the last ones, spelled anew since
    parked_logits: Tensor | None = None  # [1, vocab], while the request waits for its mask
    is_queued: bool = False  # whether the scheduler knows the request

    @property
    def wants_logprobs(self) -> bool:
        return self.message.logprobs.is_wanted

    @property
    def is_scored(self) -> bool:
        """Whether nothing that was written has its logprob still to come."""
        return not self.wants_logprobs or None not in self.output_logprobs[self.num_sent :]


class EngineCore:
    """Owns the open requests; not thread-safe, driven by one loop."""

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        sampler: Sampler,
        tokenizer: Tokenizer,
        limits: Limits,
        guides: Guides,
        jump_forward: str,
        eos_ids: tuple[int, ...],
        rng: random.Random,
    ) -> None:
        self.stats = Stats()
        self.scheduler = scheduler
        self._runner = runner
        self._sampler = sampler
        self._tokenizer = tokenizer
        self.limits = limits
        self._guides = guides
        self._jump_forward = jump_forward
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
                for message in messages:
                    self._guides.forget(message)
                return [Failed(message.request_id, QueueFull(num_queued, options.max_queued_requests)) for message in messages]
        queued: list[_Live] = []
        out: list[Chunk | Failed] = []
        for message in messages:
            try:
                live = self._open(message)
                self._live[message.request_id] = live
                self.stats.num_requests += 1
                self._jump(live)
            except (InvalidConstraint, StopPatternTooSlow) as error:
                self._live.pop(message.request_id, None)
                out.append(Failed(message.request_id, error))
                continue
            if live.output_ids and live.is_scored:
                out.append(self._chunk_or_end(live))  # all that is forced behind a prompt is known before the prompt is computed
            if live.message.request_id in self._live:
                queued.append(live)
        for live in queued:
            live.is_queued = True
            if live.guide is not None:
                live.guide.ask_mask()
        self.scheduler.submit([live.request for live in queued])
        return out

    def abort(self, request_id: str) -> list[Chunk | Failed]:
        """End a request, or all samples of one, where it stands; what is computed stays cached. Nothing happens when it has ended."""
        lives = [live for live in self._live.values() if request_id in (live.message.request_id, live.message.sample_of)]
        self.stats.num_aborted += len(lives)
        return [self._end(live, is_aborted=True) for live in lives]

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
        elif not step.cached:
            out.extend(self._draw_parked())
        for request in step.cached:
            out.append(self._end_prefill_only(self._live[request.request_id]))
        return out

    def _open(self, message: GenerateRequest) -> _Live:
        params = message.params
        max_new_tokens = self.limits.max_new_tokens(message)
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
        guide = self._guides.open(message)
        if max_new_tokens == 0:
            guide = None  # nothing is drawn
        return _Live(message, request, row, stop, detokenizer, input_logprobs, output_ids=output_ids, guide=guide)

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
            stats.num_recomputed_tokens += max(0, min(end, request.num_once_computed) - max(row.start, request.prompt_len))
            stats.num_chunked_rows += end < request.len
        stats.num_mixed_steps += num_decode > 0 and num_prefill > 0

    def _use(self, step: Step, logits: Tensor) -> list[Chunk | Failed]:
        """Collect logprobs of what was known, draw tokens and end what is done."""
        out: list[Chunk | Failed] = []
        drawing: list[_Live] = []
        indices: list[int] = []
        offset = 0
        for row, request in zip(step.plan.rows, step.requests, strict=True):
            live = self._live[request.request_id]
            end = row.start + len(row.token_ids)
            if row.num_logits and live.wants_logprobs:
                self._take_known_logprobs(live, logits[offset : offset + row.num_logits], end - row.num_logits)
            offset += row.num_logits
            if end < request.len:
                continue
            if request.max_new_tokens == 0:
                out.append(self._end_prefill_only(live))
            elif live.stop.finish is not None:
                out.append(self._end(live))  # it had ended, but for the logprobs of its last tokens
            else:
                drawing.append(live)
                indices.append(offset - 1)
        assert offset == len(logits), "the executor gave another number of logits than the plan asks for"
        chosen = logits if len(indices) == len(logits) else logits[torch.tensor(indices, dtype=torch.int64, device=logits.device)]
        parked = [live for live in self._live.values() if live.request.is_parked]
        out.extend(self._draw_ready(drawing, chosen, parked))
        return out

    def _draw_parked(self) -> list[Chunk | Failed]:
        """Wait a little for the masks that everyone waits for."""
        parked = [live for live in self._live.values() if live.request.is_parked]
        assert parked, "requests are open and none can move: the scheduler is stuck"
        self._guides.filler.wait([live.guide.ask_mask() for live in parked if live.guide is not None], _PARKED_WAIT_S)
        return self._draw_ready([], None, parked)

    def _draw_ready(self, lives: Sequence[_Live], logits: Tensor | None, parked: Sequence[_Live]) -> list[Chunk | Failed]:
        """Draw for the rows of this step and for those put off before, as far as their masks are there; the others are put off."""
        out: list[Chunk | Failed] = []
        rows: list[Tensor] = []
        drawing: list[_Live] = []
        is_whole = not parked
        deadline_s = time.monotonic() + _MASK_GRACE_S
        for i, live in enumerate([*lives, *parked]):
            if i < len(lives):
                assert logits is not None
                own = logits[i : i + 1]
            else:
                assert live.parked_logits is not None
                own = live.parked_logits
            try:
                is_ready = self._has_mask(live, deadline_s)
            except InvalidConstraint as error:  # it cannot go on: its own request fails, no other
                self._drop(live)
                out.append(Failed(live.request.request_id, error))
                is_whole = False
                continue
            if not is_ready:
                self.stats.num_late_masks += not live.request.is_parked
                live.parked_logits = own.clone() if i < len(lives) else own
                live.request.is_parked = True
                is_whole = False
                continue
            live.request.is_parked, live.parked_logits = False, None
            rows.append(own)
            drawing.append(live)
        if drawing:
            assert logits is not None or not is_whole
            chosen = logits if is_whole and logits is not None else torch.cat(rows)
            out.extend(self._draw(drawing, chosen))
        return out

    def _has_mask(self, live: _Live, deadline_s: float) -> bool:
        """Put the tokens that a constraint allows next into the row, if they are known. Raises InvalidConstraint when it cannot go on."""
        if live.guide is None:
            return True
        mask = live.guide.ask_mask()
        if not mask.done():
            self._guides.filler.wait([mask], max(0.0, deadline_s - time.monotonic()))
            if not mask.done():
                return False
        live.row.allowed = mask.result()
        return True

    def _draw(self, lives: list[_Live], logits: Tensor) -> list[Chunk | Failed]:
        """One token for each row of `logits`, and what it brings."""
        for live in lives:
            live.row.position = live.request.len
        self._note_masked_mass(lives, logits)
        drawn = self._sampler.sample(logits, [live.row for live in lives])
        failures = self._respell(lives, logits, drawn)
        out: list[Chunk | Failed] = []
        for i, (live, sampled) in enumerate(zip(lives, drawn, strict=True)):
            try:
                if i in failures:
                    raise failures[i]
                self._accept(live, sampled)
                self._jump(live)
            except (StopPatternTooSlow, InvalidConstraint) as error:  # the caller's pattern costs too much: no one else shall pay for it
                self._drop(live)
                out.append(Failed(live.request.request_id, error))
                continue
            if live.is_scored:
                out.append(self._chunk_or_end(live))
            if live.guide is not None and live.message.request_id in self._live and live.stop.finish is None:
                live.guide.ask_mask()
        return out

    def _note_masked_mass(self, lives: Sequence[_Live], logits: Tensor) -> None:
        """Count for each constrained row the probability that its mask takes away."""
        masked = [(i, live.guide, live.row.allowed) for i, live in enumerate(lives) if live.guide is not None]
        if not masked:
            return
        masks = [allowed for _, _, allowed in masked if allowed is not None]
        assert len(masks) == len(masked), "a text that is complete is drawn for"
        rows = [i for i, _, _ in masked]
        chosen = logits if len(rows) == len(logits) else logits[torch.tensor(rows, device=logits.device)]
        for (_, guide, _), mass in zip(masked, self._sampler.masked_mass(chosen, masks), strict=True):
            guide.note_draw(mass)

    def _respell(self, lives: Sequence[_Live], logits: Tensor, drawn: list[Sampled]) -> dict[int, InvalidConstraint]:
        """Draw again, in place, for the rows whose token is not canonical; where no canonical one is found, the first one stands.

        Gives the rows whose constraint has passed a limit on the way.
        """
        failures: dict[int, InvalidConstraint] = {}
        open_rows = [i for i, live in enumerate(lives) if live.guide is not None]
        first, seeds = list(drawn), [live.row.seed for live in lives]
        for attempt in range(1, _MAX_DRAWS + 1):
            again: list[int] = []
            for i in open_rows:
                live = lives[i]
                assert live.guide is not None and live.row.allowed is not None
                try:
                    if live.guide.is_canonical(live.output_ids, drawn[i].token_id):
                        continue
                except InvalidConstraint as error:
                    failures[i] = error
                    continue
                self.stats.num_rejected_draws += 1
                live.row.rejected = (*live.row.rejected, drawn[i].token_id)
                if attempt == _MAX_DRAWS or len(live.row.rejected) == self._sampler.num_allowed(live.row.allowed):
                    drawn[i] = first[i]
                    continue
                live.row.seed = seeds[i] ^ (attempt * _SEED_STEP)
                again.append(i)
            if not again:
                break
            rows = logits[torch.tensor(again, device=logits.device)]
            for i, sampled in zip(again, self._sampler.sample(rows, [lives[i].row for i in again]), strict=True):
                drawn[i] = sampled
            open_rows = again
        for live, seed in zip(lives, seeds, strict=True):
            live.row.seed, live.row.rejected = seed, ()
        return failures

    def _take_known_logprobs(self, live: _Live, logits: Tensor, start: int) -> None:
        """Row i of `logits` stands at position start + i and predicts the token after it: one of the prompt, or one that was forced."""
        request = live.request
        prompt_len = len(live.message.prompt_ids)
        first = max(start, live.message.logprobs.start_len - 1) if live.input_logprobs else max(start, prompt_len - 1)
        last = min(start + len(logits), max(request.len, prompt_len) - 1)  # the first position that predicts nothing known
        if first >= last:
            return
        known = [*live.message.prompt_ids[first + 1 : last + 1], *live.output_ids[max(0, first + 1 - prompt_len) : last + 1 - prompt_len]]
        known = known[: last - first]
        values = prompt_logprobs(logits[first - start : last - start], known, live.message.logprobs, self.limits.num_valid_ids)
        for position, value in enumerate(values, first + 1):
            if position < prompt_len:
                live.input_logprobs[position - live.message.logprobs.start_len] = value
            else:
                live.output_logprobs[position - prompt_len] = value

    def _accept(self, live: _Live, sampled: Sampled) -> None:
        """Add a drawn token to its request."""
        live.request.append(sampled.token_id)
        self._write(live, sampled.token_id, live.detokenizer.push((sampled.token_id,)), sampled.logprob)

    def _write(self, live: _Live, token_id: int, text: str, logprob: TokenLogprob | None) -> None:
        """Add a token to the output and move stop rules and constraint on by it."""
        live.output_ids.append(token_id)
        if live.wants_logprobs:
            live.output_logprobs.append(logprob)
        live.stop.push(token_id, text)
        guide = live.guide
        if guide is None:
            return
        guide.accept(token_id)
        # Nothing may follow a complete text: also with `ignore_eos`, and for a model without any id that ends a text.
        if guide.matcher.is_finished or (not self._eos_ids and guide.matcher.is_final and not guide.matcher.bytes_behind(b"")):
            live.stop.end(FinishReason("stop", matched=token_id))

    def _jump(self, live: _Live) -> None:
        """Write what is forced behind the output; its keys and values are computed by the next step, in one row."""
        guide = live.guide
        if guide is None or self._jump_forward == "off" or live.stop.finish is not None:
            return
        jump = guide.jump(self._jump_forward, live.output_ids)
        num_new = jump.num_kept + len(jump.token_ids) - len(live.output_ids)
        # A token whose logprob is wanted must be computed, and the pool has a slot for all but the last.
        room = live.request.num_remaining - live.wants_logprobs
        if jump.num_kept < len(live.output_ids):
            if num_new > room:
                return  # text that went out already must keep its tokens
            self._spell_anew(live, guide, jump.num_kept, jump.token_ids)
        else:
            num_new = 0
            for token_id in jump.token_ids[: max(0, room)]:
                num_new += 1
                self._write(live, token_id, live.detokenizer.push((token_id,)), None)
                if live.stop.finish is not None:
                    break
            live.request.extend(jump.token_ids[:num_new], wants_logits=live.wants_logprobs)  # what a stop cuts off is not computed
        end_id = guide.end_id(self._eos_ids) if live.stop.finish is None else None
        if end_id is not None and live.request.num_remaining > live.wants_logprobs:
            live.request.extend((end_id,), wants_logits=live.wants_logprobs)
            self._write(live, end_id, live.detokenizer.push((end_id,)), None)
            num_new += 1
        if num_new > 0:
            guide.num_forced += num_new
            self.stats.num_jumps += 1
            self.stats.num_forced_tokens += num_new

    def _spell_anew(self, live: _Live, guide: Guide, num_kept: int, token_ids: Sequence[int]) -> None:
        """Replace the output's tokens from number `num_kept` on by others that spell the same text and what is forced behind it."""
        pieces = self._tokenizer.bytes_table.pieces
        num_old_bytes = sum(len(pieces[token_id]) for token_id in live.output_ids[num_kept:])
        guide.rewrite(len(live.output_ids) - num_kept)
        live.num_taken_back += max(0, live.num_sent - num_kept)
        live.num_sent = min(live.num_sent, num_kept)
        live.stop.recount(num_kept)
        del live.output_ids[num_kept:]
        del live.output_logprobs[num_kept:]
        for token_id in token_ids:
            piece = pieces[token_id]
            self._write(live, token_id, live.detokenizer.push_bytes(piece[num_old_bytes:]), None)
            num_old_bytes = max(0, num_old_bytes - len(piece))
            if live.stop.finish is not None:
                break
        written = live.output_ids[num_kept:]
        self.scheduler.rewrite(live.request, len(live.message.prompt_ids) + num_kept, written, wants_logits=live.wants_logprobs)

    def _end_prefill_only(self, live: _Live) -> Chunk:
        self.stats.num_prefix_hints += not live.input_logprobs
        return self._end(live)

    def _chunk_or_end(self, live: _Live) -> Chunk:
        return self._chunk(live, live.stop.release(), None) if live.stop.finish is None else self._end(live)

    def _end(self, live: _Live, *, is_aborted: bool = False) -> Chunk:
        """End a request: its computed tokens go to the tree, its last text goes out."""
        request = live.request
        tail = live.detokenizer.flush()
        finish = live.stop.add_tail(tail) if tail else live.stop.finish
        text = live.stop.release_rest()
        if is_aborted:
            finish = FinishReason("abort")
        assert finish is not None, f"{request} is ended and no rule says why"
        chunk = self._chunk(live, text, finish)
        self._drop(live)
        self.stats.num_finished += 1
        self.stats.num_prompt_tokens += request.prompt_len
        self.stats.num_cached_tokens += chunk.counts.num_cached
        return chunk

    def _drop(self, live: _Live) -> None:
        if live.is_queued:
            self.scheduler.finish(live.request)
        del self._live[live.request.request_id]

    def _chunk(self, live: _Live, text: str, finish: FinishReason | None) -> Chunk:
        """What is new since the last chunk; when logprobs are wanted, an aborted request keeps back the tokens that have none yet."""
        request, guide = live.request, live.guide
        logprobs = tuple(value for value in live.output_logprobs[live.num_sent :] if value is not None)
        num_new = len(logprobs) if live.wants_logprobs else len(live.output_ids) - live.num_sent
        token_ids = tuple(live.output_ids[live.num_sent : live.num_sent + num_new])
        counts = Counts(
            prompt_len=len(live.message.prompt_ids),
            num_cached=request.num_cached,
            num_output=live.num_sent + num_new,
            num_retractions=request.num_retractions,
            num_forced=min(guide.num_forced, live.num_sent + num_new) if guide else 0,
            distortion=guide.distortion(live.output_ids) if guide and finish else None,
        )
        self.stats.num_output_tokens += len(token_ids) - live.num_taken_back
        chunk = Chunk(request.request_id, text, token_ids, counts, finish, num_taken_back=live.num_taken_back)
        live.num_sent, live.num_taken_back = len(live.output_ids), 0
        if not live.wants_logprobs:
            return chunk
        chunk = replace(chunk, output_logprobs=logprobs)
        if not live.is_input_sent:
            done = [value for value in live.input_logprobs if value is not None]
            if len(done) == len(live.input_logprobs) or finish is not None:
                live.is_input_sent = True
                chunk = replace(chunk, input_logprobs=tuple(done))
        return chunk
