"""The rules that turn the model's logits into those that are drawn from: one function a rule, in the order of RULES.

A rule gets float32 logits [rows, width] and its argument from `args.RuleArgs`, changes the tensor in place (the sampler hands
over a copy) and returns it. To add one: a function and a row here, a field in `RuleArgs`, a field in `params.py`.

Each truncation sees the distribution that the rule before it left, so top-p counts the renormalised mass of the top-k tokens.
All three work by a threshold on the value: tokens that tie with the last one kept are kept as well. So what is kept does not
depend on the order in which equal tokens are met, and top-k can keep more than k tokens (only greedy, k = 1, breaks a tie: the
lowest id).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ramet.sampling.args import Cells, RowMasks, RowValues
from ramet.sampling.nucleus import keep_from, nucleus_by_bins, nucleus_by_sort

_FINITE = 1e30  # edited logits stay below it: a bias may not turn into an infinity that no softmax survives


def logit_bias(logits: Tensor, cells: Cells) -> Tensor:
    """Add the bias of each biased token."""
    return _edit(logits, cells, lambda old, bias: old + bias)


def repetition_penalty(logits: Tensor, cells: Cells) -> Tensor:
    """Make each token of the prompt or the output less likely (CTRL, Keskar et al. 2019, section 4.1): /θ above zero, xθ below."""
    return _edit(logits, cells, lambda old, penalty: torch.where(old > 0, old / penalty, old * penalty))


def frequency_penalty(logits: Tensor, cells: Cells) -> Tensor:
    """Subtract penalty x (how often the token is in the output)."""
    return _edit(logits, cells, lambda old, amount: old - amount)


def presence_penalty(logits: Tensor, cells: Cells) -> Tensor:
    """Subtract the penalty once from each token that is in the output."""
    return _edit(logits, cells, lambda old, amount: old - amount)


def min_new_tokens(logits: Tensor, cells: Cells) -> Tensor:
    """Forbid the ids that would end a request which is still too short."""
    return _edit(logits, cells, lambda _, forbidden: forbidden)


def allowed(logits: Tensor, masks: RowMasks) -> Tensor:
    """Forbid what a row's mask does not allow."""
    if logits.device.type == "cpu":
        for row, mask in zip(masks.rows, masks.masks, strict=True):
            mask.forbid(logits[row])
        return logits
    which = torch.tensor(masks.rows, device=logits.device)  # there one pass over all is cheaper than a launch a row
    stacked = torch.stack([mask.mask[: logits.shape[1]].to(logits.device) for mask in masks.masks])
    logits[which] = logits[which].masked_fill_(~stacked, -math.inf)
    return logits


def rejected(logits: Tensor, cells: Cells) -> Tensor:
    """Forbid tokens that were drawn for this very place and turned down."""
    return _edit(logits, cells, lambda _, forbidden: forbidden)


def temperature(logits: Tensor, values: RowValues) -> Tensor:
    """Divide by the temperature."""
    return _on_rows(logits, values, lambda part, value: part.div_(value))


def top_k(logits: Tensor, values: RowValues) -> Tensor:
    """Keep the k most likely tokens and those that tie with the k-th."""

    def cut(part: Tensor, value: Tensor) -> Tensor:
        k = value.long()
        best = part.topk(int(k.max()), dim=-1).values
        return keep_from(part, best.gather(1, k - 1))

    return _on_rows(logits, values, cut)


def top_p(logits: Tensor, values: RowValues) -> Tensor:
    """Keep the fewest most likely tokens whose mass is at least p (Holtzman et al. 2019), and those that tie with the last."""
    return _on_rows(logits, values, nucleus_by_bins if logits.device.type == "cpu" else nucleus_by_sort)


def min_p(logits: Tensor, values: RowValues) -> Tensor:
    """Keep the tokens at least min_p times as likely as the most likely one (Nguyen et al. 2024)."""
    return _on_rows(logits, values, lambda part, value: keep_from(part, part.amax(-1, keepdim=True) + value.log()))


RULES: tuple[tuple[str, Callable[[Tensor, Any], Tensor]], ...] = (
    ("logit_bias", logit_bias),
    ("repetition_penalty", repetition_penalty),
    ("frequency_penalty", frequency_penalty),
    ("presence_penalty", presence_penalty),
    ("min_new_tokens", min_new_tokens),
    ("allowed", allowed),
    ("rejected", rejected),
    ("temperature", temperature),
    ("top_k", top_k),
    ("top_p", top_p),
    ("min_p", min_p),
)


def _edit(logits: Tensor, cells: Cells, change: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Change single cells, in float64 and clamped from above, so that no finite argument gives NaN or +inf."""
    new = change(logits[cells.rows, cells.ids].double(), cells.values)
    logits[cells.rows, cells.ids] = torch.where(new == -math.inf, new, new.clamp(-_FINITE, _FINITE)).float()
    return logits


def _on_rows(logits: Tensor, values: RowValues, change: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Apply an in-place change to the rows that have a value (given to it as [rows, 1])."""
    if values.rows is None:
        return change(logits, values.values[:, None])
    logits[values.rows] = change(logits[values.rows], values.values[:, None])
    return logits
