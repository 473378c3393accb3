"""The texts of all tokens of a model, prepared once for masks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from ramet.constraint.row_store import RowStore
from ramet.constraint.trie import Trie, build_trie
from ramet.constraint.walk import Walker, choose_walker

if TYPE_CHECKING:
    from ramet.tokenizer.tokenizer import Tokenizer


_SMALL: Final = 1000  # tokens


class Vocabulary:
    """What each id of a logits row stands for; immutable, shared by all constraints, compared by identity.

    `pieces[id]` are the bytes of a token. Ids in `special_ids`, ids without bytes and ids from `len(pieces)` up to `width` (the length of a
    logits row) are never text. `eos_ids` end a text and are nothing else. `walker` makes the masks; chosen
    at the first use unless given.
    """

    def __init__(
        self,
        pieces: Sequence[bytes],
        *,
        eos_ids: Collection[int] = (),
        special_ids: Collection[int] = (),
        width: int | None = None,
        walker: Walker | None = None,
    ) -> None:
        self._walker = walker
        self.rows: RowStore[Any] = RowStore()  # the masks of all constraints over it
        self.width = len(pieces) if width is None else width
        assert self.width >= len(pieces), f"a logits row of {self.width} is shorter than the vocabulary of {len(pieces)}"
        self.eos_ids = tuple(sorted(set(eos_ids)))
        assert all(0 <= token_id < self.width for token_id in self.eos_ids), f"eos ids {self.eos_ids} outside the row of {self.width}"
        silent = {*special_ids, *self.eos_ids}
        self._pieces = tuple(b"" if token_id in silent else piece for token_id, piece in enumerate(pieces))
        self.alphabet = frozenset(byte for piece in self._pieces for byte in piece)  # bytes that some token spells

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer, *, eos_ids: Collection[int] | None = None, width: int | None = None) -> Vocabulary:
        """The vocabulary of a tokenizer; `width` is the length of the model's logits rows, which may be padded beyond the tokenizer.

        `eos_ids` are the tokenizer's own unless given.
        """
        pieces = [tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocab_size)]
        return cls(
            pieces,
            eos_ids=tokenizer.eos_token_ids if eos_ids is None else eos_ids,
            special_ids=tokenizer.special_ids,
            width=max(width or 0, tokenizer.vocab_size),
        )

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The text of each id of the tokenizer, in order; empty for what is never text."""
        return self._pieces

    def piece(self, token_id: int) -> bytes:
        """The text of an id; empty for what is never text."""
        return self._pieces[token_id] if 0 <= token_id < len(self._pieces) else b""

    @cached_property
    def trie(self) -> Trie:
        """The byte tree of all texts, built at the first use (0.1 to 1 s)."""
        return build_trie([(token_id, piece) for token_id, piece in enumerate(self._pieces) if piece])

    @cached_property
    def walker(self) -> Walker:
        """How masks are made; see `choose_walker`. A small vocabulary is walked before the compiled steps are loaded."""
        return self._walker or choose_walker(None if len(self._pieces) > _SMALL else False)

    def prepare(self) -> None:
        """Build the tree and the walker now, so that no request waits for them."""
        assert self.trie is not None
        assert self.walker is not None
