"""Streaming: no piece of a character, no prompt text, and the same text however the ids are cut.

SD-01, SD-02, SD-07 and SD-08 are faults that other servers had.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ramet.tokenizer import IncrementalDetokenizer, Tokenizer

FUZZ = settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXTS = st.lists(
    st.one_of(
        st.text(max_size=10),
        st.sampled_from(["🙂", "👩‍👩‍👧‍👦", "天地玄黄", "e\u0301", "ก็", "\x00\x1b", " ", "  ", "Hello", " world", "déjà vu"]),
    ),
    max_size=8,
).map("".join)


def stream(tokenizer: Tokenizer, ids: Sequence[int], cuts: Sequence[int] | None = None, **options: object) -> list[str]:
    """The pieces when the ids come in pushes of the given sizes (one by one when not given)."""
    detokenizer = IncrementalDetokenizer(tokenizer, **options)  # type: ignore[arg-type]
    pieces, at = [], 0
    for size in cuts if cuts is not None else [1] * len(ids):
        pieces.append(detokenizer.push(ids[at : at + size]))
        at += size
    pieces.append(detokenizer.push(ids[at:]))
    return [*pieces, detokenizer.flush()]


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    """One token for each byte."""
    of_piece = {piece: token_id for token_id, piece in enumerate(tokenizer.bytes_table.pieces) if len(piece) == 1}
    return [of_piece[bytes([byte])] for byte in data]


@FUZZ
@given(text=TEXTS, cuts=st.lists(st.integers(0, 4), max_size=20))
def test_text_comes_back_however_it_is_cut(each: Tokenizer, text: str, cuts: list[int]) -> None:
    ids = each.encode(text)
    whole = each.decode(ids)
    pieces = stream(each, ids, cuts)
    assert "".join(pieces) == whole
    assert whole == each._backend.decode(ids)  # the tokenizers library's own decoder


@FUZZ
@given(data=st.data())
def test_random_ids_as_of_a_hot_model(each: Tokenizer, data: st.DataObject) -> None:
    width = each.vocab_size + 64  # a head that is wider than the vocabulary
    ids = data.draw(st.lists(st.integers(0, width - 1), max_size=30))
    prompt = data.draw(st.lists(st.integers(0, width - 1), max_size=4))
    cuts = data.draw(st.lists(st.integers(0, 4), max_size=20))
    skip = data.draw(st.booleans())
    pieces = stream(each, ids, cuts, skip_special_tokens=skip, prompt_ids=prompt)
    one_by_one = stream(each, ids, skip_special_tokens=skip, prompt_ids=prompt)
    assert "".join(pieces) == "".join(one_by_one)
    "".join(pieces).encode()  # valid text, no half of a surrogate pair
    assert "".join(stream(each, ids, cuts, skip_special_tokens=skip)) == each.decode(ids, skip_special_tokens=skip)


@FUZZ
@given(data=st.data())
def test_prompt_and_output_make_the_whole_text(each: Tokenizer, data: st.DataObject) -> None:
    skip = data.draw(st.booleans())
    ids = each.encode(data.draw(TEXTS)) + data.draw(st.lists(st.sampled_from(sorted(each.special_ids)), max_size=3))
    ids += each.encode(data.draw(TEXTS), add_special_tokens=False)
    cut = data.draw(st.integers(0, len(ids)))
    output = "".join(stream(each, ids[cut:], prompt_ids=ids[:cut], skip_special_tokens=skip))
    whole = each.decode(ids, skip_special_tokens=skip)
    before = each.decode(ids[:cut], skip_special_tokens=skip)
    if before.endswith("\ufffd") and not whole.startswith(before):  # the cut is inside a character, which belongs to the output
        before = before[:-1]
    assert before + output == whole


def test_bytes_against_the_standard_decoder(trained: Tokenizer) -> None:
    """Every kind of broken UTF-8 gives what Python gives for the whole, whatever the cuts."""
    rng = random.Random(0)
    pool = [0x41, 0x7F, 0x80, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xE2, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF, 0x9F, 0xA0, 0x90]
    for _ in range(2000):
        data = bytes(rng.choice(pool) for _ in range(rng.randrange(12)))
        cuts = [rng.randrange(4) for _ in range(6)]
        assert "".join(stream(trained, byte_ids(trained, data), cuts)) == data.decode("utf-8", "replace")


def test_it_never_reads_more_than_the_new_tokens(trained: Tokenizer) -> None:
    """State stays at three bytes: a text of 100,000 tokens costs what its pieces cost."""
    detokenizer = IncrementalDetokenizer(trained)
    ids = byte_ids(trained, "🙂".encode()) * 25_000
    assert "".join(detokenizer.push([token_id]) for token_id in ids) == "🙂" * 25_000
    assert detokenizer._decoder.getstate()[0] == b""


# SD-01: the prompt ends inside a character


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (b"\x84", "ค"),  # completed: the character belongs to the output
        (b"\x84 ok", "ค ok"),
        (b"A", "A"),  # not completed: the prompt's bytes are dropped
        (b"\xe0\xb8\x84", "ค"),
        (b"", ""),
        (b"\xff", "\ufffd"),
        (b"\xe0", "\ufffd"),
    ],
)
def test_sd01_prompt_ends_inside_a_character(trained: Tokenizer, output: bytes, expected: str) -> None:
    prompt = trained.encode("Good morning ") + byte_ids(trained, b"\xe0\xb8")
    pieces = stream(trained, byte_ids(trained, output), prompt_ids=prompt)
    assert "".join(pieces) == expected
    assert "Good morning" not in "".join(pieces)
    assert "".join(stream(trained, byte_ids(trained, output), [len(output)], prompt_ids=prompt)) == expected


@pytest.mark.parametrize(
    ("prompt", "output", "expected"),
    [
        (b"\xef\xbf", b"\xbd", "\ufffd"),  # a real U+FFFD, completed
        (b"\xf0\x9f", b"\x99", "\ufffd"),  # still incomplete at the end: one
        (b"\xf0\x9f", b"\x99A", "\ufffdA"),
        (b"\xf0\x9f", b"\x99\x82", "🙂"),
        (b"\xf0", b"\xf0\x9f\x99\x82", "🙂"),
        (b"\x9f\x99", b"A", "A"),  # broken before: nothing is pending
        (b"\xed", b"\xa0\x80", "\ufffd\ufffd"),  # would be half of a surrogate pair
        (b"\xff", b"\x80", "\ufffd"),
        (b"a", b"\x80", "\ufffd"),
    ],
)
def test_prompts_that_end_in_bytes(trained: Tokenizer, prompt: bytes, output: bytes, expected: str) -> None:
    assert "".join(stream(trained, byte_ids(trained, output), prompt_ids=byte_ids(trained, prompt))) == expected


# SD-02: replacement characters at the ends of chunks


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_sd02_no_replacement_character_in_any_chunk(each: Tokenizer, size: int) -> None:
    literal = "天地玄黄，宇宙洪荒🙂"
    ids = each.encode(literal)
    pieces = stream(each, ids, [size] * (len(ids) // size))
    assert "".join(pieces) == literal
    assert not any("\ufffd" in piece for piece in pieces)


# SD-07: the token limit cuts a character


def test_sd07_the_limit_falls_inside_a_character(trained: Tokenizer) -> None:
    ids = byte_ids(trained, "🙂🙂🙂".encode())
    for limit in range(len(ids) + 1):
        expected = "🙂" * (limit // 4) + ("\ufffd" if limit % 4 else "")  # one, however many bytes there were
        assert "".join(stream(trained, ids[:limit])) == trained.decode(ids[:limit]) == expected
        expected.encode()


# SD-08: high temperature


def test_sd08_twenty_hot_outputs_are_valid_text(smollm2: Tokenizer) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        ids = [rng.randrange(smollm2.vocab_size) for _ in range(200)]
        text = "".join(stream(smollm2, ids, prompt_ids=smollm2.encode("x")))
        assert text.encode().decode() == text
        assert text == smollm2.decode(ids)


# The first space, special tokens, ids without text


@pytest.mark.parametrize(
    ("prompt", "output", "expected"),
    [
        ([], "Hello world", "Hello world"),  # the dummy space of the whole text is dropped
        (["<s>"], "Hello world", "Hello world"),  # a BOS is no text: this is still the start
        (["<s>", "a"], "Hello world", " Hello world"),  # after visible text the space is text
        (["▁"], "Hello world", " Hello world"),
    ],
)
def test_first_space_of_sentencepiece(sentencepiece: Tokenizer, prompt: list[str], output: str, expected: str) -> None:
    prompt_ids = [token_id for token in prompt if (token_id := sentencepiece.token_to_id(token)) is not None]
    assert len(prompt_ids) == len(prompt)
    ids = sentencepiece.encode(output, add_special_tokens=False)
    assert sentencepiece.token_bytes(ids[0]).startswith(b" ")
    assert "".join(stream(sentencepiece, ids, prompt_ids=prompt_ids)) == expected


def test_only_one_first_space_is_dropped(sentencepiece: Tokenizer) -> None:
    ids = sentencepiece.encode("  two", add_special_tokens=False)
    assert "".join(stream(sentencepiece, ids)) == "  two"


def test_a_shown_bos_is_text(sentencepiece: Tokenizer) -> None:
    bos = sentencepiece.token_to_id("<s>")
    assert bos is not None
    ids = [bos, *sentencepiece.encode("a", add_special_tokens=False)]
    assert "".join(stream(sentencepiece, ids, skip_special_tokens=False)) == "<s> a"


@pytest.mark.parametrize(
    ("skip", "space", "expected"),
    [(True, True, "ab"), (True, False, "ab"), (False, True, "a<|end|> <|user|>b<|end|>"), (False, False, "a<|end|><|user|>b<|end|>")],
)
def test_special_tokens(trained: Tokenizer, skip: bool, space: bool, expected: str) -> None:
    ids = trained.encode("a<|end|><|user|>b<|end|>")
    assert len(ids) == 5
    options = {"skip_special_tokens": skip, "spaces_between_special_tokens": space}
    assert "".join(stream(trained, ids, **options)) == trained.decode(ids, **options) == expected
    output = "".join(stream(trained, ids[2:], prompt_ids=ids[:2], **options))  # the space stands between prompt and output
    assert trained.decode(ids[:2], **options) + output == expected


def test_a_hidden_special_token_does_not_cut_a_character(trained: Tokenizer) -> None:
    first, second = byte_ids(trained, "é".encode())
    (end,) = trained.encode("<|end|>")
    assert "".join(stream(trained, [first, end, second])) == "é"
    assert "".join(stream(trained, [first, end, second], skip_special_tokens=False)) == "\ufffd<|end|>\ufffd"


def test_ids_outside_the_vocabulary_have_no_text(trained: Tokenizer) -> None:
    outside = [trained.vocab_size, trained.vocab_size + 1000, 2**31, -1]
    ids = [*outside, *trained.encode("ok"), *outside]
    assert "".join(stream(trained, ids, prompt_ids=outside)) == "ok"
    assert [trained.token_bytes(token_id) for token_id in outside] == [b""] * 4
    assert [trained.id_to_token(token_id) for token_id in outside] == [None] * 4


def test_a_stream_ends_once(trained: Tokenizer) -> None:
    detokenizer = IncrementalDetokenizer(trained)
    assert detokenizer.flush() == ""
    with pytest.raises(AssertionError, match="push after flush"):
        detokenizer.push([1])
    with pytest.raises(AssertionError, match="flush twice"):
        detokenizer.flush()
