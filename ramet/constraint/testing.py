"""Try a constraint on a text, without a model."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ramet.constraint.automaton import DEAD, START, Automaton
from ramet.constraint.base import Compiled, Matcher
from ramet.constraint.compile import compile_constraint
from ramet.constraint.compiled import AutomatonConstraint
from ramet.constraint.jump import Jumper, num_shared
from ramet.constraint.limits import Limits
from ramet.constraint.vocabulary import Vocabulary
from ramet.errors import InvalidConstraint

_EOS = 256


def byte_vocabulary() -> Vocabulary:
    """A vocabulary of the 256 bytes; id 256 ends a text."""
    return Vocabulary([bytes([byte]) for byte in range(256)] + [b""], eos_ids=(_EOS,))


@dataclass(frozen=True, slots=True)
class Explanation:
    """How far a text goes along a constraint.

    `accepted` is the longest beginning that something may follow (whole characters). `expected` shows, where the text fails or stops short,
    the bytes that may come next, `forced` those that must. `num_bytes` counts the bytes that fit, perhaps into a character, and
    `num_forced_bytes` those among them that had no alternative.
    """

    is_accepted: bool
    accepted: str
    num_bytes: int
    num_forced_bytes: int
    may_end: bool
    expected: str
    forced: str

    @property
    def offset(self) -> int:
        """The character of the text at which it fails or stops short, from 0."""
        return len(self.accepted)

    @property
    def line(self) -> int:
        r"""The line of that character, from 1; lines end with "\n"."""
        return self.accepted.count("\n") + 1

    @property
    def column(self) -> int:
        """The place of that character in its line, from 1."""
        return self.offset - self.accepted.rfind("\n")

    def __str__(self) -> str:
        if self.is_accepted:
            return "accepted"
        end = " or the end" if self.may_end else ""
        return f"fails behind {self.accepted!r} ({self.num_bytes} bytes): expected {self.expected or 'nothing'}{end}" + (
            f"; forced: {self.forced!r}" if self.forced else ""
        )


@dataclass(frozen=True, slots=True)
class StateCount:
    """The size of an automaton: its states, and those of them that leave no choice. Not all were counted unless `is_complete`."""

    num_states: int
    num_forced: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class TokenStep:
    """One token of a text; no model has to be asked for one that `is_forced`."""

    token_id: int
    piece: bytes
    is_forced: bool


def accepts(kind: str, text: str, string: str, limits: Limits | None = None) -> bool:
    """Whether the constraint matches the whole string. Raises InvalidConstraint for a constraint that is refused."""
    return explain(kind, text, string, limits).is_accepted


def explain(kind: str, text: str, string: str, limits: Limits | None = None) -> Explanation:
    """Walk a string along a constraint and say where it fails. Raises InvalidConstraint for a constraint that is refused."""
    return explain_bytes(
        compile_constraint(kind, text, byte_vocabulary(), limits=limits),
        string.encode("utf-8", "surrogatepass"),  # half a surrogate pair is refused by the automaton, as it must be
    )


def explain_bytes(compiled: Compiled, data: bytes) -> Explanation:
    """The same for a constraint that was compiled for `byte_vocabulary()`, and for any bytes.

    Raises InvalidConstraint when a limit is passed on the way.
    """
    matcher = compiled.matcher()
    num_bytes = num_forced_bytes = forced_end = 0
    while num_bytes < len(data) and matcher.allows(data[num_bytes]):
        if num_bytes >= forced_end:
            forced_end = num_bytes + len(matcher.forced_bytes())
        num_forced_bytes += num_bytes < forced_end
        matcher.accept(data[num_bytes])
        num_bytes += 1
    return Explanation(
        is_accepted=num_bytes == len(data) and matcher.is_final,
        accepted=data[:num_bytes].decode(errors="ignore"),
        num_bytes=num_bytes,
        num_forced_bytes=num_forced_bytes,
        may_end=matcher.is_final,
        expected=_show(matcher),
        forced=matcher.forced_bytes().decode(errors="replace"),
    )


def count_states(compiled: Compiled, max_states: int = 10_000) -> StateCount | None:
    """Work out the states of a constraint, up to so many; None for one that has no automaton, such as a recursive grammar.

    Stops at a limit of the constraint, too; the count is then not complete.
    """
    if not isinstance(compiled, AutomatonConstraint):
        return None
    num_states = num_forced = 0
    try:
        for state in iterate_states(compiled.automaton):
            if num_states == max_states:
                return StateCount(num_states, num_forced, False)
            num_states += 1
            num_forced += compiled.automaton.is_singular(state)
    except InvalidConstraint:  # only over a limit here: the constraint itself is compiled
        return StateCount(num_states, num_forced, False)
    return StateCount(num_states, num_forced, True)


def iterate_states(automaton: Automaton) -> Iterator[int]:
    """All states, nearest to the start first; a state is given out before those behind it are worked out.

    Raises InvalidConstraint when a limit is passed on the way.
    """
    seen = {START}
    todo = deque(seen)
    classes = automaton.byte_class.tolist()
    while todo:
        state = todo.popleft()
        yield state
        automaton.source.restart_clock()
        done: set[int] = set()
        for low, high in automaton.next_bytes(state):
            for byte in range(low, high + 1):
                if classes[byte] in done:
                    continue
                done.add(classes[byte])
                target = automaton.step(state, byte)
                if target != DEAD and target not in seen:
                    seen.add(target)
                    todo.append(target)


def trace_tokens(
    compiled: Compiled, vocabulary: Vocabulary, token_ids: Sequence[int], jumper: Jumper | None = None, left_ids: Sequence[int] = ()
) -> list[TokenStep]:
    """Walk tokens along a constraint that was compiled for this vocabulary, as far as they are allowed.

    With a jumper those tokens are forced that the engine writes without asking the model, `left_ids` being the tokens before; without one
    those whose bytes are all forced. Raises InvalidConstraint when a limit is passed on the way.
    """
    matcher = compiled.matcher()
    steps: list[TokenStep] = []
    num_forced = 0  # of the tokens to come
    for i, token_id in enumerate(token_ids):
        if not matcher.allows(token_id):
            break
        piece = vocabulary.piece(token_id)
        if jumper is None:
            is_forced = bool(piece) and matcher.forced_bytes().startswith(piece)
        else:
            num_forced = num_forced or num_shared(jumper.heal([*left_ids, *token_ids[:i]], matcher), token_ids[i:])
            is_forced = num_forced > 0
            num_forced -= is_forced
        steps.append(TokenStep(token_id, piece, is_forced))
        matcher.accept(token_id)
    return steps


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
