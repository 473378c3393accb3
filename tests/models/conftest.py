"""Tiny random checkpoints, written with transformers and read by our own loader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

TINY: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}

Save = Callable[..., tuple[Path, Any]]


@pytest.fixture
def save_checkpoint(tmp_path: Path) -> Save:
    """(family, **config) -> folder and the transformers model in float32; `is_sharded` writes several files."""

    def save(family: str, *, is_sharded: bool = False, seed: int = 0, **changes: Any) -> tuple[Path, Any]:
        config = getattr(transformers, f"{family}Config")(**{**TINY, **changes})
        config._attn_implementation = "eager"
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = getattr(transformers, f"{family}ForCausalLM")(config).float().eval()
            for name, tensor in model.named_parameters():
                # Weights of the usual start are so small that logits barely depend on attention; norms and biases would be 1 and 0.
                torch.nn.init.normal_(tensor, 1.0 if "norm" in name else 0.0, 0.2)
        model.save_pretrained(tmp_path, **({"max_shard_size": "20KB"} if is_sharded else {}))
        return tmp_path, model

    return save
