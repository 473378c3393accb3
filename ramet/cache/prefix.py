"""The prefix cache: a protocol, the radix tree behind it, and the "off" switch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ramet.radix import POLICIES, Node, RadixTree

Ids = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Run:
    """The value of a tree node: where its tokens' keys and values lie, and how many of them are there already.

    Tokens beyond `num_computed` are *promised*: their slots are taken and requests may count on them, but a pass has yet to write
    them. `num_planned` (never below `num_computed`) also counts what the pass being planned will write.
    """

    slots: Ids  # [len(node.key)]
    num_computed: int
    num_planned: int


KvNode = Node[Run]


def _split(run: Run, at: int) -> tuple[Run, Run]:
    upper = Run(run.slots[:at].copy(), min(run.num_computed, at), min(run.num_planned, at))
    lower = Run(run.slots[at:].copy(), max(run.num_computed - at, 0), max(run.num_planned - at, 0))
    return upper, lower


class PrefixCache(Protocol):
    """Finds the cached prefix of a prompt and keeps what later prompts may share.

    `tree` is the radix tree; `is_enabled` says whether anything is ever put into it.
    """

    tree: RadixTree[Run]
    is_enabled: bool


class RadixPrefixCache:
    """Keeps every computed token in a radix tree until its slot is needed (RadixAttention)."""

    is_enabled = True

    def __init__(self, eviction_policy: str = "lru") -> None:
        self.tree: RadixTree[Run] = RadixTree(_split, POLICIES.get(eviction_policy))


class NoPrefixCache:
    """Keeps nothing: every prompt is computed from its first token. The tree stays empty."""

    is_enabled = False

    def __init__(self) -> None:
        self.tree: RadixTree[Run] = RadixTree(_split, POLICIES.get("lru"))
