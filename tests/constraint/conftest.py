"""Small vocabularies."""

from __future__ import annotations

import random

import pytest

from ramet.constraint.vocabulary import Vocabulary


def make_vocabulary(seed: int, num_tokens: int = 400, **options: object) -> Vocabulary:
    """All bytes, random pieces of text (some cut inside a character, some twice), a special token, an id without text, padding."""
    rng = random.Random(seed)
    text = 'ab "abc" 12.5, {"a": true} été 日本語 😀🙂 \n--aaa bbb 0123456789 yes no Yes' * 2
    data = text.encode()
    pieces = [bytes([byte]) for byte in range(256)]
    while len(pieces) < num_tokens:
        start = rng.randrange(len(data))
        pieces.append(data[start : start + rng.randint(2, 9)])
    pieces += [b"<|end|>", b"<|user|>", b""]
    return Vocabulary(pieces, eos_ids=(num_tokens,), special_ids=(num_tokens, num_tokens + 1), width=num_tokens + 10, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return make_vocabulary(0)
