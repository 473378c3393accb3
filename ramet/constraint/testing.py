"""Try a constraint on a text, without a model."""

from __future__ import annotations

from dataclasses import dataclass

from ramet.constraint.base import Matcher
from ramet.constraint.compile import compile_constraint
from ramet.constraint.limits import Limits
from ramet.constraint.vocabulary import Vocabulary

_EOS = 256


def byte_vocabulary() -> Vocabulary:
    """A vocabulary of the 256 bytes; id 256 ends a text."""
    return Vocabulary([bytes([byte]) for byte in range(256)] + [b""], eos_ids=(_EOS,))


@dataclass(frozen=True, slots=True)
class Explanation:
    """How far a text goes along a constraint.

    `accepted` is the longest beginning that something may follow (whole characters). `expected` shows, where the text fails or stops short,
    the bytes that may come next, `forced` those that must. `num_bytes` counts the bytes that fit, perhaps into a character.
    """

    is_accepted: bool
    accepted: str
    num_bytes: int
    may_end: bool
    expected: str
    forced: str

    def __str__(self) -> str:
        if self.is_accepted:
            return "accepted"
        end = " or the end" if self.may_end else ""
        return f"fails behind {self.accepted!r} ({self.num_bytes} bytes): expected {self.expected or 'nothing'}{end}" + (
            f"; forced: {self.forced!r}" if self.forced else ""
        )


def accepts(kind: str, text: str, string: str, limits: Limits | None = None) -> bool:
    """Whether the constraint matches the whole string. Raises InvalidConstraint for a constraint that is refused."""
    return explain(kind, text, string, limits).is_accepted


def explain(kind: str, text: str, string: str, limits: Limits | None = None) -> Explanation:
    """Walk a string along a constraint and say where it fails. Raises InvalidConstraint for a constraint that is refused."""
    matcher = compile_constraint(kind, text, byte_vocabulary(), limits=limits).matcher()
    data = string.encode("utf-8", "surrogatepass")  # half a surrogate pair is refused by the automaton, as it must be
    num_bytes = 0
    while num_bytes < len(data) and matcher.allows(data[num_bytes]):
        matcher.accept(data[num_bytes])
        num_bytes += 1
    is_accepted = num_bytes == len(data) and matcher.is_final
    return Explanation(
        is_accepted=is_accepted,
        accepted=data[:num_bytes].decode(errors="ignore"),
        num_bytes=num_bytes,
        may_end=matcher.is_final,
        expected=_show(matcher),
        forced=matcher.forced_bytes().decode(errors="replace"),
    )


def _show(matcher: Matcher) -> str:
    """The allowed bytes as ranges, printable ones as characters."""
    allowed = [byte for byte in range(256) if matcher.allows(byte)]
    ranges: list[list[int]] = []
    for byte in allowed:
        if ranges and ranges[-1][1] + 1 == byte:
            ranges[-1][1] = byte
        else:
            ranges.append([byte, byte])
    return " ".join(_name(low) if low == high else f"{_name(low)}-{_name(high)}" for low, high in ranges)


def _name(byte: int) -> str:
    return chr(byte) if 0x21 <= byte <= 0x7E else f"\\x{byte:02x}"
