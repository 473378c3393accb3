"""A mask that takes long, fails, or is no longer wanted is the business of its own request only."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ramet import Engine
from ramet.constraint.compiled import AutomatonMatcher
from ramet.errors import InvalidConstraint

MakeEngine = Callable[..., Engine]
FREE = {"temperature": 0, "max_new_tokens": 60, "ignore_eos": True}


@pytest.fixture
def slow_masks(monkeypatch: pytest.MonkeyPatch) -> float:
    """Every mask takes a third of a second."""
    plain = AutomatonMatcher.mask

    def slow(self: AutomatonMatcher) -> Any:
        time.sleep(0.3)
        return plain(self)

    monkeypatch.setattr(AutomatonMatcher, "mask", slow)
    monkeypatch.setattr(AutomatonMatcher, "is_mask_ready", property(lambda self: False))
    return 0.3


def test_free_requests_do_not_wait_for_a_late_mask(make_engine: MakeEngine, slow_masks: float) -> None:
    engine = make_engine()
    alone = make_engine().generate("free", FREE)
    found: dict[str, Any] = {}
    bound = threading.Thread(target=lambda: found.update(engine.generate("bound", {"regex": "[ab]{3}", "temperature": 0})))
    bound.start()
    while not engine.get_server_info()["num_running"]:
        time.sleep(0.001)
    times = [time.monotonic()]
    last: dict[str, Any] = {}
    for reply in engine.stream("free", FREE):
        times.append(time.monotonic())
        last = reply
    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
    assert max(gaps) < slow_masks / 2, "a step waited for the mask of another request"
    assert last["text"] == alone["text"]
    assert bound.is_alive(), "the free request was the faster one"
    bound.join()
    assert re.fullmatch("[ab]{3}", found["text"])
    assert engine.get_server_info()["stats"]["num_late_masks"] > 0


def test_a_request_that_waits_for_its_mask_can_be_aborted(make_engine: MakeEngine, slow_masks: float) -> None:
    engine = make_engine()
    replies = engine.stream("bound", {"regex": "[ab]{30}", "temperature": 0}, rid="late")
    started = time.monotonic()
    threading.Timer(0.1, engine.abort, ["late"]).start()
    last = list(replies)[-1]
    assert last["meta_info"]["finish_reason"] == {"type": "abort"}
    assert time.monotonic() - started < slow_masks


def test_a_parked_request_gives_its_slots_up_when_others_need_them(make_engine: MakeEngine, slow_masks: float) -> None:
    engine = make_engine(num_slots=64)
    params = [{**FREE, "max_new_tokens": 40}, {"regex": "[ab]{4}", "seed": 3, "max_new_tokens": 12}]
    free, bound = engine.generate(["free and long", "bound"], params)
    assert re.fullmatch("[ab]{4}", bound["text"]) and len(free["output_ids"]) == 40


def test_a_mask_over_a_limit_fails_its_own_request(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = AutomatonMatcher.mask

    def failing(self: AutomatonMatcher) -> Any:
        if self.num_accepted == 2:
            raise InvalidConstraint("regex", "[ab]{9}", "it needs too much")
        return plain(self)

    monkeypatch.setattr(AutomatonMatcher, "mask", failing)
    monkeypatch.setattr(AutomatonMatcher, "is_mask_ready", property(lambda self: self.num_accepted % 2 == 0))
    engine = make_engine(jump_forward="off")
    free: dict[str, Any] = {}
    thread = threading.Thread(target=lambda: free.update(engine.generate("free", FREE)))
    thread.start()
    with pytest.raises(InvalidConstraint, match="too much"):
        engine.generate("bound", {"regex": "[ab]{9}", "temperature": 0})
    thread.join()
    assert free["text"] == make_engine().generate("free", FREE)["text"]


@pytest.mark.parametrize(
    "pattern",
    [
        "a{20000}",
        ".{0,5000}",
        r"(x+x+)+y",
        r".*a.{12}|.*b",
        "|".join(f"word{i}" for i in range(2000)),
        r"([^a]|a[^b]|ab[^c]){0,100}",
    ],
)
def test_hard_patterns_beside_a_free_request(make_engine: MakeEngine, pattern: str) -> None:
    engine = make_engine()
    alone = make_engine().generate("free", FREE)["text"]
    params = [FREE, {"regex": pattern, "temperature": 1.0, "seed": 1, "max_new_tokens": 40}, FREE]
    replies = engine.generate(["free", "bound", "free"], params)
    assert replies[0]["text"] == replies[2]["text"] == alone
    assert replies[1]["meta_info"]["finish_reason"]["type"] in ("stop", "length")
