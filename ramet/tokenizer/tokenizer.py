"""The tokenizer of one model: text to ids, ids to text, ids to bytes."""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers

from ramet.errors import InvalidRequest
from ramet.tokenizer.incremental import IncrementalDetokenizer
from ramet.tokenizer.token_bytes import read_token_bytes


class Tokenizer:
    """Text <-> ids <-> bytes of one vocabulary; immutable after construction, and every method may be called from any thread.

    `vocab_size` counts all ids up to the largest one, added tokens included (the model's own head may be wider: padded ids have no text).
    `eos_token_ids` are all ids that end a text, the main one first. `special_ids` are control tokens, which are never text.
    A byte-level vocabulary may lack a byte (SmolLM2 lacks 21 that valid or usual text does not hold): such a byte vanishes on encoding.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bos_token_id: int | None = None,
        eos_token_ids: tuple[int, ...] = (),
        chat_template: str | None = None,
        unused_ids: frozenset[int] = frozenset(),
    ) -> None:
        backend.no_padding()
        backend.no_truncation()
        self._backend = backend
        self.bytes_table = read_token_bytes(backend, unused_ids)
        self.bos_token_id = bos_token_id
        self.eos_token_ids = eos_token_ids
        self.chat_template = chat_template
        self.vocab_size = len(self.bytes_table.pieces)

    @property
    def eos_token_id(self) -> int | None:
        """The main id that ends a text."""
        return self.eos_token_ids[0] if self.eos_token_ids else None

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of control tokens: shown only on request, never text."""
        return self.bytes_table.special_ids

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text; names of special tokens in it become those tokens.

        `add_special_tokens` lets the tokenizer put its own around the text (for many models a BOS, for SmolLM2 nothing).
        Raises InvalidRequest when the text is not valid Unicode.
        """
        return self.encode_batch([text], add_special_tokens)[0]

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        """`encode` of each text; several texts are cut on several threads."""
        for text in texts:
            if not text.isascii():
                _check_unicode(text)
        if len(texts) == 1:
            return [self._backend.encode(texts[0], add_special_tokens=add_special_tokens).ids]
        return [encoding.ids for encoding in self._backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True, spaces_between_special_tokens: bool = True) -> str:
        """The text of a whole sequence of ids, equal to what streaming the same ids gives.

        Ids outside the vocabulary have no text; bytes that are not valid UTF-8 become U+FFFD. `spaces_between_special_tokens` puts a space
        between two special tokens that stand next to each other, when they are shown.
        """
        stream = IncrementalDetokenizer(
            self, skip_special_tokens=skip_special_tokens, spaces_between_special_tokens=spaces_between_special_tokens
        )
        return stream.push(ids) + stream.flush()

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of one token (of a special token: its name); empty for an id outside the vocabulary."""
        return self.bytes_table.pieces[token_id] if 0 <= token_id < self.vocab_size else b""

    def id_to_token(self, token_id: int) -> str | None:
        """The vocabulary's spelling of one id, None outside the vocabulary."""
        return self._backend.id_to_token(token_id) if 0 <= token_id < self.vocab_size else None

    def token_to_id(self, token: str) -> int | None:
        """The id of a spelling of the vocabulary, None when it has none."""
        return self._backend.token_to_id(token)


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"the text holds {text[error.start]!r} at character {error.start}: half of a surrogate pair is no character; remove it"
        ) from error
