"""The arguments of the rules, built once a step from the rows. A rule that no row needs has no argument and does not run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ramet.params import SamplingParams
from ramet.sampling.mask_index import IndexedMask, MaskIndex
from ramet.sampling.row import SampleRow


@dataclass(frozen=True, slots=True)
class Cells:
    """Single logits to change: `rows` and `ids` are int64 [n], `values` float64 [n]; no cell appears twice."""

    rows: Tensor
    ids: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class RowValues:
    """One number for each of some rows: `rows` is int64 [r], or None for all rows in order; `values` float32 [r]."""

    rows: Tensor | None
    values: Tensor


@dataclass(frozen=True, slots=True)
class RowMasks:
    """Which ids some rows may use: one mask for each of `rows`."""

    rows: tuple[int, ...]
    masks: tuple[IndexedMask, ...]


@dataclass(frozen=True, slots=True)
class RuleArgs:
    """One field a rule, of the rule's name; None where no row needs the rule."""

    logit_bias: Cells | None
    repetition_penalty: Cells | None
    frequency_penalty: Cells | None
    presence_penalty: Cells | None
    min_new_tokens: Cells | None
    allowed: RowMasks | None
    rejected: Cells | None
    temperature: RowValues | None
    top_k: RowValues | None
    top_p: RowValues | None
    min_p: RowValues | None


def is_plain_greedy(row: SampleRow) -> bool:
    """Whether the row's token is the argmax of the raw logits: greedy, and no rule that could move the maximum."""
    params = row.params
    return (
        params.is_greedy
        and not params.logit_bias
        and params.repetition_penalty == 1
        and params.frequency_penalty == 0
        and params.presence_penalty == 0
        and len(row.output_ids) >= params.min_new_tokens
        and row.allowed is None
        and not row.rejected
    )


def build_args(rows: Sequence[SampleRow], width: int, device: torch.device, index: MaskIndex | None = None) -> RuleArgs:
    """The arguments for a block of rows; `width` is the number of ids that may be drawn, `index` remembers masks between steps.

    Greedy rows get no temperature and no truncation: neither moves a maximum. Prompt ids outside the vocabulary (placeholders
    of images) are left out. Changes nothing in the rows.
    """

    def cells(pairs_of: Callable[[SampleRow], tuple[Iterable[int], Iterable[float] | float]]) -> Cells | None:
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        for i, row in enumerate(rows):
            token_ids, values = pairs_of(row)
            ids = torch.tensor(list(token_ids), dtype=torch.int64)
            if not len(ids):
                continue
            amounts = torch.as_tensor(values if isinstance(values, int | float) else list(values), dtype=torch.float64).expand(len(ids))
            is_known = (ids >= 0) & (ids < width)
            found.append((torch.full((int(is_known.sum()),), i), ids[is_known], amounts[is_known]))
        if not found:
            return None
        return Cells(*(torch.cat(column).to(device) for column in zip(*found, strict=True)))

    def row_values(value_of: Callable[[SamplingParams], float], off: float) -> RowValues | None:
        values = [off if row.params.is_greedy else value_of(row.params) for row in rows]
        chosen = [i for i, value in enumerate(values) if value != off]
        if not chosen:
            return None
        which = None if len(chosen) == len(rows) else torch.tensor(chosen, device=device)
        return RowValues(which, torch.tensor([values[i] for i in chosen], dtype=torch.float32, device=device))

    return RuleArgs(
        logit_bias=cells(_bias),
        repetition_penalty=cells(_repetition),
        frequency_penalty=cells(_frequency),
        presence_penalty=cells(_presence),
        min_new_tokens=cells(_not_yet),
        allowed=_masks(rows, width, index or MaskIndex()),
        rejected=cells(lambda row: (row.rejected, -math.inf)),
        temperature=row_values(lambda params: params.temperature, 1.0),
        top_k=row_values(lambda params: params.top_k if 0 < params.top_k < width else -1, -1),
        top_p=row_values(lambda params: params.top_p, 1.0),
        min_p=row_values(lambda params: params.min_p, 0.0),
    )


def _bias(row: SampleRow) -> tuple[Iterable[int], Iterable[float]]:
    pairs = row.params.logit_bias
    return [token_id for token_id, _ in pairs], [bias for _, bias in pairs]


def _repetition(row: SampleRow) -> tuple[Iterable[int], float]:
    penalty = row.params.repetition_penalty
    return (set(row.prompt_ids).union(row.output_ids) if penalty != 1 else ()), penalty


def _frequency(row: SampleRow) -> tuple[Iterable[int], Iterable[float]]:
    penalty = row.params.frequency_penalty
    counts: Counter[int] = Counter(row.output_ids) if penalty else Counter()
    return counts, [penalty * count for count in counts.values()]


def _presence(row: SampleRow) -> tuple[Iterable[int], float]:
    penalty = row.params.presence_penalty
    return (set(row.output_ids) if penalty else ()), penalty


def _not_yet(row: SampleRow) -> tuple[Iterable[int], float]:
    """The ids that would end a request that is still too short."""
    params = row.params
    if len(row.output_ids) >= params.min_new_tokens:
        return (), 0.0
    ends = set(params.stop_token_ids) if params.ignore_eos else {*params.stop_token_ids, *row.eos_ids}
    if row.allowed is not None:
        # A constrained text that can only end must end: the mask wins over the length.
        going_on = row.allowed.clone()
        going_on[[token_id for token_id in (*ends, *row.rejected) if token_id < len(going_on)]] = False
        if not bool(going_on.any()):
            return (), 0.0
    return ends, -math.inf


def _masks(rows: Sequence[SampleRow], width: int, index: MaskIndex) -> RowMasks | None:
    masks = [(i, row.allowed) for i, row in enumerate(rows) if row.allowed is not None]
    if not masks:
        return None
    for _, mask in masks:
        assert mask.dtype == torch.bool and mask.ndim == 1 and len(mask) >= width, "allowed must be bool [vocab]"
    return RowMasks(tuple(i for i, _ in masks), tuple(index.get(mask) for _, mask in masks))
