"""The exact bytes of every token, for the three ways in which tokenizers spell bytes.

- Byte-level BPE (GPT-2): each character of a token stands for one byte.
- SentencePiece with byte fallback: `▁` stands for a space and `<0xE2>` for one byte.
- Added tokens: the UTF-8 of their text.

The bytes of `encode(text)` joined are the UTF-8 of the text. Two things a tokenizer may do on purpose stay visible: a SentencePiece
vocabulary with a dummy prefix starts with one space that the text has not (`strips_leading_space`; decoding takes it away again), and a
normaliser such as NFC rewrites the text before it is cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import tokenizers

from ramet.errors import TokenizerError

SPACE_MARK: Final = "▁"
_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True, eq=False)
class TokenBytes:
    """What each id of a vocabulary spells.

    `pieces[id]` are the bytes (empty for a hole in the ids). `special_ids` mark control tokens, whose bytes are a name and not text.
    `strips_leading_space`: the vocabulary writes a space before the first word, and decoding a whole text takes that one away.
    """

    pieces: tuple[bytes, ...]
    special_ids: frozenset[int]
    strips_leading_space: bool


def read_token_bytes(tokenizer: tokenizers.Tokenizer, unused_ids: frozenset[int] = frozenset()) -> TokenBytes:
    """Work out the bytes of every token from the vocabulary and the kind of the decoder.

    `unused_ids` have a name in the vocabulary that is not text; they are marked special. Raises TokenizerError for a decoder that is
    neither byte-level nor SentencePiece-like.
    """
    kinds = list(_flat(json.loads(tokenizer.decoder.__getstate__()))) if tokenizer.decoder is not None else []
    names = {str(kind["type"]) for kind in kinds}
    is_byte_level = "ByteLevel" in names
    if not is_byte_level and not names & {"ByteFallback", "Metaspace"}:
        raise TokenizerError(
            f"the tokenizer's decoder ({', '.join(sorted(names)) or 'none'}) is neither byte-level nor SentencePiece with byte fallback: "
            "the exact bytes of its tokens are not defined"
        )
    spell = _spell_byte_level if is_byte_level else _spell_sentencepiece
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    pieces = [b""] * (max(vocab.values(), default=-1) + 1)
    for token, token_id in vocab.items():
        pieces[token_id] = spell(token)
    special = set(unused_ids)
    for token_id, added in tokenizer.get_added_tokens_decoder().items():
        text = added.content if is_byte_level else added.content.replace(SPACE_MARK, " ")
        pieces[token_id] = text.encode()
        if added.special:
            special.add(token_id)
    return TokenBytes(tuple(pieces), frozenset(special), not is_byte_level and any(map(_strips_leading_space, kinds)))


@lru_cache(maxsize=1)
def byte_of_char() -> Mapping[str, int]:
    """GPT-2's table from the visible character that stands for a byte to that byte; 256 entries."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in set(visible)]
    return {chr(byte): byte for byte in visible} | {chr(256 + rank): byte for rank, byte in enumerate(hidden)}


def _spell_byte_level(token: str) -> bytes:
    table = byte_of_char()
    try:
        return bytes([table[char] for char in token])
    except KeyError:  # a word that was put into the vocabulary as plain text
        return token.encode()


def _spell_sentencepiece(token: str) -> bytes:
    match = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else token.replace(SPACE_MARK, " ").encode()


def _flat(decoder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The steps of a decoder; sequences may hold sequences."""
    if decoder["type"] == "Sequence":
        for step in decoder["decoders"]:
            yield from _flat(step)
    else:
        yield decoder


def _strips_leading_space(step: Mapping[str, Any]) -> bool:
    if step["type"] == "Metaspace":
        return bool(step.get("prepend_scheme", "always") != "never")
    return bool(step["type"] == "Strip" and step["content"] == " " and step["start"] >= 1)
