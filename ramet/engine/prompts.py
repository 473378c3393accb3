"""From the arguments of `generate` to checked requests: one prompt or a list, text or ids, one set of parameters or one each."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ramet.engine.limits import Limits
from ramet.errors import InvalidParams, InvalidRequest
from ramet.messages import GenerateRequest
from ramet.params import LogprobParams, SamplingParams
from ramet.tokenizer import Tokenizer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PromptBatch:
    """Checked requests of one call; `num_prompts` prompts with `n` samples each, or a single one (`is_single`)."""

    requests: tuple[GenerateRequest, ...]  # samples of a prompt stand together
    samples: tuple[int, ...]  # n of each prompt
    is_single: bool

    @property
    def is_one_reply(self) -> bool:
        """Whether the caller gets one dict and not a list."""
        return self.is_single and self.samples == (1,)


def make_requests(
    tokenizer: Tokenizer,
    limits: Limits,
    *,
    prompt: str | Sequence[str] | None,
    input_ids: Sequence[int] | Sequence[Sequence[int]] | None,
    sampling_params: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    return_logprob: bool | Sequence[bool],
    logprob_start_len: int | Sequence[int] | None,
    top_logprobs_num: int | Sequence[int] | None,
    token_ids_logprob: Sequence[int] | Sequence[Sequence[int]] | None,
    rid: str | Sequence[str] | None,
    priority: int | None,
    cache_salt: str | None,
    group_id: str | None,
) -> PromptBatch:
    """Build and check the requests of one call; raises InvalidRequest (or a child of it) before anything is queued."""
    id_lists, is_single = _prompt_ids(tokenizer, prompt, input_ids)
    count = len(id_lists)
    params = _params(sampling_params, count)
    wanted = _spread("return_logprob", return_logprob, count, bool)
    starts = _spread("logprob_start_len", logprob_start_len, count, int)
    tops = _spread("top_logprobs_num", top_logprobs_num, count, int)
    picked = _spread_lists(token_ids_logprob, count)
    names = _request_ids(rid, count)
    check_labels(cache_salt=cache_salt, group_id=group_id)
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int)):
        raise InvalidParams("priority", priority, "must be an integer")
    requests: list[GenerateRequest] = []
    for i in range(count):
        logprobs = LogprobParams(
            is_wanted=bool(wanted[i]),
            start_len=-1 if starts[i] is None else starts[i],
            top_num=tops[i] or 0,
            token_ids=tuple(picked[i] or ()),
        )
        sampling = params[i]
        for k in range(sampling.n):
            seed = sampling.sampling_seed
            request = GenerateRequest(
                request_id=names[i] if sampling.n == 1 else f"{names[i]}-{k}",
                prompt_ids=id_lists[i],
                params=sampling.with_changes(n=1, sampling_seed=None if seed is None else _wrap(seed + k)),
                logprobs=logprobs,
                priority=priority or 0,
                cache_salt=cache_salt or "",
                group_id=group_id or (names[i] if sampling.n > 1 else None),
                sample_of=names[i] if sampling.n > 1 else None,
            )
            limits.check(request)
            requests.append(request)
    return PromptBatch(tuple(requests), tuple(p.n for p in params), is_single)


def _params(raw: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None, count: int) -> list[SamplingParams]:
    """The parameters of each prompt; a mapping that holds for all of them is read once."""
    if raw is None or isinstance(raw, Mapping):
        return [SamplingParams.from_mapping(raw)] * count
    return [SamplingParams.from_mapping(own) for own in _spread("sampling_params", raw, count, Mapping)]


def check_labels(**labels: object) -> None:
    """Refuse names of tenants and groups that are not text."""
    for name, value in labels.items():
        if value is not None and not isinstance(value, str):
            raise InvalidParams(name, value, "must be a string")


def _wrap(seed: int) -> int:
    """Keep seed + k within 64 bits."""
    return (seed + 2**63) % 2**64 - 2**63


def _prompt_ids(
    tokenizer: Tokenizer, prompt: str | Sequence[str] | None, input_ids: Sequence[int] | Sequence[Sequence[int]] | None
) -> tuple[list[tuple[int, ...]], bool]:
    if (prompt is None) == (input_ids is None):
        raise InvalidRequest("give exactly one of prompt (text) and input_ids")
    if prompt is not None:
        texts: list[Any] = list(prompt) if isinstance(prompt, list | tuple) else [prompt]
        if not all(isinstance(text, str) for text in texts):
            raise InvalidParams("prompt", prompt, "must be a string or a list of strings")
        for text in texts:
            if not text:
                raise InvalidParams("prompt", text, "must not be empty")
        return [tuple(ids) for ids in tokenizer.encode_batch(texts)], isinstance(prompt, str)
    assert input_ids is not None
    if not isinstance(input_ids, Sequence) or isinstance(input_ids, str | bytes | bytearray):
        raise InvalidParams("input_ids", input_ids, "must be a list of token ids or a list of such lists")
    is_single = len(input_ids) == 0 or not isinstance(input_ids[0], Sequence)
    lists: list[Any] = [input_ids] if is_single else list(input_ids)
    for ids in lists:
        if (
            not isinstance(ids, Sequence)
            or isinstance(ids, str | bytes | bytearray)
            or any(isinstance(i, bool) or not isinstance(i, int) for i in ids)
        ):
            raise InvalidParams("input_ids", ids, "must be a list of integers")
    return [tuple(ids) for ids in lists], is_single


def _spread(name: str, value: Any, count: int, kind: type) -> list[Any]:
    """One value for all prompts, or a list with one each."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != count:
            raise InvalidParams(name, value, f"has {len(value)} entries for {count} prompts")
        values = list(value)
    else:
        values = [value] * count
    for item in values:
        if item is not None and (not isinstance(item, kind) or (kind is int and isinstance(item, bool))):
            raise InvalidParams(name, item, f"must be of type {kind.__name__.lower()}")
    return values


def _spread_lists(value: Any, count: int) -> list[Any]:
    if value is not None and not isinstance(value, list | tuple):
        raise InvalidParams("token_ids_logprob", value, "must be a list of token ids, or one such list a prompt")
    if value and isinstance(value[0], list | tuple):
        if len(value) != count:
            raise InvalidParams("token_ids_logprob", value, f"has {len(value)} entries for {count} prompts")
        for item in value:
            if not isinstance(item, list | tuple):
                raise InvalidParams("token_ids_logprob", item, "must be a list of token ids")
        return list(value)
    return [value] * count


def _request_ids(rid: str | Sequence[str] | None, count: int) -> list[str]:
    if rid is None:
        return [uuid.uuid4().hex for _ in range(count)]
    names: list[Any] = list(rid) if isinstance(rid, list | tuple) else [rid]
    if len(names) != count or not all(isinstance(name, str) and name for name in names):
        raise InvalidParams("rid", rid, f"must name each of the {count} prompts")
    if len(set(names)) != count:
        raise InvalidParams("rid", rid, "names a request twice")
    return names
