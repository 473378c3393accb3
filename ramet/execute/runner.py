"""From a Plan to logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ramet.attention import AttentionBackend, AttentionShape
from ramet.batch import ForwardBatch, Slots
from ramet.models import Decoder, ModelConfig
from ramet.schedule.plan import Plan, Row


class Runner(Protocol):
    """Computes plans. `vocab_size` is the width of the logits, `num_slots` the size of the KV pool in tokens."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def context_len(self) -> int: ...
    @property
    def num_slots(self) -> int: ...
    @property
    def device(self) -> torch.device: ...

    def run(self, plan: Plan) -> Tensor:
        """Logits [plan.num_logits, vocab_size] float32 in row order, on the device. Writes the slots of the plan's new tokens."""
        ...


class ModelRunner:
    """A decoder with its KV pool."""

    def __init__(self, model: Decoder, kv: Sequence[Tensor], attention: AttentionBackend) -> None:
        config = model.config
        self.model_config: ModelConfig = config
        self.vocab_size = config.vocab_size
        self.context_len = config.context_len
        self.num_layers = config.num_layers
        self.num_slots = len(kv[0])
        self.dtype = kv[0].dtype
        self.device = kv[0].device
        self._model = model
        self._kv = tuple(kv)
        self._attention = attention
        self._windows = tuple(dict.fromkeys(config.windows))
        self._shape = AttentionShape(config.num_heads, config.num_kv_heads, config.head_dim, config.head_dim**-0.5, self.dtype, self.device)

    def run(self, plan: Plan) -> Tensor:
        """See `Runner`."""
        assert plan.rows, "a plan has at least one row"
        with torch.inference_mode():
            return self._model(self._batch(plan.rows), self._kv).float()

    def _batch(self, rows: Sequence[Row]) -> ForwardBatch:
        for row in rows:
            context_len = sum(len(span.slots) for span in row.context)
            assert context_len == row.start, (
                f"row {row.request_id}: the context holds {context_len} tokens and the row starts at {row.start}"
            )
            assert len(row.slots) == len(row.token_ids) > 0, f"row {row.request_id}: {len(row.slots)} slots for {len(row.token_ids)} tokens"
            assert row.num_logits <= len(row.token_ids), f"row {row.request_id}: more logits than tokens"
        positions = _concat([np.arange(row.start, row.start + len(row.token_ids)) for row in rows])
        return ForwardBatch(
            token_ids=self._to_device(_concat([row.token_ids for row in rows])),
            positions=self._to_device(positions),
            slots=self._to_device(_concat([row.slots for row in rows])),
            logit_indices=self._logit_indices(rows, len(positions)),
            attention={window: self._attention(rows, self._shape, window) for window in self._windows},
        )

    def _logit_indices(self, rows: Sequence[Row], num_tokens: int) -> Tensor | None:
        ends = np.cumsum([len(row.token_ids) for row in rows])
        indices = _concat([np.arange(end - row.num_logits, end) for row, end in zip(rows, ends, strict=True)])
        return None if len(indices) == num_tokens else self._to_device(indices)

    def _to_device(self, array: Slots) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def _concat(parts: Sequence[Slots]) -> Slots:
    return np.concatenate(parts) if len(parts) > 1 else parts[0]
