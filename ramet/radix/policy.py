"""Eviction policies: which unused leaf goes first. Adding one is a key function and a row.

A key must never fall while its node lives (the tree re-reads it lazily), and the smallest key goes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ramet.radix.tree import Node
from ramet.registry import Registry

EvictionKey = Callable[[Node[Any]], tuple[int, ...]]


def lru(node: Node[Any]) -> tuple[int, ...]:
    """Least recently used first (the paper, section 3)."""
    return (node.last_access,)


def lfu(node: Node[Any]) -> tuple[int, ...]:
    """Least often hit first; among equals the least recently used."""
    return (node.num_hits, node.last_access)


def fifo(node: Node[Any]) -> tuple[int, ...]:
    """Oldest first, however often it is hit."""
    return (node.created,)


POLICIES: Registry[EvictionKey] = Registry("radix_eviction_policy")
POLICIES.add("lru", lru)
POLICIES.add("lfu", lfu)
POLICIES.add("fifo", fifo)
