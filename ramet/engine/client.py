"""What an engine offers its callers, wherever its loop runs: text or ids in, replies or chunks out."""

from __future__ import annotations

import asyncio
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

from ramet.config import Config
from ramet.engine.channel import Delivery, Mailbox
from ramet.engine.collect import Collector
from ramet.engine.limits import Limits
from ramet.engine.mailbox import AsyncMailbox, Feeder, ThreadMailbox, chunk_of
from ramet.engine.prompts import PromptBatch, check_labels, make_requests
from ramet.engine.scoring import ScorePlan, plan_scores
from ramet.errors import EngineError, InvalidParams, UnsupportedFeature
from ramet.messages import ChoiceScore, Chunk, GenerateRequest, Reply
from ramet.params import CONSTRAINT_FIELDS
from ramet.tokenizer import Tokenizer

Prompt = str | Sequence[str] | None
Ids = Sequence[int] | Sequence[Sequence[int]] | None
RawParams = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None

_QUICK_TEXT_LEN = 2_000  # characters that are encoded in less than a millisecond


class EngineClient(ABC):
    """The calls of an engine; usable as a context manager, from many threads and from asyncio.

    `tokenizer`, `limits`, `model_name`, `eos_ids` and `generation_config` are those of the model that is served.
    """

    config: Config
    tokenizer: Tokenizer
    limits: Limits
    model_name: str
    eos_ids: tuple[int, ...]
    generation_config: Mapping[str, Any]

    def __init__(self) -> None:
        self._feeders: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Feeder] = weakref.WeakKeyDictionary()

    @abstractmethod
    def shutdown(self) -> None:
        """Stop the loop; open requests fail with EngineClosed. May be called twice."""

    @property
    @abstractmethod
    def closed_by(self) -> EngineError | None:
        """What ended the engine: EngineClosed after `shutdown`, EngineDied after a failure; None while it takes requests."""

    @abstractmethod
    def _submit(self, requests: tuple[GenerateRequest, ...], mailboxes: tuple[Mailbox, ...]) -> None:
        """Hand over requests whose constraints went through `_compile`."""

    @abstractmethod
    def _abort(self, request_id: str) -> None: ...

    @abstractmethod
    def _ask(self, what: str, mailbox: Mailbox) -> None:
        """Ask the loop for one of `flush`, `info`, `tree`; the Reply comes to the mailbox."""

    def _compile(self, requests: Sequence[GenerateRequest]) -> None:  # noqa: B027  (only where constraints are compiled on this side)
        """Compile the constraints of requests in the calling thread."""

    def __enter__(self) -> Self:
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
        batch = self.prepare_now(
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
            **refused,
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
        batch = await self.prepare(
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
            **refused,
        )
        if stream:
            return self._async_stream(batch, return_text_in_logprobs)
        collectors = self._collectors(batch, return_text_in_logprobs)
        async for chunks in self.chunks(batch.requests):
            for chunk in chunks:
                collectors[chunk.request_id].take(chunk)
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
        plan = self.prepare_scores(
            prompt, choices, unconditional=unconditional, top_logprobs_num=top_logprobs_num, cache_salt=cache_salt, group_id=group_id
        )
        collectors = {request.request_id: self.collector(request) for request in plan.requests}
        for _ in self._chunks(plan.requests, collectors):
            pass
        return plan.scores(collectors)

    def cache_prefix(self, text: str, *, cache_salt: str | None = None) -> None:
        """Compute a prefix and keep it in the tree, so that what follows it finds it there (the paper's frontend hint)."""
        self.generate(text, {"max_new_tokens": 0}, cache_salt=cache_salt)

    def abort(self, rid: str) -> None:
        """Cancel an open request by its id: it ends with what it has and the finish reason `abort`. Unknown ids are ignored.

        With `n` > 1 all samples of the id end.
        """
        if not isinstance(rid, str):
            raise InvalidParams("rid", rid, "must be a string")
        self._abort(rid)

    def flush_cache(self) -> bool:
        """Drop every cached token and give True; raises EngineBusy while requests are open."""
        self._answer_of("flush")
        return True

    async def async_flush_cache(self) -> bool:
        """`flush_cache` for asyncio."""
        await self._async_answer_of("flush")
        return True

    def get_server_info(self) -> dict[str, Any]:
        """Options as resolved, sizes, counters (`stats`) and the state of the cache."""
        return self._described(self._answer_of("info"))

    async def async_server_info(self) -> dict[str, Any]:
        """`get_server_info` for asyncio."""
        return self._described(await self._async_answer_of("info"))

    async def async_tree(self) -> dict[str, Any]:
        """The radix tree and who holds its nodes, as `engine.info.tree_info` describes them."""
        tree: dict[str, Any] = await self._async_answer_of("tree")
        return tree

    def prepare_now(
        self,
        prompt: Prompt = None,
        sampling_params: RawParams = None,
        input_ids: Ids = None,
        return_logprob: bool | Sequence[bool] = False,
        logprob_start_len: int | Sequence[int] | None = None,
        top_logprobs_num: int | Sequence[int] | None = None,
        token_ids_logprob: Sequence[int] | Sequence[Sequence[int]] | None = None,
        rid: str | Sequence[str] | None = None,
        priority: int | None = None,
        *,
        cache_salt: str | None = None,
        group_id: str | None = None,
        **refused: Any,
    ) -> PromptBatch:
        """The checked requests of one call (the arguments of `generate`); raises InvalidRequest before anything runs."""
        for name, value in refused.items():
            if name not in _NOT_OFFERED:
                raise InvalidParams(name, value, "unknown argument of generate")
            if value is not None and value is not False and not (isinstance(value, int) and value == 0):
                raise UnsupportedFeature(name, _NOT_OFFERED[name])
        batch = make_requests(
            self.tokenizer,
            self.limits,
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
        )
        self._compile(batch.requests)  # here and not on the loop
        return batch

    def prepare_scores(
        self,
        prompt: str,
        choices: Sequence[str],
        *,
        unconditional: bool = False,
        top_logprobs_num: int = 0,
        cache_salt: str | None = None,
        group_id: str | None = None,
    ) -> ScorePlan:
        """The checked requests of `score`; raises InvalidRequest before anything runs."""
        if not isinstance(prompt, str):
            raise InvalidParams("prompt", prompt, "must be a string")
        if not isinstance(choices, list | tuple) or not choices or not all(isinstance(choice, str) and choice for choice in choices):
            raise InvalidParams("choices", choices, "must be a list of strings that are not empty")
        check_labels(cache_salt=cache_salt, group_id=group_id)
        plan = plan_scores(
            self.tokenizer, prompt, choices, unconditional=unconditional, top_num=top_logprobs_num, cache_salt=cache_salt, group_id=group_id
        )
        for request in plan.requests:
            self.limits.check(request)
        return plan

    async def prepare(self, prompt: Prompt = None, sampling_params: RawParams = None, **arguments: Any) -> PromptBatch:
        """`prepare_now`, in a thread where encoding or compiling may hold up the event loop."""
        if isinstance(prompt, str) and len(prompt) <= _QUICK_TEXT_LEN and not _has_constraint(sampling_params):
            return self.prepare_now(prompt, sampling_params, **arguments)
        return await asyncio.to_thread(self.prepare_now, prompt, sampling_params, **arguments)

    async def chunks(self, requests: tuple[GenerateRequest, ...]) -> AsyncGenerator[list[Chunk]]:
        """Run prepared requests; yields what has come since the last time. Closing the iterator aborts what still runs."""
        mailbox = AsyncMailbox(self._feeder())
        self._submit(requests, (mailbox,) * len(requests))
        open_ids = {request.request_id for request in requests}
        try:
            while open_ids:
                yield [chunk_of(item, open_ids) for item in await mailbox.get()]
        finally:
            for request_id in open_ids:
                self._abort(request_id)

    def collector(self, request: GenerateRequest, *, with_text: bool = False) -> Collector:
        """What puts the chunks of a request together to a reply; `with_text` names tokens in log-probabilities."""
        return Collector(request, self.token_text if with_text else None, time.perf_counter())

    def token_text(self, token_id: int) -> str:
        """The text of one token, with U+FFFD for bytes that are no text by themselves."""
        return self.tokenizer.token_bytes(token_id).decode("utf-8", errors="replace")

    def _collectors(self, batch: PromptBatch, with_text: bool) -> dict[str, Collector]:
        return {request.request_id: self.collector(request, with_text=with_text) for request in batch.requests}

    def _chunks(self, requests: tuple[GenerateRequest, ...], collectors: dict[str, Collector]) -> Iterator[str]:
        """Run requests; yields the id of each request that has something new. Leaving early aborts what still runs."""
        mailbox = ThreadMailbox()
        self._submit(requests, (mailbox,) * len(requests))
        open_ids = {request.request_id for request in requests}
        try:
            while open_ids:
                chunk = chunk_of(mailbox.get(), open_ids)
                collectors[chunk.request_id].take(chunk)
                yield chunk.request_id
        finally:
            for request_id in open_ids:
                self._abort(request_id)

    def _stream(self, batch: PromptBatch, with_text: bool) -> Iterator[dict[str, Any]]:
        collectors = self._collectors(batch, with_text)
        index = {request.request_id: i for i, request in enumerate(batch.requests)}
        for request_id in self._chunks(batch.requests, collectors):
            reply = collectors[request_id].reply()
            yield reply if batch.is_one_reply else {**reply, "index": index[request_id]}

    async def _async_stream(self, batch: PromptBatch, with_text: bool) -> AsyncIterator[dict[str, Any]]:
        collectors = self._collectors(batch, with_text)
        index = {request.request_id: i for i, request in enumerate(batch.requests)}
        async with aclosing(self.chunks(batch.requests)) as parts:
            async for chunks in parts:
                for chunk in chunks:
                    collectors[chunk.request_id].take(chunk)
                    reply = collectors[chunk.request_id].reply()
                    yield reply if batch.is_one_reply else {**reply, "index": index[chunk.request_id]}

    def _feeder(self) -> Feeder:
        loop = asyncio.get_running_loop()
        feeder = self._feeders.get(loop)
        if feeder is None:
            feeder = self._feeders[loop] = Feeder(loop)
        return feeder

    def _answer_of(self, what: str) -> Any:
        mailbox = ThreadMailbox()
        self._ask(what, mailbox)
        return _value(mailbox.get())

    async def _async_answer_of(self, what: str) -> Any:
        mailbox = AsyncMailbox(self._feeder())
        self._ask(what, mailbox)
        (item,) = await mailbox.get()
        return _value(item)

    def _described(self, info: Mapping[str, Any]) -> dict[str, Any]:
        from ramet import __version__

        return {**self.config.to_options(), "version": __version__, "model_name": self.model_name, **info}


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


def _value(item: Delivery) -> Any:
    assert isinstance(item, Reply), f"{item} is no answer"
    if item.error is not None:
        raise item.error
    return item.value


def _has_constraint(params: RawParams) -> bool:
    each = [params] if isinstance(params, Mapping) else params or ()
    return any(isinstance(one, Mapping) and any(one.get(name) for name in CONSTRAINT_FIELDS) for one in each)


def _shape(batch: PromptBatch, replies: list[dict[str, Any]]) -> dict[str, Any] | list[dict[str, Any]]:
    return replies[0] if batch.is_one_reply else replies
