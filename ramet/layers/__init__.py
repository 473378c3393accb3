"""The blocks that models are built of."""

from __future__ import annotations
