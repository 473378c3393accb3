"""One step's logits to one token a row: argmax where the row is greedy, rules and one random number where it is not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields

import torch
from torch import Tensor

from ramet.sampling.args import RuleArgs, build_args, is_plain_greedy
from ramet.sampling.counter_rng import uniform
from ramet.sampling.logprobs import token_logprobs
from ramet.sampling.mask_index import MaskIndex
from ramet.sampling.row import Sampled, SampleRow
from ramet.sampling.rules import RULES

__all__ = ["SampleRow", "Sampled", "Sampler", "draw"]

_BLOCK_SIZE = 1 << 21  # logits copied and worked on at once: bounds the memory of a step with many rows
_GROUP_SIZE = 128  # ids whose weights are summed before one group is looked into
_NO_WEIGHT = 1e-37  # beside the largest weight of 1; exp(-86) lies below it


class Sampler:
    """Draws tokens; remembers nothing of them, so one depends on its row's logits, parameters, seed and position alone.

    `num_valid_ids` is the size of the tokenizer's vocabulary where the logits are padded beyond it: such ids are never drawn.
    """

    def __init__(self, vocab_size: int, device: torch.device | str = "cpu", num_valid_ids: int | None = None) -> None:
        self.vocab_size = vocab_size
        self.device = torch.device(device)
        self._index = MaskIndex()
        self.num_valid_ids = vocab_size if num_valid_ids is None else num_valid_ids
        assert {name for name, _ in RULES} == {item.name for item in fields(RuleArgs)}, "each rule has its argument in RuleArgs"
        assert 0 < self.num_valid_ids <= vocab_size, f"num_valid_ids {num_valid_ids} does not fit {vocab_size} logits"

    @torch.inference_mode()
    def sample(self, logits: Tensor, rows: Sequence[SampleRow]) -> list[Sampled]:
        """The next token of each row, and its log-probability in the model's own distribution where `row.logprobs` wants it.

        `logits` is float32 [rows, vocab_size] and is not changed; neither are the rows. Asserts that each row has a token to
        draw: logits that are NaN, or a mask that forbids everything, are faults of the caller.
        """
        assert logits.shape == (len(rows), self.vocab_size), f"logits {tuple(logits.shape)} for {len(rows)} rows of {self.vocab_size}"
        assert logits.dtype == torch.float32, f"logits are {logits.dtype}, not float32"
        if not rows:
            return []
        token_ids = self._choose(logits[:, : self.num_valid_ids], rows)
        wanted = [i for i, row in enumerate(rows) if row.logprobs.is_wanted]
        if not wanted:
            return [Sampled(token_id) for token_id in token_ids]
        found = token_logprobs(
            logits if len(wanted) == len(rows) else logits[wanted],
            [token_ids[i] for i in wanted],
            [rows[i].logprobs for i in wanted],
            self.num_valid_ids,
        )
        by_row = dict(zip(wanted, found, strict=True))
        return [Sampled(token_id, by_row.get(i)) for i, token_id in enumerate(token_ids)]

    @torch.inference_mode()
    def masked_mass(self, logits: Tensor, masks: Sequence[Tensor]) -> list[float]:
        """The probability that each row's mask takes away; `logits` float32 [rows, vocab_size], `masks` bool [vocab_size] each."""
        chances = torch.softmax(logits, -1)
        if logits.device.type == "cpu":
            return [self._index.get(mask).forbidden_mass(row) for row, mask in zip(chances, masks, strict=True)]
        stacked = torch.stack([mask.to(logits.device) for mask in masks])
        kept: list[float] = chances.masked_fill_(~stacked, 0.0).sum(-1).tolist()
        return [min(1.0, max(0.0, 1.0 - mass)) for mass in kept]

    def num_allowed(self, mask: Tensor) -> int:
        """How many tokens a mask allows."""
        return self._index.get(mask).num_allowed

    def _choose(self, logits: Tensor, rows: Sequence[SampleRow]) -> list[int]:
        plain: list[int] = []  # greedy, no rule: argmax of the raw logits
        edited: list[int] = []  # greedy under rules
        drawn: list[int] = []
        for i, row in enumerate(rows):
            (drawn if not row.params.is_greedy else plain if is_plain_greedy(row) else edited).append(i)
        if len(plain) == len(rows):
            return _argmax(logits)
        chosen = [-1] * len(rows)

        def put(where: Sequence[int], token_ids: Sequence[int]) -> None:
            for i, token_id in zip(where, token_ids, strict=True):
                chosen[i] = token_id

        if plain:
            put(plain, _argmax(logits[plain]))
        for block in self._blocks(edited):
            put(block, _argmax(self._ruled(logits, rows, block)))
        for block in self._blocks(drawn):
            numbers = [uniform(rows[i].seed, rows[i].position) for i in block]
            put(block, draw(self._ruled(logits, rows, block), numbers))
        return chosen

    def _blocks(self, indices: Sequence[int]) -> Iterator[Sequence[int]]:
        # A launch on a GPU costs more than a copy there: one block.
        size = max(1, _BLOCK_SIZE // self.num_valid_ids) if self.device.type == "cpu" else max(1, len(indices))
        for start in range(0, len(indices), size):
            yield indices[start : start + size]

    def _ruled(self, logits: Tensor, rows: Sequence[SampleRow], block: Sequence[int]) -> Tensor:
        """A copy of some rows after every rule that one of them needs; float32 [len(block), num_valid_ids]."""
        args = build_args([rows[i] for i in block], self.num_valid_ids, logits.device, self._index)
        work = logits[torch.tensor(block, device=logits.device)]
        for name, rule in RULES:
            arg = getattr(args, name)
            if arg is not None:
                work = rule(work, arg)
        return work


def _argmax(logits: Tensor) -> list[int]:
    """The most likely id of each row, the lowest of those that tie."""
    best = logits.argmax(-1)
    values = logits.gather(1, best[:, None])[:, 0]
    assert bool(torch.isfinite(values).all()), "a row has no token to draw: its logits are NaN or all forbidden"
    return [int(token_id) for token_id in best.tolist()]


def draw(logits: Tensor, numbers: Sequence[float]) -> list[int]:
    """One id a row from softmax(logits) by inverting the cumulative distribution at a number in [0, 1).

    `logits` is float32 [rows, width] and is overwritten; -inf is never drawn. One number a row suffices, where the Gumbel trick
    needs one an id: hashing 49,152 numbers a row would cost more than all else here. Sums are float64, so that rare ids
    keep their probability.
    """
    # exp is several times slower on -inf than on numbers, so forbidden ids go in as a tiny weight and are set to 0 after it.
    weights = logits.sub_(logits.amax(-1, keepdim=True)).clamp_(min=-86.0).exp_()
    weights = torch.threshold_(weights, _NO_WEIGHT, 0.0)
    width = weights.shape[-1]
    # Two levels: the sums of groups of ids first, then the ids of one group. A running sum over all ids costs four times that.
    num_groups = -(-width // _GROUP_SIZE)
    whole = width // _GROUP_SIZE * _GROUP_SIZE
    sums = weights[:, :whole].reshape(len(weights), -1, _GROUP_SIZE).sum(-1, dtype=torch.float64)
    if num_groups * _GROUP_SIZE != width:
        sums = torch.cat((sums, weights[:, whole:].sum(-1, keepdim=True, dtype=torch.float64)), dim=1)
    mass = sums.cumsum(-1)
    assert bool(torch.isfinite(mass[:, -1]).all()), "a row has no token to draw: its logits are NaN or all forbidden"
    wanted = torch.tensor(numbers, dtype=torch.float64, device=logits.device)[:, None] * mass[:, -1:]
    groups = torch.searchsorted(mass, _below(wanted, mass[:, -1:]), right=True)
    before = mass.gather(1, groups) - sums.gather(1, groups)
    inside = groups * _GROUP_SIZE + torch.arange(_GROUP_SIZE, device=logits.device)  # ids of the group; those past the end weigh 0
    part = weights.gather(1, inside.clamp(max=width - 1)).double().masked_fill_(inside >= width, 0.0).cumsum_(-1)
    offsets = torch.searchsorted(part, _below((wanted - before).clamp_(min=0.0), part[:, -1:]), right=True)
    return [int(token_id) for token_id in (groups * _GROUP_SIZE + offsets)[:, 0].tolist()]


def _below(wanted: Tensor, total: Tensor) -> Tensor:
    """At most the last number below the total: a product or a difference may round up to it, where no id is left."""
    return torch.minimum(wanted, torch.nextafter(total, torch.full_like(total, -math.inf)))
