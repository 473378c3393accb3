"""Orders of admission: a function that sorts the waiting requests, and a row.

`Matched` says, for each waiting request, what the cache would give it now. The fairness bound is applied on top, by the queue.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ramet.cache import CacheManager
from ramet.radix import common_prefix_len
from ramet.registry import Registry
from ramet.schedule.request import Request


@dataclass(frozen=True, slots=True)
class View:
    """What an order may look at besides the requests."""

    cache: CacheManager
    rng: random.Random


Order = Callable[[Sequence[Request], View], list[Request]]


def lpm(waiting: Sequence[Request], view: View) -> list[Request]:
    """Longest shared prefix first.

    Among equally matched requests, those that share more with each other stay together in depth-first order, and such clusters come
    by their earliest arrival. From an empty cache this is a depth-first walk of the batch's radix tree, which is optimal when the
    cache holds at least the longest request (the paper, theorem 3.1).
    """
    matched = {request.request_id: view.cache.peek(request.ids[: request.max_match_len], request.salt)[1] for request in waiting}
    by_len: dict[int, list[Request]] = {}
    for request in waiting:
        by_len.setdefault(matched[request.request_id], []).append(request)
    ordered: list[Request] = []
    for length in sorted(by_len, reverse=True):
        ordered.extend(_depth_first(by_len[length], length))
    return ordered


def dfs_weight(waiting: Sequence[Request], view: View) -> list[Request]:
    """Walk the cached tree depth first, the subtree that most waiting requests hang on first."""
    paths = {
        request.request_id: [node.uid for node in view.cache.peek(request.ids[: request.max_match_len], request.salt)[0]]
        for request in waiting
    }
    weight = Counter(uid for path in paths.values() for uid in path)
    order = {request.request_id: place for place, request in enumerate(_depth_first(list(waiting), 0))}
    return sorted(waiting, key=lambda r: ([(-weight[uid], uid) for uid in paths[r.request_id]] + [(1, 0)], order[r.request_id]))


def fcfs(waiting: Sequence[Request], view: View) -> list[Request]:
    """First come, first served."""
    return sorted(waiting, key=lambda r: r.sequence)


def shuffled(waiting: Sequence[Request], view: View) -> list[Request]:
    """Any order; a baseline for measurements."""
    ordered = list(waiting)
    view.rng.shuffle(ordered)
    return ordered


def priority(waiting: Sequence[Request], view: View) -> list[Request]:
    """The largest priority first, then by arrival."""
    return sorted(waiting, key=lambda r: (-r.priority, r.sequence))


ORDERS: Registry[Order] = Registry("schedule_policy")
ORDERS.add("lpm", lpm)
ORDERS.add("dfs-weight", dfs_weight)
ORDERS.add("fcfs", fcfs)
ORDERS.add("random", shuffled)
ORDERS.add("priority", priority)


def _depth_first(requests: list[Request], matched_len: int) -> list[Request]:
    """Requests in depth-first order of their own radix tree, clusters that share nothing beyond `matched_len` by arrival."""
    in_key_order = sorted(requests, key=lambda r: (r.salt, r.ids.tolist(), r.sequence))
    clusters: list[list[Request]] = []
    for request in in_key_order:
        last = clusters[-1][-1] if clusters else None
        if last is not None and last.salt == request.salt and common_prefix_len(last.ids, request.ids) > matched_len:
            clusters[-1].append(request)
        else:
            clusters.append([request])
    clusters.sort(key=lambda cluster: min(request.sequence for request in cluster))
    return [request for cluster in clusters for request in cluster]
