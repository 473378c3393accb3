"""A runner without a model: it reads each row's tokens back from the pool and says what comes next."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ramet.schedule.plan import Plan
from ramet.schedule.shadow import ShadowPool

FORCED_LOGIT = 50.0


class ScriptedRunner:
    """Gives logits that depend on the tokens of a row alone, as a model's do, and that force `next_id(tokens)` where it is not None.

    The tokens are read back through the slots of the plan (`ShadowPool`), so a fault of cache or scheduler shows as an assertion
    or as another text. Ships with the package: an engine over it needs no weights.
    """

    def __init__(
        self, vocab_size: int, next_id: Callable[[Sequence[int]], int | None], *, num_slots: int = 4096, context_len: int = 2048
    ) -> None:
        self.vocab_size = vocab_size
        self.num_slots = num_slots
        self.context_len = context_len
        self.device = torch.device("cpu")
        self._next_id = next_id
        self._pool = ShadowPool(num_slots)
        self._ramp = np.arange(1, vocab_size + 1, dtype=np.float64)

    def run(self, plan: Plan) -> Tensor:
        """Float32 logits [plan.num_logits, vocab_size] in row order."""
        out: list[np.ndarray] = []
        for row, ids in zip(plan.rows, self._pool.run(plan), strict=True):
            tokens = ids.tolist()
            for end in range(len(tokens) - row.num_logits + 1, len(tokens) + 1):
                out.append(self._logits(tokens[:end]))
        stacked = np.stack(out) if out else np.empty((0, self.vocab_size))
        return torch.from_numpy(stacked.astype(np.float32))

    def _logits(self, tokens: list[int]) -> np.ndarray:
        frequency = 1.0 + hash(tuple(tokens)) % 9973 / 97.0
        logits: np.ndarray = 2.0 * np.sin(self._ramp * frequency)
        forced = self._next_id(tokens)
        if forced is not None:
            logits[forced] = FORCED_LOGIT
        return logits


def literal(prompt_len: int, output_ids: Sequence[int], then: int) -> Callable[[Sequence[int]], int | None]:
    """A script that follows a prompt of `prompt_len` tokens with `output_ids`, then with `then` for ever."""

    def next_id(tokens: Sequence[int]) -> int | None:
        done = len(tokens) - prompt_len
        if done < 0:
            return None
        return output_ids[done] if done < len(output_ids) else then

    return next_id
