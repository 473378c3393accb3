"""`Engine`: a model in this process, with its loop in a thread of its own."""

from __future__ import annotations

import random
import threading
import time
import uuid
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ramet.cache import CacheManager, NoPrefixCache, RadixPrefixCache
from ramet.config import Config
from ramet.constraint.vocabulary import Vocabulary
from ramet.engine.channel import Channel
from ramet.engine.collect import Collector
from ramet.engine.constraints import Constraints
from ramet.engine.core import EngineCore
from ramet.engine.guide import Guides
from ramet.engine.limits import Limits
from ramet.engine.loop import EngineLoop
from ramet.engine.mailbox import AsyncMailbox, ThreadMailbox, chunk_of
from ramet.engine.mask_filler import MaskFiller
from ramet.engine.prompts import PromptBatch, check_labels, make_requests
from ramet.errors import InvalidParams, InvalidRequest, UnsupportedFeature
from ramet.messages import ChoiceScore, GenerateRequest, Reply
from ramet.params import LogprobParams, SamplingParams
from ramet.sampling.sampler import Sampler
from ramet.schedule.scheduler import Scheduler
from ramet.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ramet.execute.runner import Runner

Prompt = str | Sequence[str] | None
Ids = Sequence[int] | Sequence[Sequence[int]] | None
RawParams = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


class Engine:
    """Runs a model in this process; usable as a context manager, from many threads and from asyncio.

    Options are the fields of `ramet.config` by name, for example `Engine(model_path="smollm2-135m", max_total_tokens=8192)`.
    `runner` and `tokenizer` replace the loaded ones (both together); tests use that.

    Raises ConfigError for an unknown option and ModelError when the model cannot be loaded.
    """

    def __init__(
        self,
        model_path: str | None = None,
        *,
        config: Config | None = None,
        runner: Runner | None = None,
        tokenizer: Tokenizer | None = None,
        eos_token_ids: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        if config is None:
            config = Config.from_options(options if model_path is None else {"model_path": model_path, **options})
        elif options or model_path is not None:
            raise InvalidRequest("give either config or single options, not both")
        assert (runner is None) == (tokenizer is None), "replace runner and tokenizer together"
        self.config = config
        self.model_name = config.model.model_path
        self.generation_config: dict[str, Any] = {}
        if runner is None or tokenizer is None:
            from ramet.engine.launch import load

            loaded = load(config)
            runner, tokenizer = loaded.runner, loaded.tokenizer
            self.model_name, self.generation_config = loaded.name, loaded.generation_config
            eos_token_ids = loaded.eos_ids if eos_token_ids is None else eos_token_ids
        self.tokenizer = tokenizer
        eos_ids = tuple(tokenizer.eos_token_ids if eos_token_ids is None else eos_token_ids)
        num_valid_ids = min(tokenizer.vocab_size, runner.vocab_size)
        context_len = min(runner.context_len, config.model.context_length or runner.context_len)
        self._limits = Limits(context_len, runner.num_slots, runner.vocab_size, num_valid_ids)
        prefix = NoPrefixCache() if config.cache.disable_radix_cache else RadixPrefixCache(config.cache.radix_eviction_policy)
        rng = random.Random(config.model.random_seed)
        constraints = Constraints(
            lambda: Vocabulary.from_tokenizer(tokenizer, eos_ids=[i for i in eos_ids if i < runner.vocab_size], width=runner.vocab_size),
            config.constraint.json_whitespace,
        )
        self._guides = Guides(constraints, tokenizer, config.constraint)
        self._core = EngineCore(
            runner=runner,
            scheduler=Scheduler(config.schedule, CacheManager(runner.num_slots, prefix), random.Random(config.model.random_seed)),
            sampler=Sampler(runner.vocab_size, runner.device, num_valid_ids=num_valid_ids),
            tokenizer=tokenizer,
            limits=self._limits,
            guides=self._guides,
            jump_forward=config.constraint.jump_forward,
            eos_ids=eos_ids,
            rng=rng,
        )
        self._channel = Channel()
        self._loop = EngineLoop(self._core, self._channel)
        self._loop.start()
        # Also when no one calls it: an engine that is collected, or left open at the end of the process, leaves no running loop.
        self._stop = weakref.finalize(self, _stop_loop, self._channel, self._loop, self._guides.filler)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.shutdown()

    @property
    def chat_template_name(self) -> str | None:
        """The configured template name, if one was given."""
        return self.config.model.chat_template

    def generate(
        self,
        prompt: Prompt = None,
        sampling_params: RawParams = None,
        input_ids: Ids = None,
        return_logprob: bool | Sequence[bool] = False,
        logprob_start_len: int | Sequence[int] | None = None,
        top_logprobs_num: int | Sequence[int] | None = None,
        token_ids_logprob: Sequence[int] | Sequence[Sequence[int]] | None = None,
        stream: bool = False,
        rid: str | Sequence[str] | None = None,
        priority: int | None = None,
        *,
        cache_salt: str | None = None,
        group_id: str | None = None,
        return_text_in_logprobs: bool = False,
        **refused: Any,
    ) -> Any:
        """Generate for one prompt or a list of them, given as text or as ids.

        Gives `{"text", "output_ids", "meta_info"}`, a list of such for a list of prompts or `n` > 1, or an iterator with `stream=True`
        (see `stream`). `meta_info["cached_tokens"]` is exact: the prompt tokens this request did not compute.

        Raises InvalidRequest before anything runs, and EngineDied or EngineClosed when the engine ends first.
        """
        batch = self._requests(
            prompt=prompt,
            input_ids=input_ids,
            sampling_params=sampling_params,
            return_logprob=return_logprob,
            logprob_start_len=logprob_start_len,
            top_logprobs_num=top_logprobs_num,
            token_ids_logprob=token_ids_logprob,
            rid=rid,
            priority=priority,
            cache_salt=cache_salt,
            group_id=group_id,
            refused=refused,
        )
        if stream:
            return self._stream(batch, return_text_in_logprobs)
        collectors = self._collectors(batch, return_text_in_logprobs)
        for _ in self._chunks(batch.requests, collectors):
            pass
        return _shape(batch, [collectors[request.request_id].reply() for request in batch.requests])

    def stream(self, prompt: Prompt = None, sampling_params: RawParams = None, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Like `generate`, but yields a reply after every new piece of text; `text` is cumulative.

        With several prompts or samples each reply carries `index`. Closing the iterator early aborts what still runs.
        """
        result: Iterator[dict[str, Any]] = self.generate(prompt, sampling_params, stream=True, **arguments)
        return result

    async def async_generate(
        self,
        prompt: Prompt = None,
        sampling_params: RawParams = None,
        input_ids: Ids = None,
        return_logprob: bool | Sequence[bool] = False,
        logprob_start_len: int | Sequence[int] | None = None,
        top_logprobs_num: int | Sequence[int] | None = None,
        token_ids_logprob: Sequence[int] | Sequence[Sequence[int]] | None = None,
        stream: bool = False,
        rid: str | Sequence[str] | None = None,
        priority: int | None = None,
        *,
        cache_salt: str | None = None,
        group_id: str | None = None,
        return_text_in_logprobs: bool = False,
        **refused: Any,
    ) -> Any:
        """`generate` for asyncio; with `stream=True` the awaited value is an async iterator. Cancelling the task aborts the request."""
        batch = self._requests(
            prompt=prompt,
            input_ids=input_ids,
            sampling_params=sampling_params,
            return_logprob=return_logprob,
            logprob_start_len=logprob_start_len,
            top_logprobs_num=top_logprobs_num,
            token_ids_logprob=token_ids_logprob,
            rid=rid,
            priority=priority,
            cache_salt=cache_salt,
            group_id=group_id,
            refused=refused,
        )
        if stream:
            return self._async_stream(batch, return_text_in_logprobs)
        collectors = self._collectors(batch, return_text_in_logprobs)
        async for _ in self._async_chunks(batch.requests, collectors):
            pass
        return _shape(batch, [collectors[request.request_id].reply() for request in batch.requests])

    def score(
        self,
        prompt: str,
        choices: Sequence[str],
        *,
        unconditional: bool = False,
        top_logprobs_num: int = 0,
        cache_salt: str | None = None,
        group_id: str | None = None,
    ) -> list[ChoiceScore]:
        """The log-probabilities of each choice as the continuation of a prompt, all choices in one group over one shared prefix.

        Only the choice's own tokens are scored. When a choice merges with the end of the prompt under the model's tokenizer, every
        choice is scored from the first token that differs, so that all are compared over the same text. An empty prompt is scored
        after the tokenizer's BOS (or EOS) token. With `unconditional` each choice is also scored on its own.

        Raises InvalidRequest for an empty list of choices or an empty choice.
        """
        if not isinstance(prompt, str):
            raise InvalidParams("prompt", prompt, "must be a string")
        if not isinstance(choices, list | tuple) or not choices or not all(isinstance(choice, str) and choice for choice in choices):
            raise InvalidParams("choices", choices, "must be a list of strings that are not empty")
        check_labels(cache_salt=cache_salt, group_id=group_id)
        start_len, id_lists = self._choice_ids(prompt, choices)
        group = group_id or uuid.uuid4().hex
        conditional = [self._score_request(ids, start_len, top_logprobs_num, cache_salt, group) for ids in id_lists]
        alone: list[GenerateRequest] = []
        if unconditional:
            alone = [self._score_request(ids[start_len:], 0, 0, cache_salt, group) for ids in id_lists]
        requests = tuple(conditional + alone)
        collectors = {request.request_id: Collector(request, None, time.perf_counter()) for request in requests}
        for _ in self._chunks(requests, collectors):
            pass
        scores: list[ChoiceScore] = []
        for i, request in enumerate(conditional):
            values = collectors[request.request_id].input_logprobs
            free = collectors[alone[i].request_id].input_logprobs if unconditional else None
            logprobs = tuple(value.logprob for value in values if value.logprob is not None)
            assert len(logprobs) == len(id_lists[i]) - start_len, "every token of a choice has a logprob"
            scores.append(
                ChoiceScore(
                    token_ids=id_lists[i][start_len:],
                    logprobs=logprobs,
                    unconditional_logprobs=None if free is None else tuple(value.logprob for value in free),
                    top=tuple(value.top for value in values),
                )
            )
        return scores

    def cache_prefix(self, text: str, *, cache_salt: str | None = None) -> None:
        """Compute a prefix and keep it in the tree, so that what follows it finds it there (the paper's frontend hint)."""
        self.generate(text, {"max_new_tokens": 0}, cache_salt=cache_salt)

    def abort(self, rid: str) -> None:
        """Cancel an open request by its id: it ends with what it has and the finish reason `abort`. Unknown ids are ignored.

        With `n` > 1 all samples of the id end.
        """
        if not isinstance(rid, str):
            raise InvalidParams("rid", rid, "must be a string")
        self._channel.abort(rid)

    def flush_cache(self) -> bool:
        """Drop every cached token and give True; raises EngineBusy while requests are open."""
        mailbox = ThreadMailbox()
        self._channel.flush(mailbox)
        reply = mailbox.get()
        assert isinstance(reply, Reply)
        if reply.error is not None:
            raise reply.error
        return True

    def get_server_info(self) -> dict[str, Any]:
        """Options as resolved, sizes, counters (`stats`) and the state of the cache."""
        from ramet import __version__

        cache = self._core.scheduler.cache
        return {
            **self.config.to_options(),
            "version": __version__,
            "model_name": self.model_name,
            "context_len": self._limits.context_len,
            "max_total_num_tokens": cache.num_slots,
            "vocab_size": self._limits.vocab_size,
            "num_running": len(self._core.scheduler.running),
            "num_waiting": len(self._core.scheduler.waiting),
            "num_free_tokens": cache.slots.num_free,
            "num_cached_tokens": cache.tree.num_tokens,
            "num_evictable_tokens": cache.tree.num_unlocked,
            "stats": self._core.stats.to_dict(),
        }

    def shutdown(self) -> None:
        """Stop the loop; open requests fail with EngineClosed. May be called twice."""
        self._stop()

    def _requests(self, *, refused: Mapping[str, Any], **arguments: Any) -> PromptBatch:
        for name, value in refused.items():
            if name not in _NOT_OFFERED:
                raise InvalidParams(name, value, "unknown argument of generate")
            if value is not None and value is not False and not (isinstance(value, int) and value == 0):
                raise UnsupportedFeature(name, _NOT_OFFERED[name])
        batch = make_requests(self.tokenizer, self._limits, **arguments)
        self._guides.compile(batch.requests)  # here and not on the loop
        return batch

    def _collectors(self, batch: PromptBatch, with_text: bool) -> dict[str, Collector]:
        now = time.perf_counter()
        token_text = self._token_text if with_text else None
        return {request.request_id: Collector(request, token_text, now) for request in batch.requests}

    def _token_text(self, token_id: int) -> str:
        return self.tokenizer.token_bytes(token_id).decode("utf-8", errors="replace")

    def _chunks(self, requests: tuple[GenerateRequest, ...], collectors: dict[str, Collector]) -> Iterator[str]:
        """Run requests; yields the id of each request that has something new. Leaving early aborts what still runs."""
        mailbox = ThreadMailbox()
        self._channel.submit(requests, (mailbox,) * len(requests))
        open_ids = {request.request_id for request in requests}
        try:
            while open_ids:
                chunk = chunk_of(mailbox.get(), open_ids)
                collectors[chunk.request_id].take(chunk)
                yield chunk.request_id
        finally:
            for request_id in open_ids:
                self._channel.abort(request_id)

    async def _async_chunks(self, requests: tuple[GenerateRequest, ...], collectors: dict[str, Collector]) -> AsyncIterator[str]:
        mailbox = AsyncMailbox()
        self._channel.submit(requests, (mailbox,) * len(requests))
        open_ids = {request.request_id for request in requests}
        try:
            while open_ids:
                chunk = chunk_of(await mailbox.get(), open_ids)
                collectors[chunk.request_id].take(chunk)
                yield chunk.request_id
        finally:
            for request_id in open_ids:
                self._channel.abort(request_id)

    def _stream(self, batch: PromptBatch, with_text: bool) -> Iterator[dict[str, Any]]:
        collectors = self._collectors(batch, with_text)
        index = {request.request_id: i for i, request in enumerate(batch.requests)}
        for request_id in self._chunks(batch.requests, collectors):
            reply = collectors[request_id].reply()
            yield reply if batch.is_one_reply else {**reply, "index": index[request_id]}

    async def _async_stream(self, batch: PromptBatch, with_text: bool) -> AsyncIterator[dict[str, Any]]:
        collectors = self._collectors(batch, with_text)
        index = {request.request_id: i for i, request in enumerate(batch.requests)}
        async for request_id in self._async_chunks(batch.requests, collectors):
            reply = collectors[request_id].reply()
            yield reply if batch.is_one_reply else {**reply, "index": index[request_id]}

    def _choice_ids(self, prompt: str, choices: Sequence[str]) -> tuple[int, list[tuple[int, ...]]]:
        """The ids of prompt + choice for each choice, and where scoring starts: after what all share with the prompt's own ids."""
        full = [tuple(ids) for ids in self.tokenizer.encode_batch([prompt + choice for choice in choices])]
        own = tuple(self.tokenizer.encode(prompt)) if prompt else ()
        if not own:
            anchor = self.tokenizer.bos_token_id
            if anchor is None:
                anchor = self.tokenizer.eos_token_ids[0] if self.tokenizer.eos_token_ids else None
            if anchor is None:
                raise InvalidParams("prompt", prompt, "is empty and this tokenizer has neither BOS nor EOS to score after")
            if all(ids[0] == anchor for ids in full):
                return 1, full
            return 1, [(anchor, *ids) for ids in full]
        start_len = min(_shared_len(own, ids) for ids in full)
        if any(len(ids) == start_len for ids in full):
            start_len -= 1  # a choice that adds no token of its own: score the last shared one, for all alike
        if start_len < 1:
            raise InvalidParams("prompt", prompt, "is merged into the choices by the tokenizer; put more text before them")
        return start_len, full

    def _score_request(self, ids: tuple[int, ...], start_len: int, top_num: int, cache_salt: str | None, group: str) -> GenerateRequest:
        request = GenerateRequest(
            request_id=uuid.uuid4().hex,
            prompt_ids=ids,
            params=SamplingParams(max_new_tokens=0),
            logprobs=LogprobParams(is_wanted=True, start_len=start_len, top_num=top_num),
            cache_salt=cache_salt or "",
            group_id=group,
        )
        self._limits.check(request)
        return request


# Published arguments of `generate` that this engine refuses when they are set.
_NOT_OFFERED = {
    "image_data": "this model takes text only",
    "audio_data": "this model takes text only",
    "video_data": "this model takes text only",
    "lora_path": "LoRA adapters are not offered",
    "custom_logit_processor": "use logit_bias",
    "return_hidden_states": "hidden states are not returned",
    "require_reasoning": "reasoning parsers are not offered",
    "session_params": "sessions are not needed: the prefix cache finds earlier turns by itself",
    "session_id": "sessions are not needed: the prefix cache finds earlier turns by itself",
}


def _stop_loop(channel: Channel, loop: EngineLoop, filler: MaskFiller) -> None:
    channel.stop()
    # The collector may run this on the loop's own thread, and in a forked copy the thread does not exist.
    if loop.is_alive() and threading.current_thread() is not loop:
        loop.join()
    filler.close()


def _shared_len(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))


def _shape(batch: PromptBatch, replies: list[dict[str, Any]]) -> dict[str, Any] | list[dict[str, Any]]:
    return replies[0] if batch.is_one_reply else replies
