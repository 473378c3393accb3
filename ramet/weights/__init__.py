"""Bytes on disk to named tensors."""

from __future__ import annotations

from ramet.weights.iterate import iterate_weights
from ramet.weights.named import Affine4, NamedWeight
from ramet.weights.source import ModelFiles, resolve_model

__all__ = ["Affine4", "ModelFiles", "NamedWeight", "iterate_weights", "resolve_model"]
