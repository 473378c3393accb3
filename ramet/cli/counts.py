"""What a run has cost: differences of the engine's counters, and the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Token counts over all requests of a run; `num_computed` and `num_cached` are of prompt tokens."""

    num_prompt: int
    num_computed: int
    num_cached: int
    num_output: int
    num_steps: int
    wall_s: float

    @classmethod
    def between(cls, before: Mapping[str, Any], after: Mapping[str, Any], wall_s: float) -> RunCounts:
        """What the counters of `get_server_info()["stats"]` have grown by; a backend without a counter counts nothing."""
        stats = [info.get("stats", {}) for info in (before, after)]

        def grown(name: str) -> int:
            return int(stats[1].get(name, 0)) - int(stats[0].get(name, 0))

        return cls(
            num_prompt=grown("num_prompt_tokens"),
            num_computed=grown("num_computed_tokens"),
            num_cached=grown("num_cached_tokens"),
            num_output=grown("num_output_tokens"),
            num_steps=grown("num_steps"),
            wall_s=wall_s,
        )

    @property
    def output_per_s(self) -> float:
        """Generated tokens a second."""
        return self.num_output / self.wall_s if self.wall_s else 0.0

    def cells(self) -> dict[str, str]:
        """Column names and values for people."""
        share = f" ({self.num_cached / self.num_prompt:.0%})" if self.num_prompt else ""
        return {
            "prompt tokens": f"{self.num_prompt:,}",
            "computed": f"{self.num_computed:,}",
            "reused": f"{self.num_cached:,}{share}",
            "generated": f"{self.num_output:,}",
            "steps": f"{self.num_steps:,}",
            "time": f"{self.wall_s:.2f} s",
            "tokens/s": f"{self.output_per_s:.1f}",
        }

    def to_json(self) -> dict[str, Any]:
        """Names and numbers for programs."""
        return {**asdict(self), "output_per_s": self.output_per_s}
