"""The waiting queue: an order, groups that stay together, and the fairness bound.

**The bound.** An order that favours cached prefixes can starve a request that shares nothing. Here a waiting request is overtaken by
at most `fairness_budget` prefill tokens of requests that arrived after it; the next that would exceed that waits, and the overtaken
request goes first. Only the oldest waiting request has to be looked at: whatever overtook a younger one also overtook it.
A retracted request was admitted before; it comes back ahead of the queue and is not counted again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from ramet.schedule.policy import Order, View
from ramet.schedule.request import Request, Status


class WaitingQueue:
    """Requests that hold no slots yet. `fairness_budget` of None means no bound."""

    def __init__(self, order: Order, view: View, fairness_budget: int | None) -> None:
        self._order = order
        self._view = view
        self._budget = fairness_budget
        self._requests: dict[str, Request] = {}  # by arrival
        self._retracted: deque[Request] = deque()
        self._ordered: deque[Request] = deque()
        self._next_sequence = 0
        self._started: set[str] = set()  # groups of which a member was admitted and others still wait
        self._has_news = True  # arrivals since the last sort
        self._sorted_at = -1  # version of the tree at the last sort

    def __len__(self) -> int:
        return len(self._requests) + len(self._retracted)

    def __iter__(self) -> Iterator[Request]:
        yield from self._retracted
        yield from self._requests.values()

    def add(self, requests: Sequence[Request]) -> None:
        """Append new arrivals."""
        for request in requests:
            request.sequence = self._next_sequence
            self._next_sequence += 1
            request.status = Status.WAITING
            self._requests[request.request_id] = request
        self._has_news = True

    def add_retracted(self, request: Request) -> None:
        """Put a request back that had to give up its slots; it comes first. Among several, the longest running comes first."""
        request.status = Status.WAITING
        self._retracted.appendleft(request)

    def remove(self, request: Request) -> None:
        """Take a request out, admitted or aborted."""
        if request in self._retracted:
            self._retracted.remove(request)
        else:
            del self._requests[request.request_id]

    def start_pass(self) -> None:
        """Sort anew if there are arrivals or the tree has changed; call it before the `head`s of a step."""
        version = self._view.cache.tree.version
        if not self._has_news and version == self._sorted_at:
            return
        self._has_news, self._sorted_at = False, version
        waiting = list(self._requests.values())
        self._started &= {request.group_id for request in waiting if request.group_id is not None}
        self._ordered = deque(_with_siblings(self._order(waiting, self._view), self._started))

    def head(self, prefill_len: Callable[[Request], int]) -> Request | None:
        """The request to admit next; `prefill_len` gives the tokens one would have to compute. It stays in the queue."""
        if self._retracted:
            return self._retracted[0]
        while self._ordered and self._ordered[0].request_id not in self._requests:
            self._ordered.popleft()
        if not self._ordered:
            return None
        chosen = self._ordered[0]
        oldest = next(iter(self._requests.values()))
        if chosen is not oldest and self._budget is not None and oldest.overtaken_by + prefill_len(chosen) > self._budget:
            return oldest
        return chosen

    def admit(self, request: Request, prefill_len: int) -> None:
        """Take out a request that got its slots, and count whom it overtook."""
        is_back = request in self._retracted
        self.remove(request)
        if request.group_id is not None:
            self._started.add(request.group_id)
        if is_back:
            return
        for other in self._requests.values():
            if other.sequence > request.sequence:
                break
            other.overtaken_by += prefill_len


def _with_siblings(ordered: list[Request], started: set[str]) -> list[Request]:
    """Groups that have begun come first; of the others, the members are pulled up behind the first of them."""
    members: dict[str, list[Request]] = {}
    for request in ordered:
        if request.group_id is not None:
            members.setdefault(request.group_id, []).append(request)
    if not members:
        return ordered
    out: list[Request] = []
    for request in [r for r in ordered if r.group_id in started] + ordered:
        if request.group_id is None:
            out.append(request)
        else:
            out.extend(members.pop(request.group_id, ()))
    assert len(out) == len(ordered)
    return out
