"""The running set: requests that hold slots, in order of admission, and who gives them up when memory is short."""

from __future__ import annotations

from collections.abc import Iterator

from ramet.schedule.request import Request, Status


class RunningSet:
    """Requests with a lease."""

    def __init__(self) -> None:
        self._requests: dict[str, Request] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())

    def __contains__(self, request: Request) -> bool:
        return request.request_id in self._requests

    def add(self, request: Request) -> None:
        """Take in a request that was just given its lease."""
        assert request.lease is not None and request.lease.is_open
        request.status = Status.RUNNING
        self._requests[request.request_id] = request

    def remove(self, request: Request) -> None:
        """Drop a request that ended or was retracted."""
        del self._requests[request.request_id]

    def youngest(self) -> Request:
        """The request admitted last: the one to retract, because the oldest then always moves on and none waits for ever."""
        return next(reversed(self._requests.values()))
