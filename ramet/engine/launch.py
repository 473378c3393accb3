"""From options to the parts of an engine: model files, executor, tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ramet.config import Config
from ramet.engine.assemble import Model
from ramet.errors import UnsupportedModel
from ramet.execute.loader import load_runner
from ramet.tokenizer import load_tokenizer
from ramet.weights import resolve_model


def load(config: Config) -> Model:
    """Find, read and build a model; raises ModelError (ModelNotFound, UnsupportedModel, WeightError, TokenizerError)."""
    files = resolve_model(config.model)
    tokenizer = load_tokenizer(files)
    runner = load_runner(config.model, config.cache, files)
    generation_config = dict(files.generation_config)
    return Model(
        name=files.name,
        runner=runner,
        tokenizer=tokenizer,
        eos_ids=end_ids(tokenizer.eos_token_ids, files.config, generation_config),
        generation_config=generation_config,
    )


def end_ids(of_tokenizer: tuple[int, ...], config: Mapping[str, Any], generation_config: Mapping[str, Any]) -> tuple[int, ...]:
    """All ids that end a text by themselves, from the three places that may name some; `ignore_eos` switches all of them off."""
    ids = set(of_tokenizer)
    for source in (config, generation_config):
        value = source.get("eos_token_id")
        values = value if isinstance(value, list | tuple) else [value]
        for item in values:
            if item is None:
                continue
            if isinstance(item, bool) or not isinstance(item, int):
                raise UnsupportedModel(f"eos_token_id {value!r} is neither an id nor a list of ids")
            ids.add(item)
    return tuple(sorted(ids))
