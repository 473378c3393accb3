"""A radix tree over token ids, generic over the value on a node."""

from ramet.radix.policy import POLICIES
from ramet.radix.tree import Node, RadixTree, common_prefix_len

__all__ = ["POLICIES", "Node", "RadixTree", "common_prefix_len"]
