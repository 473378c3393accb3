"""Counters of one engine since its start. Each feature that saves work has one, so that a test can see it working."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Stats:
    """Token counts are of prompt tokens unless they say otherwise."""

    num_requests: int = 0
    num_finished: int = 0
    num_aborted: int = 0
    num_steps: int = 0
    num_mixed_steps: int = 0  # steps with decode rows and prompt tokens together
    num_prompt_tokens: int = 0  # of requests that ended
    num_cached_tokens: int = 0  # of requests that ended: found in the cache or computed by another row of the same step
    num_computed_tokens: int = 0  # prompt tokens that went through the model
    num_recomputed_tokens: int = 0  # output tokens that went through the model again after a retraction
    num_shared_in_pass: int = 0  # tokens that a row read although another row of the same step wrote them
    num_output_tokens: int = 0
    num_forced_tokens: int = 0  # output tokens that jump-forward wrote without a draw
    num_jumps: int = 0
    num_rejected_draws: int = 0  # tokens drawn again because they were not canonical
    num_late_masks: int = 0  # draws put off to a later step because the mask was not there yet
    num_retractions: int = 0
    num_evicted_tokens: int = 0
    num_prefix_hints: int = 0  # prompts that were only to be cached
    num_chunked_rows: int = 0  # rows that computed a part of what their request still missed
    max_running: int = 0

    def to_dict(self) -> dict[str, int | float]:
        """All counters, and the hit rate of the requests that ended."""
        counts: dict[str, int | float] = dict(asdict(self))
        counts["cache_hit_rate"] = self.num_cached_tokens / self.num_prompt_tokens if self.num_prompt_tokens else 0.0
        return counts
