"""A constraint that is a byte automaton."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ramet.constraint.automaton import DEAD, START
from ramet.constraint.limits import Source
from ramet.constraint.mask import MaskTable
from ramet.constraint.syntax import Node, is_finite
from ramet.constraint.vocabulary import Vocabulary

if TYPE_CHECKING:
    from ramet.constraint.mask import MaskRow


_BYTES_PER_NUMBER: Final = 100  # of a state that has had a mask
_BYTES_PER_CHAR: Final = 100  # of the constraint's text


class AutomatonConstraint:
    """A syntax tree over one vocabulary; `Compiled` for every kind that is a regular language.

    Raises InvalidConstraint when nothing matches that the vocabulary can spell, and for a tree over the limits.
    """

    def __init__(self, root: Node, source: Source, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.is_finite = is_finite(root)
        alphabet = vocabulary.alphabet if len(vocabulary.alphabet) < 256 else None
        self.automaton = vocabulary.walker.automaton(root, source, alphabet, vocabulary.trie)
        self.masks = MaskTable(self.automaton, vocabulary)

    def matcher(self) -> AutomatonMatcher:
        """A matcher at the start."""
        return AutomatonMatcher(self, (START,), False)

    @property
    def num_bytes(self) -> int:
        """About how much memory it holds by now, without masks."""
        return self.automaton.num_bytes + _BYTES_PER_NUMBER * self.masks.num_states + _BYTES_PER_CHAR * len(self.automaton.source.text)

    def prepare(self, max_states: int = 256, goes_on: Callable[[], bool] = lambda: True) -> int:
        """Work out the masks of up to `max_states` states, nearest to the start first; returns how many. For a thread in the background.

        States inside a character come last: few tokens end there. Raises InvalidConstraint over a limit.
        """
        seen = {START}
        todo, inside = deque(seen), deque[int]()
        num_done = 0
        while (todo or inside) and num_done < max_states and goes_on():
            state = (todo or inside).popleft()
            self.masks.row(state)
            num_done += 1
            for target in self.automaton.targets(state):
                if target not in seen:
                    seen.add(target)
                    (inside if self.automaton.is_inside_char(target) else todo).append(target)
        return num_done


class AutomatonMatcher:
    """A place in an automaton, with the states behind it for rolling back."""

    __slots__ = ("_compiled", "_is_finished", "_states")

    def __init__(self, compiled: AutomatonConstraint, states: tuple[int, ...], is_finished: bool) -> None:
        self._compiled = compiled
        self._states = list(states)  # the start, then one a token of text
        self._is_finished = is_finished

    @property
    def is_final(self) -> bool:
        """Whether the text so far matches."""
        return self._compiled.automaton.is_accepting(self._states[-1])

    @property
    def is_finished(self) -> bool:
        """Whether an id that ends the text was accepted."""
        return self._is_finished

    @property
    def state_key(self) -> int:
        """The state of the automaton; -1 when finished."""
        return -1 if self._is_finished else self._states[-1]

    @property
    def num_accepted(self) -> int:
        """How many tokens were accepted and not rolled back."""
        return len(self._states) - 1 + self._is_finished

    def mask(self) -> MaskRow | None:
        """The tokens that may come next; see `Matcher`."""
        return None if self._is_finished else self._compiled.masks.row(self._states[-1])

    @property
    def is_mask_ready(self) -> bool:
        """Whether `mask` would only look up what is there."""
        return self._is_finished or self._compiled.masks.has(self._states[-1])

    def allows(self, token_id: int) -> bool:
        """Whether this token may come next."""
        return not self._is_finished and self._target(token_id) != DEAD

    def accept(self, token_id: int) -> None:
        """Go on by one token, which must be allowed."""
        assert not self._is_finished, f"token {token_id} comes after the end of the text"
        target = self._target(token_id)
        assert target != DEAD, (
            f"token {token_id} ({self._compiled.vocabulary.piece(token_id)!r}) is not allowed in state {self._states[-1]}"
        )
        if token_id in self._compiled.vocabulary.eos_ids:
            self._is_finished = True
        else:
            self._states.append(target)

    def forced_bytes(self, max_len: int | None = None) -> bytes:
        """The bytes up to the next choice, at most `max_len`."""
        return b"" if self._is_finished else self._compiled.automaton.forced_bytes(self._states[-1], max_len)[0]

    def bytes_behind(self, data: bytes) -> list[tuple[int, int]]:
        """The bytes that may follow `data`."""
        state = self._compiled.automaton.walk(self._states[-1], data)
        assert state != DEAD, f"{data!r} is not allowed here"
        return self._compiled.automaton.next_bytes(state)

    def rollback(self, num_tokens: int) -> None:
        """Take back the last tokens."""
        assert 0 <= num_tokens <= self.num_accepted, f"{num_tokens} tokens to take back, {self.num_accepted} accepted"
        if num_tokens and self._is_finished:
            self._is_finished = False
            num_tokens -= 1
        del self._states[len(self._states) - num_tokens :]

    def fork(self) -> AutomatonMatcher:
        """An independent matcher at the same place."""
        return AutomatonMatcher(self._compiled, tuple(self._states), self._is_finished)

    def _target(self, token_id: int) -> int:
        vocabulary = self._compiled.vocabulary
        state = self._states[-1]
        if token_id in vocabulary.eos_ids:
            return state if self._compiled.automaton.is_accepting(state) else DEAD
        piece = vocabulary.piece(token_id)
        return self._compiled.automaton.walk(state, piece) if piece else DEAD
