"""Random numbers without a state: one uniform number a (seed, position), the same in any batch and on any device."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, the step of SplitMix64
_UNIT = 2.0**-53


def _mix(x: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014)."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def uniform(seed: int, position: int) -> float:
    """One number in [0, 1) with 53 random bits: output `position` of the SplitMix64 stream that starts at the hashed seed.

    The seed is hashed first, so that neighbouring seeds do not give shifted copies of one stream. `seed` may be any integer of
    64 bits, signed or not; `position` is the index of the token that is drawn. Python integers are exact, and one number a row
    is all a step needs, so nothing here depends on a device or a dtype.
    """
    assert position >= 0, f"position {position} is negative"
    start = _mix((seed + _GOLDEN) & _MASK)
    return (_mix((start + (position + 1) * _GOLDEN) & _MASK) >> 11) * _UNIT
