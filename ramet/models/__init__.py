"""Model families: one decoder block, flags and a weight-name map each."""

from __future__ import annotations

from ramet.models.config import ModelConfig, read_config
from ramet.models.decoder import Decoder
from ramet.models.load import load_weights

__all__ = ["Decoder", "ModelConfig", "load_weights", "read_config"]
