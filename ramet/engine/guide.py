"""What a constraint does to one request: its place in it, its mask, its jumps, and what they have bent."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from ramet.config import ConstraintOptions
from ramet.constraint.base import Compiled, Matcher
from ramet.constraint.canonical import Canonical
from ramet.constraint.jump import Jumper
from ramet.constraint.mask import MaskRow
from ramet.engine.constraints import Constraints
from ramet.engine.mask_filler import MaskFiller
from ramet.messages import Distortion, GenerateRequest
from ramet.tokenizer import Tokenizer
from ramet.tokenizer.continuation import Continuation

_LEFT_LEN: Final = 64  # tokens before a place that may decide the tokens behind it


@dataclass(frozen=True, slots=True)
class Jump:
    """Tokens that need no draw: `num_kept` tokens of the output stay and `token_ids` follow them."""

    num_kept: int
    token_ids: tuple[int, ...]


class Guide:
    """One request's way through its constraint. Belongs to the engine's loop."""

    def __init__(self, matcher: Matcher, prompt_ids: Sequence[int], tools: Tools, filler: MaskFiller, *, is_canonical: bool) -> None:
        self.matcher = matcher
        self.num_forced = 0
        self._prompt_ids = prompt_ids
        self._tools = tools
        self._filler = filler
        self._is_canonical = is_canonical
        self._mask: Future[MaskRow | None] | None = None
        self._num_drawn = 0
        self._masked_mass = 0.0

    def ask_mask(self) -> Future[MaskRow | None]:
        """The mask of the next draw; made in the background, so nothing else may be called until it is done."""
        if self._mask is None:
            self._mask = self._filler.ask(self.matcher)
        return self._mask

    def accept(self, token_id: int) -> None:
        """Follow a token of the output."""
        self._mask = None
        self.matcher.accept(token_id)

    def note_draw(self, masked_mass: float) -> None:
        """Count a draw and the probability that its mask took away."""
        self._num_drawn += 1
        self._masked_mass += min(1.0, max(0.0, masked_mass))

    def is_canonical(self, output_ids: Sequence[int], token_id: int) -> bool:
        """Whether a token may be drawn as far as spelling goes."""
        if not self._is_canonical:
            return True
        return self._tools.canonical.allows(self._left(output_ids), self.matcher, token_id)

    def jump(self, mode: str, output_ids: Sequence[int]) -> Jump:
        """The tokens to write without a draw, in one of the modes of `ConstraintOptions.jump_forward`. Changes nothing."""
        if mode == "heal":
            return Jump(len(output_ids), self._tools.jumper.heal(self._left(output_ids), self.matcher))
        assert mode == "retokenize", f"no jump in mode {mode}"
        return Jump(*self._tools.jumper.retokenize(self._prompt_ids[-_LEFT_LEN:], output_ids, self.matcher))

    def end_id(self, end_ids: Sequence[int]) -> int | None:
        """The id that ends the text, when nothing else is possible and there is just one."""
        if len(end_ids) != 1 or self.matcher.is_finished or not self.matcher.is_final or self.matcher.bytes_behind(b""):
            return None
        return end_ids[0]

    def rewrite(self, num_dropped: int) -> None:
        """Take the last tokens of the output back; the new ones are accepted after it."""
        self._mask = None
        self.matcher.rollback(num_dropped)

    def distortion(self, output_ids: Sequence[int]) -> Distortion:
        """What the constraint has bent so far."""
        mean = self._masked_mass / self._num_drawn if self._num_drawn else 0.0
        return Distortion(self._tools.canonical.num_noncanonical(self._prompt_ids[-_LEFT_LEN:], output_ids), mean)

    def _left(self, output_ids: Sequence[int]) -> tuple[int, ...]:
        num_prompt = max(0, _LEFT_LEN - len(output_ids))
        return (*(self._prompt_ids[-num_prompt:] if num_prompt else ()), *output_ids[-_LEFT_LEN:])


@dataclass(frozen=True, slots=True)
class Tools:
    """What all guides of one engine share."""

    jumper: Jumper
    canonical: Canonical


class Guides:
    """Makes the guide of each constrained request; what they share is made for the first one."""

    def __init__(self, constraints: Constraints, tokenizer: Tokenizer, options: ConstraintOptions) -> None:
        self._constraints = constraints
        self._tokenizer = tokenizer
        self._options = options
        self._lock = threading.Lock()
        self._tools: Tools | None = None
        # From compilation to opening: a request in the queue keeps its constraint although the cache may have dropped it. By object, not
        # by name: a name that is taken is refused after this, and a request that is never submitted takes its constraint with it.
        self._pinned: dict[int, tuple[weakref.ref[GenerateRequest], Compiled]] = {}
        self._seen: weakref.WeakSet[Compiled] = weakref.WeakSet()
        self.filler = MaskFiller()

    def compile(self, requests: Sequence[GenerateRequest]) -> None:
        """Compile what requests need, in the caller's thread, and begin to work ahead; all are submitted after it, or none.

        Raises InvalidConstraint.
        """
        compiled = [(request, self._constraints.compile(request.params)) for request in requests]
        for request, constraint in compiled:
            if constraint is None:
                continue
            self._prepared_tools()
            self._pin(request, constraint)
            with self._lock:
                is_new = constraint not in self._seen
                self._seen.add(constraint)
            if is_new:
                self.filler.work_ahead(constraint)

    def forget(self, request: GenerateRequest) -> None:
        """A request that was compiled is not opened: it was refused."""
        self._pinned.pop(id(request), None)

    def open(self, request: GenerateRequest) -> Guide | None:
        """The guide of a request, None when its text is free. Raises InvalidConstraint."""
        pinned = self._pinned.pop(id(request), None)
        compiled = None if pinned is None else pinned[1]
        if compiled is None:
            compiled = self._constraints.compile(request.params)
        if compiled is None:
            return None
        is_canonical = self._wants_canonical(compiled)
        return Guide(compiled.matcher(), request.prompt_ids, self._prepared_tools(), self.filler, is_canonical=is_canonical)

    def _pin(self, request: GenerateRequest, compiled: Compiled) -> None:
        key, pinned = id(request), self._pinned  # the reference must not keep the guides
        pinned[key] = (weakref.ref(request, lambda _: pinned.pop(key, None)), compiled)

    def _wants_canonical(self, compiled: Compiled) -> bool:
        mode = self._options.canonical_masks
        return mode == "always" or (mode == "finite" and compiled.is_finite)

    def _prepared_tools(self) -> Tools:
        with self._lock:
            if self._tools is None:
                vocabulary = self._constraints.vocabulary
                continuation = Continuation(self._tokenizer)
                jumper = Jumper(vocabulary, continuation)
                self._tools = Tools(jumper, Canonical(vocabulary, continuation, jumper))
            return self._tools
