"""Log-probabilities of the model's own distribution: before bias, penalties, temperature and truncation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ramet.messages import TokenLogprob
from ramet.params import LogprobParams

_CHUNK_BYTES = 64 << 20  # the largest float32 copy of logits that is made at once


@torch.inference_mode()
def prompt_logprobs(
    logits: Tensor, target_ids: Sequence[int], params: LogprobParams, num_valid_ids: int | None = None
) -> list[TokenLogprob]:
    """The log-probabilities of given tokens; row i of `logits` predicts target i.

    `logits` is [n, vocab] of any float dtype and is not changed. See `token_logprobs`.
    """
    return token_logprobs(logits, target_ids, [params] * len(target_ids), num_valid_ids)


def token_logprobs(
    logits: Tensor, token_ids: Sequence[int], params: Sequence[LogprobParams], num_valid_ids: int | None = None
) -> list[TokenLogprob]:
    """log_softmax at each row's token, at its `top_num` most likely ids (descending, ties by id) and at its explicit ids.

    `logits` is [n, vocab] of any float dtype and is not changed; sums are float32, over at most 64 MiB of logits at once. The
    distribution is that over all logits the model gives; the alternatives are only ids below `num_valid_ids`, so a `top_num`
    beyond it gives fewer.
    """
    assert len(logits) == len(token_ids) == len(params), f"{len(logits)} rows, {len(token_ids)} tokens, {len(params)} params"
    width = logits.shape[-1] if num_valid_ids is None else num_valid_ids
    chunk_len = max(1, _CHUNK_BYTES // (4 * logits.shape[-1]))
    out: list[TokenLogprob] = []
    for start in range(0, len(logits), chunk_len):
        part = slice(start, start + chunk_len)
        out += _chunk_logprobs(logits[part].float(), token_ids[part], params[part], width)
    return out


def _chunk_logprobs(logits: Tensor, token_ids: Sequence[int], params: Sequence[LogprobParams], width: int) -> list[TokenLogprob]:
    norm = log_norm(logits)
    chosen = (logits.gather(1, torch.tensor(token_ids, device=logits.device)[:, None]) - norm)[:, 0].tolist()
    tops = _top(logits[:, :width], norm, [min(p.top_num, width) for p in params])
    cells = [(i, token_id) for i, p in enumerate(params) for token_id in p.token_ids]
    picked: list[list[tuple[int, float]]] = [[] for _ in params]
    if cells:
        rows, ids = torch.tensor(cells, device=logits.device).T
        for (i, token_id), value in zip(cells, (logits[rows, ids] - norm[rows, 0]).tolist(), strict=True):
            picked[i].append((token_id, value))
    return [
        TokenLogprob(token_id, value, top, tuple(own)) for token_id, value, top, own in zip(token_ids, chosen, tops, picked, strict=True)
    ]


def log_norm(logits: Tensor) -> Tensor:
    """What log_softmax subtracts: log of the sum of exp over the last dimension, float32 [n, 1]."""
    return logits.logsumexp(-1, keepdim=True)


def _top(logits: Tensor, norm: Tensor, nums: Sequence[int]) -> list[tuple[tuple[int, float], ...]]:
    """The most likely ids of each row. topk leaves open which of two equal ids it takes; the lower one is taken here, so that
    the first alternative is the id that a greedy row chooses."""
    most = max(nums, default=0)
    if most == 0:
        return [()] * len(nums)
    values, ids = logits.topk(min(most + 1, logits.shape[-1]), dim=-1)
    out: list[tuple[tuple[int, float], ...]] = []
    for i, (num, row_values, row_ids) in enumerate(zip(nums, (values - norm).tolist(), ids.tolist(), strict=True)):
        if 0 < num < len(row_ids) and values[i, num - 1] == values[i, num]:  # a tie across the border
            row_ids = (logits[i] >= values[i, num - 1]).nonzero()[:, 0].tolist()
            row_values = (logits[i, row_ids] - norm[i]).tolist()
        ranked = sorted(zip(row_ids, row_values, strict=True), key=lambda pair: (-pair[1], pair[0]))
        out.append(tuple(ranked[:num]))
    return out
