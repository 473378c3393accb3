from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from ramet.cache import CacheManager, Lease, NoPrefixCache, RadixPrefixCache, SlotAllocator

Array = np.ndarray[Any, Any]


def ids(*tokens: int) -> Array:
    return np.array(tokens, dtype=np.int64)


def compute(cache: CacheManager, lease: Lease, end: int | None = None) -> int:
    """Pretend that a pass writes the missing tokens of a lease up to `end`; gives how many it had to write."""
    end = lease.len if end is None else end
    start = cache.first_missing(lease)
    if end > start:
        cache.plan(lease, end)
        cache.mark_computed(lease, end)
    return max(0, end - start)


def test_slots_come_back_in_ascending_runs() -> None:
    slots = SlotAllocator(10)
    first, second = slots.alloc(4), slots.alloc(4)
    slots.free(first)
    assert slots.num_free == 6
    assert slots.alloc(6).tolist() == [0, 1, 2, 3, 8, 9]
    slots.free(second)
    assert slots.free_slots().tolist() == [4, 5, 6, 7]
    with pytest.raises(AssertionError, match="wanted"):
        slots.alloc(5)


def test_a_wholly_cached_prompt_shares_all_but_the_token_whose_logits_are_wanted() -> None:
    cache = CacheManager(64, RadixPrefixCache())
    prompt = ids(*range(20))
    first = cache.reserve(prompt, 19)
    assert first is not None and first.path_len == 20 and compute(cache, first) == 20
    cache.release(first, prompt)
    second = cache.reserve(prompt, 19)
    assert second is not None and (second.path_len, second.tail_len) == (19, 1)
    assert compute(cache, second) == 1
    cache.check([second])
    cache.release(second, prompt)
    cache.check([])
    assert cache.tree.num_tokens == 20, "the duplicate of the last token is released"


def test_promised_tokens_are_shared_and_whoever_comes_first_computes_them() -> None:
    cache = CacheManager(64, RadixPrefixCache())
    a_ids, b_ids = ids(1, 2, 3, 4, 5, 6), ids(1, 2, 3, 4, 7, 8)
    a, b = cache.reserve(a_ids, 5), cache.reserve(b_ids, 5)
    assert a is not None and b is not None
    assert cache.slots.num_free == 64 - 8, "four tokens are shared before anyone computed them"
    assert cache.first_missing(b) == 0
    cache.plan(a, 3)  # a chunk of a
    assert cache.first_missing(b) == 3 and cache.first_missing(a) == 3
    cache.mark_computed(a, 3)
    cache.release(a, a_ids)  # aborted half way
    cache.check([b])
    assert cache.first_missing(b) == 3 and compute(cache, b) == 3, "the sharer takes the work over"
    cache.release(b, b_ids)
    cache.check([])
    assert cache.tree.num_tokens == 6, "the promise that no one counted on was taken back"


def test_a_promise_is_kept_by_a_finished_twin() -> None:
    """Two requests compute the same tokens privately and promised: what is computed first fills the promise."""
    cache = CacheManager(64, RadixPrefixCache())
    base = cache.reserve(ids(1, 2), 2)
    assert base is not None
    compute(cache, base)
    cache.extend(base, 3)  # draws 3, 4, 5
    compute(cache, base)
    promised = cache.reserve(ids(1, 2, 3, 4, 9), 4)
    assert promised is not None and cache.first_missing(promised) == 2
    cache.release(base, ids(1, 2, 3, 4, 5))
    cache.check([promised])
    assert cache.first_missing(promised) == 4
    compute(cache, promised)
    cache.release(promised, ids(1, 2, 3, 4, 9))
    cache.check([])
    assert cache.tree.num_tokens == 6


def test_too_little_memory_changes_nothing() -> None:
    cache = CacheManager(10, RadixPrefixCache())
    held = cache.reserve(ids(*range(8)), 7)
    assert held is not None
    assert cache.reserve(ids(*range(100, 103)), 2) is None
    assert cache.reserve(ids(*range(100, 102)), 1, headroom=1) is None
    assert not cache.extend(held, 3) and cache.extend(held, 2)
    cache.check([held])


def test_salts_keep_tenants_apart() -> None:
    cache = CacheManager(64, RadixPrefixCache())
    prompt = ids(1, 2, 3, 4)
    for salt in ("a", "b"):
        lease = cache.reserve(prompt, 3, salt)
        assert lease is not None and compute(cache, lease) == 4
        cache.release(lease, prompt)
    assert cache.peek(prompt, "a")[1] == 4 and cache.peek(prompt, "c")[1] == 0 and cache.peek(prompt)[1] == 0


def test_without_a_prefix_cache_nothing_is_kept_or_shared() -> None:
    cache = CacheManager(64, NoPrefixCache())
    prompt = ids(1, 2, 3, 4)
    a, b = cache.reserve(prompt, 3), cache.reserve(prompt, 3)
    assert a is not None and b is not None and compute(cache, a) == compute(cache, b) == 4
    for lease in (a, b):
        cache.release(lease, prompt)
    cache.check([])
    assert cache.slots.num_free == 64


@pytest.mark.parametrize(
    ("seed", "policy", "num_steps"), [(0, "lru", 10_000), (1, "lfu", 2_000), (2, "fifo", 2_000), (3, "lru", 2_000), (4, "none", 2_000)]
)
def test_ten_thousand_random_operations(seed: int, policy: str, num_steps: int) -> None:
    """After each operation every slot is recounted, and what a lease reads is right."""
    rng = random.Random(seed)
    cache = CacheManager(120, NoPrefixCache() if policy == "none" else RadixPrefixCache(policy))
    content: dict[int, tuple[int, ...]] = {}  # slot -> the prefix whose keys and values it holds
    open_leases: list[tuple[Lease, list[int]]] = []
    retracted: list[list[int]] = []

    def write(lease: Lease, tokens: list[int], end: int) -> None:
        start = cache.first_missing(lease)
        if end <= start:
            return
        slots = slots_of(lease)
        cache.plan(lease, end)
        for position in range(start, end):
            content[int(slots[position])] = tuple(tokens[: position + 1])
        cache.mark_computed(lease, end)

    def slots_of(lease: Lease) -> Array:
        return np.concatenate([*(node.value.slots for node in lease.node.path() if node.value is not None), lease.tail_slots])

    def release(index: int) -> list[int]:
        lease, tokens = open_leases.pop(index)
        cache.release(lease, np.array(tokens, dtype=np.int64))
        return tokens

    counts: dict[str, int] = {}
    for _ in range(num_steps):
        operation = rng.choice(
            ["match", "reserve", "reserve", "compute", "compute", "draw", "draw", "commit", "fork", "abort", "evict", "flush", "retract"]
        )
        if operation == "match":
            tokens = [rng.randrange(3) for _ in range(rng.randint(1, 20))]
            _, matched = cache.peek(np.array(tokens))
            assert 0 <= matched <= len(tokens)
        elif operation == "reserve":
            tokens = retracted.pop() if retracted and rng.random() < 0.5 else [rng.randrange(3) for _ in range(rng.randint(1, 20))]
            limit = rng.choice([len(tokens), len(tokens) - 1, rng.randrange(len(tokens))])
            lease = cache.reserve(np.array(tokens), limit, headroom=rng.randrange(5))
            if lease is None:
                operation = "refused"
                if not open_leases:
                    assert len(tokens) + 5 > 120
            else:
                open_leases.append((lease, list(tokens)))
        elif operation == "compute" and open_leases:
            lease, tokens = rng.choice(open_leases)
            write(lease, tokens, rng.randint(0, lease.len))
        elif operation == "draw" and open_leases:
            lease, tokens = rng.choice(open_leases)
            write(lease, tokens, lease.len)
            if len(tokens) < 60 and cache.extend(lease, 1):
                tokens.append(rng.randrange(3))
        elif operation == "commit" and open_leases:
            lease, tokens = rng.choice(open_leases)
            cache.publish(lease, np.array(tokens))
        elif operation == "fork" and open_leases:
            lease, tokens = rng.choice(open_leases)
            twin = cache.fork(lease, np.array(tokens))
            open_leases.append((twin, tokens[: twin.len]))
        elif operation == "abort" and open_leases:
            release(rng.randrange(len(open_leases)))
        elif operation == "retract" and open_leases:
            tokens = release(len(open_leases) - 1)
            retracted.extend([tokens] if tokens else [])
        elif operation == "evict":
            before = cache.slots.num_free
            freed = cache.evict(rng.randint(1, 30))
            assert cache.slots.num_free == before + freed
        elif operation == "flush":
            cache.flush()
            assert cache.tree.num_unlocked == 0
        counts[operation] = counts.get(operation, 0) + 1
        cache.check([lease for lease, _ in open_leases])
        for lease, tokens in open_leases:
            slots = slots_of(lease)
            assert len(slots) == lease.len == len(tokens)
            done = cache.first_missing(lease)
            assert [content[int(slot)] for slot in slots[:done]] == [tuple(tokens[: p + 1]) for p in range(done)]
    assert min(counts.values()) > 20, counts
    while open_leases:
        release(0)
        cache.check([lease for lease, _ in open_leases])
    cache.flush()
    assert cache.slots.num_free == 120
