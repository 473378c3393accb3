"""What the loop tells about itself between two steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ramet.engine.core import EngineCore

_MAX_NODES: Final = 2_000  # of a tree that is described
_MAX_SHOWN_IDS: Final = 24  # of a node


def core_info(core: EngineCore) -> dict[str, Any]:
    """Sizes, requests by state, tokens by owner, and counters; numbers only, so that it can cross a border."""
    cache = core.scheduler.cache
    return {
        "context_len": core.limits.context_len,
        "max_total_num_tokens": cache.num_slots,
        "vocab_size": core.limits.vocab_size,
        "num_running": len(core.scheduler.running),
        "num_waiting": len(core.scheduler.waiting),
        "num_free_tokens": cache.slots.num_free,
        "num_cached_tokens": cache.tree.num_tokens,
        "num_evictable_tokens": cache.tree.num_unlocked,
        "stats": core.stats.to_dict(),
    }


def tree_info(core: EngineCore) -> dict[str, Any]:
    """The radix tree, the most recently used nodes first where there are too many to send.

    `nodes`: `id`, `parent` (0 below a root), `num_tokens`, `token_ids` (the first ones), `num_refs`, `num_hits`, `last_access`.
    Times are counts of operations on the tree. `num_nodes` counts all of them.
    """
    tree = core.scheduler.cache.tree
    nodes = sorted(tree.nodes(), key=lambda node: -node.last_access)[:_MAX_NODES]
    return {
        "num_nodes": tree.num_nodes,
        "num_tokens": tree.num_tokens,
        "num_locked_tokens": tree.num_locked,
        "nodes": [
            {
                "id": node.uid,
                "parent": 0 if node.parent is None or node.parent.is_root else node.parent.uid,
                "num_tokens": len(node.key),
                "token_ids": node.key[:_MAX_SHOWN_IDS].tolist(),
                "num_refs": node.num_refs,
                "num_hits": node.num_hits,
                "last_access": node.last_access,
            }
            for node in nodes
        ],
    }
