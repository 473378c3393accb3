"""The bytes of tokens: of single ones by table, of whole texts by property."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models

from ramet.errors import TokenizerError
from ramet.tokenizer import Tokenizer
from ramet.tokenizer.token_bytes import byte_of_char, read_token_bytes

SMOLLM2_LACKS = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)}

TEXTS = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.sampled_from(
            [
                "🙂",
                "👩‍👩‍👧‍👦",
                "🇫🇷",
                "天地玄黄，宇宙洪荒",
                "e\u0301",
                "ก็",
                "क्षि",
                "\u200b",
                "\ufeff",
                "\x00",
                "\x07\x1b[0m",
                "\r\n",
                "  ",
                "\t",
                " a",
            ]
        ),
        st.sampled_from(["Hello", " world", "It's", "12 345", "▁", "<0x41>", "\ufffd", "déjà vu"]),
    ),
    max_size=8,
).map("".join)
FUZZ = settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def joined(tokenizer: Tokenizer, ids: list[int]) -> bytes:
    return b"".join(map(tokenizer.token_bytes, ids))


def spellable(tokenizer: Tokenizer, text: str) -> str:
    """The text without the bytes that the vocabulary has no token for (SmolLM2), and without the mark that stands for a space."""
    is_byte_level = not tokenizer.bytes_table.strips_leading_space
    has = {piece for piece in tokenizer.bytes_table.pieces if len(piece) == 1}
    kept = (char for char in text if all(bytes([byte]) in has for byte in char.encode()))
    return "".join(kept) if is_byte_level else text.replace("▁", "")


@FUZZ
@given(TEXTS)
def test_bytes_of_an_encoded_text_are_the_text(each: Tokenizer, text: str) -> None:
    text = spellable(each, text)
    ids = each.encode(text, add_special_tokens=False)
    prefix = b" " if each.bytes_table.strips_leading_space and text else b""
    assert joined(each, ids) == prefix + text.encode()
    assert each.decode(ids) == text


def test_every_byte_has_a_token_or_is_known_to_lack_one(smollm2: Tokenizer) -> None:
    single = {piece[0] for piece in smollm2.bytes_table.pieces if len(piece) == 1}
    assert set(range(256)) - single == SMOLLM2_LACKS


def test_the_table_of_characters_is_that_of_the_library() -> None:
    from tokenizers import pre_tokenizers

    table = byte_of_char()
    assert sorted(table.values()) == list(range(256))
    assert set(table) == set(pre_tokenizers.ByteLevel.alphabet())
    assert (table["Ġ"], table["Ċ"], table["A"], table["é"]) == (0x20, 0x0A, 0x41, 0xE9)


def byte_level(words: list[str], added: list[AddedToken]) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, []))
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(added)
    return backend


def sentencepiece(words: list[str], added: list[AddedToken]) -> tokenizers.Tokenizer:
    backend = byte_level(words, added)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return backend


@pytest.mark.parametrize(
    ("build", "word", "expected"),
    [
        (byte_level, "Ġthe", b" the"),
        (byte_level, "Ċ", b"\n"),
        (byte_level, "Ã©", "é".encode()),
        (byte_level, "ðŁĻĤ", "🙂".encode()),
        (byte_level, "â", b"\xe2"),
        (byte_level, "▁the", "▁the".encode()),  # not spelled in the table: plain text
        (byte_level, "<0x41>", b"<0x41>"),
        (sentencepiece, "▁the", b" the"),
        (sentencepiece, "▁▁", b"  "),
        (sentencepiece, "<0xE2>", b"\xe2"),
        (sentencepiece, "<0xZZ>", b"<0xZZ>"),
        (sentencepiece, "x<0xE2>", b"x<0xE2>"),
        (sentencepiece, "Ġ", "Ġ".encode()),
    ],
)
def test_words(build: object, word: str, expected: bytes) -> None:
    assert callable(build)
    assert read_token_bytes(build([word], [])).pieces == (expected,)


@pytest.mark.parametrize(("build", "space"), [(byte_level, "▁"), (sentencepiece, " ")])
def test_added_tokens_are_text_and_control_tokens_are_marked(build: object, space: str) -> None:
    assert callable(build)
    table = read_token_bytes(build(["a"], [AddedToken("é x"), AddedToken("▁y"), AddedToken("<|end|>", special=True)]), frozenset({0}))
    assert table.pieces == (b"a", "é x".encode(), f"{space}y".encode(), b"<|end|>")
    assert table.special_ids == {0, 3}


@pytest.mark.parametrize(
    ("decoder", "strips"),
    [
        (decoders.ByteLevel(), False),
        (decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]), True),
        (decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()]), False),
        (decoders.Metaspace(), True),
        (decoders.Metaspace(prepend_scheme="never"), False),
    ],
)
def test_whose_first_space_is_dropped(decoder: decoders.Decoder, strips: bool) -> None:
    backend = byte_level(["a"], [])
    backend.decoder = decoder
    assert read_token_bytes(backend).strips_leading_space is strips


@pytest.mark.parametrize("decoder", [None, decoders.WordPiece(), decoders.BPEDecoder()])
def test_other_decoders_are_refused(decoder: decoders.Decoder | None) -> None:
    backend = tokenizers.Tokenizer(models.BPE({"a": 0}, []))
    if decoder is not None:
        backend.decoder = decoder
    with pytest.raises(TokenizerError, match="neither byte-level nor SentencePiece"):
        read_token_bytes(backend)


def test_a_hole_in_the_ids_has_no_bytes() -> None:
    backend = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 2}, []))
    backend.decoder = decoders.ByteLevel()
    assert read_token_bytes(backend).pieces == (b"a", b"", b"b")
