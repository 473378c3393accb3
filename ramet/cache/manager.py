"""Who owns which KV slot, from admission to eviction.

            reserve (prompt)            the path of a lease is locked
    free ───────────────────────────►  tree ───────────────────────────┐
     ▲  ▲   extend (one a token)        ▲  │ evict (unlocked leaves)    │
     │  └──────────────┐   publish      │  └───────► free               │
     │                 ▼                │                               │
     │               tail of a lease ───┘                               │
     │   duplicates      │    the requests that hold a lease read both ─┘
     └───────────────────┘

A prompt goes into the tree when it is *admitted*, not when it is computed: its slots are promised, and another request of the same
step may share them. Whoever of the sharers is planned first computes them. So an aborted or retracted request never leaves a
promise behind that someone waits for: a sharer computes what is missing, and if there is no sharer the promise is taken back.

Rules, recounted by `check`: free + cached + owned == total; no slot in two places; promised tokens only on locked nodes; along every
path the computed tokens come first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ramet.cache.prefix import Ids, KvNode, PrefixCache, Run
from ramet.cache.slots import SlotAllocator


@dataclass(slots=True, eq=False)
class Lease:
    """What one running request holds: a locked path of the tree and a private tail of slots after it."""

    node: KvNode
    path_len: int
    tail: Ids  # capacity may exceed tail_len
    tail_len: int = 0
    num_tail_computed: int = 0
    is_open: bool = True

    @property
    def len(self) -> int:
        """Tokens that have a slot."""
        return self.path_len + self.tail_len

    @property
    def tail_slots(self) -> Ids:
        """The private slots, for the positions path_len .. len."""
        return self.tail[: self.tail_len]


class CacheManager:
    """Match, reserve, extend, publish, release: the only writer of the tree and of the free slots."""

    def __init__(self, num_slots: int, prefix: PrefixCache) -> None:
        self.slots = SlotAllocator(num_slots)
        self.prefix = prefix
        self.tree = prefix.tree
        self.num_tail_slots = 0
        self.num_evicted = 0  # tokens, since the start

    @property
    def num_slots(self) -> int:
        """Size of the pool in tokens."""
        return self.slots.num_slots

    @property
    def num_available(self) -> int:
        """Slots that are free or that eviction can free."""
        return self.slots.num_free + self.tree.num_unlocked

    def peek(self, ids: Ids, salt: str = "") -> tuple[list[KvNode], int]:
        """The nodes a prompt would match and how many tokens; promised tokens count. Changes nothing."""
        return self.tree.peek(ids, salt)

    def reserve(self, ids: Ids, max_match_len: int, salt: str = "", headroom: int = 0) -> Lease | None:
        """Slots for every token of a prompt, shared where the tree has them.

        At most `max_match_len` tokens are taken from the tree; the rest is computed anew (logits are wanted there). Gives None, and
        changes nothing but the recency of the matched path, when fewer than the needed slots plus `headroom` are available.
        """
        node, matched = self.tree.match(ids[:max_match_len], salt)
        needed = len(ids) - matched
        self.tree.lock(node)
        if needed + headroom > self.num_available:
            self.tree.unlock(node)
            return None
        self._make_free(needed)
        rest = ids[matched:]
        in_tree = int(rest[0]) in node.children if needed else True
        lease = Lease(node, matched, np.empty(0, dtype=np.int64))
        if needed and not in_tree and self.prefix.is_enabled:
            leaf = self.tree.insert(node, rest, Run(self.slots.alloc(needed), 0, 0))
            self.tree.lock(leaf)
            self.tree.unlock(node)
            lease.node, lease.path_len = leaf, len(ids)
        elif needed:
            self._grow_tail(lease, needed)
        return lease

    def extend(self, lease: Lease, num: int = 1) -> bool:
        """Add private slots for `num` more tokens, evicting if need be; False (and no change) when there are too few."""
        if num > self.num_available:
            return False
        self._make_free(num)
        self._grow_tail(lease, num)
        return True

    def truncate(self, lease: Lease, length: int) -> None:
        """Free the private slots of a lease from position `length` on, which must not lie in its path of the tree."""
        assert length >= lease.path_len, f"position {length} lies in the tree, up to {lease.path_len}"
        num_kept = min(length - lease.path_len, lease.tail_len)
        self.slots.free(lease.tail[num_kept : lease.tail_len])
        self.num_tail_slots -= lease.tail_len - num_kept
        lease.tail_len = num_kept
        lease.num_tail_computed = min(lease.num_tail_computed, num_kept)

    def first_missing(self, lease: Lease) -> int:
        """The first position that is neither computed nor planned in the pass being made."""
        node, end = lease.node, lease.path_len
        missing = end + lease.num_tail_computed
        while node.parent is not None:
            run = node.value
            assert run is not None
            if run.num_planned == len(node.key):
                break  # and so is all above it
            end -= len(node.key)
            missing = end + run.num_planned
            if run.num_planned > 0:
                break
            node = node.parent
        return missing

    def plan(self, lease: Lease, end: int) -> None:
        """Note that the pass being made writes the tokens up to `end`."""
        for node, start in self._path_from(lease):
            assert node.value is not None
            node.value.num_planned = max(node.value.num_planned, min(end - start, len(node.key)))

    def mark_computed(self, lease: Lease, end: int) -> None:
        """Note that the keys and values of all tokens up to `end` are written."""
        for node, start in self._path_from(lease):
            run = node.value
            assert run is not None
            run.num_computed = max(run.num_computed, min(end - start, len(node.key)))
            assert run.num_computed <= run.num_planned
        lease.num_tail_computed = max(lease.num_tail_computed, end - lease.path_len)
        assert lease.num_tail_computed <= lease.tail_len

    def is_computed(self, lease: Lease) -> bool:
        """Whether every token of the lease has its keys and values."""
        node = lease.node
        path_done = node.value is None or node.value.num_computed == len(node.key)
        return path_done and lease.num_tail_computed == lease.tail_len

    def publish(self, lease: Lease, ids: Ids) -> None:
        """Move the computed part of the tail into the tree, so that others can share it; the lease then holds the longer path.

        `ids` are the tokens of the whole lease. Where the tree has the same tokens already, the private copies are released; where
        it only promises them, the private copies keep the promise.
        """
        count = lease.num_tail_computed
        if not self.prefix.is_enabled or count == 0:
            return
        self._keep_promises(lease, ids)
        start = lease.path_len
        node, matched = self.tree.descend(lease.node, ids[start : start + count])
        self.slots.free(lease.tail[:matched])
        if matched < count:
            fresh = count - matched
            leaf = self.tree.insert(node, ids[start + matched : start + count], Run(lease.tail[matched:count].copy(), fresh, fresh))
            node = leaf
        self.tree.lock(node)
        self.tree.unlock(lease.node)
        lease.node = node
        lease.path_len += count
        lease.tail = lease.tail[count:].copy()
        lease.tail_len -= count
        lease.num_tail_computed = 0
        self.num_tail_slots -= count

    def fork(self, lease: Lease, ids: Ids) -> Lease:
        """A second lease on everything the first has computed; what is not computed yet stays with the first."""
        self.publish(lease, ids)
        self.tree.lock(lease.node)
        return Lease(lease.node, lease.path_len, np.empty(0, dtype=np.int64))

    def release(self, lease: Lease, ids: Ids) -> None:
        """End a lease: what is computed stays cached, promises no one else counts on are taken back, the rest is freed."""
        assert lease.is_open, "a lease is released once"
        self.publish(lease, ids)
        self.slots.free(lease.tail_slots)
        self.num_tail_slots -= lease.tail_len
        lease.tail_len = 0
        lease.is_open = False
        self.tree.unlock(lease.node)
        self._take_back_promises(lease.node)

    def evict(self, num: int) -> int:
        """Free at least `num` slots by eviction, as far as unlocked tokens go; gives how many were freed."""
        freed = 0
        for node in self.tree.evict(num):
            assert node.value is not None
            self.slots.free(node.value.slots)
            freed += len(node.key)
        self.num_evicted += freed
        return freed

    def flush(self) -> int:
        """Drop every cached token that no one holds; gives how many."""
        return self.evict(self.tree.num_unlocked)

    def check(self, leases: list[Lease] | None = None) -> None:
        """Recount every slot; with the open leases given, those of their tails too. An AssertionError is a fault of ours."""
        self.tree.check()
        held = [self.slots.free_slots()]
        for node in self.tree.nodes():
            run = node.value
            assert run is not None and len(run.slots) == len(node.key)
            assert 0 <= run.num_computed <= run.num_planned <= len(node.key)
            assert run.num_computed == len(node.key) or node.num_refs > 0, f"{node} promises tokens that no one asked for"
            above = node.parent.value if node.parent is not None else None
            if above is not None and node.parent is not None:
                assert above.num_computed == len(node.parent.key) or run.num_computed == 0, f"{node} is computed before what it follows"
            held.append(run.slots)
        assert self.slots.num_free + self.tree.num_tokens + self.num_tail_slots == self.num_slots, (
            f"free {self.slots.num_free} + cached {self.tree.num_tokens} + owned {self.num_tail_slots} != {self.num_slots}"
        )
        if leases is not None:
            assert sum(lease.tail_len for lease in leases) == self.num_tail_slots
            held.extend(lease.tail_slots for lease in leases)
            everywhere = np.sort(np.concatenate(held))
            assert np.array_equal(everywhere, np.arange(self.num_slots)), "a slot is lost or in two places"

    def _make_free(self, num: int) -> None:
        if num > self.slots.num_free:
            self.evict(num - self.slots.num_free)

    def _grow_tail(self, lease: Lease, num: int) -> None:
        fresh = self.slots.alloc(num)
        if lease.tail_len + num > len(lease.tail):
            grown = np.empty(max(16, 2 * len(lease.tail), lease.tail_len + num), dtype=np.int64)
            grown[: lease.tail_len] = lease.tail_slots
            lease.tail = grown
        lease.tail[lease.tail_len : lease.tail_len + num] = fresh
        lease.tail_len += num
        self.num_tail_slots += num

    def _path_from(self, lease: Lease) -> list[tuple[KvNode, int]]:
        """The nodes of the path that are not wholly computed, each with the position of its first token."""
        nodes: list[tuple[KvNode, int]] = []
        node, end = lease.node, lease.path_len
        while node.parent is not None:
            assert node.value is not None
            if node.value.num_computed == len(node.key):
                break
            nodes.append((node, end - len(node.key)))
            end -= len(node.key)
            node = node.parent
        return nodes

    def _keep_promises(self, lease: Lease, ids: Ids) -> None:
        """Put computed private slots in the place of promised ones of the same tokens below the lease's node."""
        position, count = lease.path_len, lease.num_tail_computed
        node = lease.node
        done = 0
        while done < count:
            child = node.children.get(int(ids[position + done]))
            if child is None:
                return
            node, matched = self.tree.descend(node, ids[position + done : position + min(count, done + len(child.key))])
            run = node.value
            if matched == 0 or run is None:
                return
            if run.num_computed < matched == len(node.key):
                mine = lease.tail[done + run.num_computed : done + matched].copy()
                lease.tail[done + run.num_computed : done + matched] = run.slots[run.num_computed :]
                run.slots[run.num_computed :] = mine
                run.num_computed = run.num_planned = matched
            done += matched

    def _take_back_promises(self, node: KvNode) -> None:
        step: KvNode | None = node
        while step is not None and step.parent is not None and step.num_refs == 0:
            parent, run = step.parent, step.value
            assert run is not None
            if run.num_computed == len(step.key):
                return  # and so is all above it
            if run.num_computed == 0:
                self.slots.free(run.slots)
                self.tree.remove(step)
            else:
                self.slots.free(self.tree.truncate(step, run.num_computed).slots)
                return
            step = parent
