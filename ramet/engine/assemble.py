"""The parts of an engine, put together: what the loop drives, in this process or in one of its own."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ramet.cache import CacheManager, NoPrefixCache, RadixPrefixCache
from ramet.config import Config
from ramet.constraint.vocabulary import Vocabulary
from ramet.engine.constraints import Constraints
from ramet.engine.core import EngineCore
from ramet.engine.guide import Guides
from ramet.engine.limits import Limits
from ramet.sampling.sampler import Sampler
from ramet.schedule.scheduler import Scheduler
from ramet.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ramet.execute.runner import Runner


@dataclass(frozen=True, slots=True)
class Model:
    """What an engine runs: from files (`engine.launch`), or given."""

    name: str
    runner: Runner
    tokenizer: Tokenizer
    eos_ids: tuple[int, ...]
    generation_config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assembled:
    """The core with what callers of an engine need beside it."""

    core: EngineCore
    guides: Guides
    limits: Limits


def given_model(config: Config, runner: Runner, tokenizer: Tokenizer, eos_ids: Sequence[int] | None) -> Model:
    """A runner and its tokenizer as they are."""
    return Model(config.model.model_path, runner, tokenizer, tuple(tokenizer.eos_token_ids if eos_ids is None else eos_ids))


def assemble(config: Config, model: Model) -> Assembled:
    """Scheduler, cache, sampler, constraints and core over one runner."""
    runner, tokenizer, eos_ids = model.runner, model.tokenizer, model.eos_ids
    limits = Limits(
        context_len=min(runner.context_len, config.model.context_length or runner.context_len),
        num_slots=runner.num_slots,
        vocab_size=runner.vocab_size,
        num_valid_ids=min(tokenizer.vocab_size, runner.vocab_size),
    )
    prefix = NoPrefixCache() if config.cache.disable_radix_cache else RadixPrefixCache(config.cache.radix_eviction_policy)
    constraints = Constraints(
        lambda: Vocabulary.from_tokenizer(tokenizer, eos_ids=[i for i in eos_ids if i < runner.vocab_size], width=runner.vocab_size),
        config.constraint.json_whitespace,
    )
    guides = Guides(constraints, tokenizer, config.constraint)
    core = EngineCore(
        runner=runner,
        scheduler=Scheduler(config.schedule, CacheManager(runner.num_slots, prefix), random.Random(config.model.random_seed)),
        sampler=Sampler(runner.vocab_size, runner.device, num_valid_ids=limits.num_valid_ids),
        tokenizer=tokenizer,
        limits=limits,
        guides=guides,
        jump_forward=config.constraint.jump_forward,
        eos_ids=eos_ids,
        rng=random.Random(config.model.random_seed),
    )
    return Assembled(core, guides, limits)
