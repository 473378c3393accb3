"""A Plan in, logits out."""

from __future__ import annotations
