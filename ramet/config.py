"""Options of the engine, in sections: each part receives its own. The environment is read here and nowhere else."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ramet.errors import ConfigError

LOAD_FORMATS = ("auto", "safetensors", "gguf", "dummy")
DTYPES = ("auto", "float32", "bfloat16", "float16")
PACKED_WEIGHTS = ("auto", "off", "int4", "int8")
JUMP_FORWARD = ("heal", "retokenize", "off")
CANONICAL_MASKS = ("finite", "always", "never")
JSON_WHITESPACE = ("fixed", "compact", "flexible")


def _option(default: Any, doc: str) -> Any:
    """A field with its help text; the command line's flags and the docs are made from it."""
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which model is served and how its weights are held."""

    model_path: str = _option("smollm2-135m", "a folder, a GGUF file, a Hub id, or the embedded smollm2-135m")
    tokenizer_path: str | None = _option(None, "where the tokenizer lies, when not beside the model")
    load_format: str = _option("auto", f"one of {', '.join(LOAD_FORMATS)}; dummy fills seeded random weights")
    dtype: str = _option("auto", f"one of {', '.join(DTYPES)}; auto is bfloat16 where the machine is fast at it")
    device: str = _option("auto", "cpu, cuda, cuda:N or auto")
    context_length: int | None = _option(None, "the longest request in tokens; the model's own limit when not given")
    packed_weights: str = _option(
        "auto", f"one of {', '.join(PACKED_WEIGHTS)}: extra packed copies of the weights for steps of few tokens on a CPU"
    )
    revision: str | None = _option(None, "branch, tag or commit of a Hub id")
    random_seed: int = _option(0, "seed of dummy weights and of requests that bring none")
    num_threads: int | None = _option(None, "threads of one tensor operation on a CPU; torch's choice when not given")
    chat_template: str | None = _option(None, "name of a registered chat template; found from the model's name when not given")


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """The KV pool and the prefix cache."""

    max_total_tokens: int | None = _option(None, "slots of the KV pool; sized from memory when not given")
    mem_fraction_static: float = _option(0.5, "share of the free memory that the KV pool may take when it is sized from memory")
    disable_radix_cache: bool = _option(False, "compute every prompt from its first token")
    radix_eviction_policy: str = _option("lru", "which unused leaf goes first: lru, lfu or fifo")


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """Which requests run next and how much of them."""

    schedule_policy: str = _option("lpm", "order of admission: lpm, dfs-weight, fcfs, random or priority")
    max_running_requests: int = _option(256, "requests that hold slots at the same time")
    max_queued_requests: int | None = _option(None, "waiting requests beyond which new ones are refused; no limit when not given")
    chunked_prefill_size: int = _option(2048, "prompt tokens computed in one step, over all requests")
    fairness_budget: int | None = _option(65536, "prefill tokens that may overtake a waiting request before it goes first; None: no bound")


@dataclass(frozen=True, slots=True)
class ConstraintOptions:
    """How constrained texts are written."""

    jump_forward: str = _option("heal", f"how forced text is jumped over, one of {', '.join(JUMP_FORWARD)}; see docs/jump-forward.md")
    canonical_masks: str = _option(
        "finite", f"where only tokens may be drawn that the tokenizer would write itself, one of {', '.join(CANONICAL_MASKS)}; see docs"
    )
    json_whitespace: str = _option("fixed", f"white space of a json_schema, one of {', '.join(JSON_WHITESPACE)}; fixed is one blank")


@dataclass(frozen=True, slots=True)
class Config:
    """All sections of one engine."""

    model: ModelOptions = field(default_factory=ModelOptions)
    cache: CacheOptions = field(default_factory=CacheOptions)
    schedule: ScheduleOptions = field(default_factory=ScheduleOptions)
    constraint: ConstraintOptions = field(default_factory=ConstraintOptions)

    def __post_init__(self) -> None:
        section: Any
        for section, name, allowed in (
            (self.model, "load_format", LOAD_FORMATS),
            (self.model, "dtype", DTYPES),
            (self.model, "packed_weights", PACKED_WEIGHTS),
            (self.constraint, "jump_forward", JUMP_FORWARD),
            (self.constraint, "canonical_masks", CANONICAL_MASKS),
            (self.constraint, "json_whitespace", JSON_WHITESPACE),
        ):
            if getattr(section, name) not in allowed:
                raise ConfigError(name, getattr(section, name), f"must be one of {', '.join(allowed)}")
        if self.model.chat_template is not None and not self.model.chat_template:
            raise ConfigError("chat_template", self.model.chat_template, "must be the name of a registered template")
        for section, name in (
            (self.model, "context_length"),
            (self.model, "num_threads"),
            (self.cache, "max_total_tokens"),
            (self.schedule, "max_running_requests"),
            (self.schedule, "chunked_prefill_size"),
        ):
            value = getattr(section, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ConfigError(name, value, "must be an integer of at least 1")
        for section, name in ((self.schedule, "max_queued_requests"), (self.schedule, "fairness_budget")):
            value = getattr(section, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise ConfigError(name, value, "must be an integer of at least 0")
        if not 0 < self.cache.mem_fraction_static < 1:
            raise ConfigError("mem_fraction_static", self.cache.mem_fraction_static, "must be between 0 and 1")

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Config:
        """Build from flat option names; raises ConfigError for an unknown name with the nearest known one."""
        sections: dict[str, dict[str, Any]] = {f.name: {} for f in fields(cls)}
        owner = option_sections()
        for name, value in options.items():
            if name not in owner:
                near = difflib.get_close_matches(name, owner, n=1)
                raise ConfigError(name, value, "unknown option" + (f", did you mean {near[0]!r}?" if near else ""))
            sections[owner[name]][name] = value
        return cls(
            model=ModelOptions(**sections["model"]),
            cache=CacheOptions(**sections["cache"]),
            schedule=ScheduleOptions(**sections["schedule"]),
            constraint=ConstraintOptions(**sections["constraint"]),
        )

    def to_options(self) -> dict[str, Any]:
        """The flat names and values; `from_options` of it gives an equal Config."""
        flat: dict[str, Any] = {}
        for section in fields(self):
            flat.update(dataclasses.asdict(getattr(self, section.name)))
        return flat


def option_sections() -> dict[str, str]:
    """Option name to the name of its section."""
    owner: dict[str, str] = {}
    sections = {"model": ModelOptions, "cache": CacheOptions, "schedule": ScheduleOptions, "constraint": ConstraintOptions}
    for name, section in sections.items():
        for item in fields(section):
            assert item.name not in owner, f"option {item.name} stands in two sections"
            owner[item.name] = name
    return owner


def is_hub_offline() -> bool:
    """Whether the environment forbids the Hub (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE)."""
    return any(os.environ.get(name, "").lower() in ("1", "true", "yes", "on") for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
