"""What healing writes is the beginning of the encoding of every text that matches, whatever the text goes on with."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ramet.config import ModelOptions
from ramet.constraint.canonical import Canonical
from ramet.constraint.compile import compile_constraint
from ramet.constraint.jump import MAX_JUMP_BYTES, Jumper, num_shared
from ramet.constraint.vocabulary import Vocabulary
from ramet.tokenizer import Tokenizer, load_tokenizer
from ramet.tokenizer.continuation import Continuation, UnknownContext
from ramet.weights import resolve_model

STORIES = Path(__file__).resolve().parents[2].parent / "shared" / "models" / "stories260k"
PATTERNS = [
    r"the river is (danube|deep|done)\.",
    r"(today|tomorrow)?the hen( did)? cross(es|ed)? all",
    r'\{"name": "[a-e]{1,4}", "did": (true|false), "x": [0-9]{1,3}\}',
    r"\n    (a|b|  c)\n\n  (x| y|\n)",
    r'\["(娃领|娇领|娱领)"\](é|è)?',
    r"(don't|don's|don t) [A-Z]{1,2}'(s|ll|x)",
    r"  ( |a|1|\")  (x|  y)",
]
PROMPTS = ["", "the", "x\n", "a  ", "the river", "tom's"]


@pytest.fixture(scope="module", params=["smollm2", "stories260k"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "smollm2":
        return load_tokenizer(resolve_model(ModelOptions()))
    if not STORIES.exists():
        pytest.skip("the folder of models is not there")
    return load_tokenizer(resolve_model(ModelOptions(model_path=str(STORIES))))


def completions(pattern: str, rng: random.Random, count: int) -> list[bytes]:
    """Random texts that match, drawn byte by byte."""
    automaton = compile_constraint("regex", pattern, Vocabulary([bytes([b]) for b in range(256)])).automaton  # type: ignore[attr-defined]
    texts = []
    for _ in range(count):
        state, text = 0, b""
        while not automaton.is_accepting(state) or (automaton.next_bytes(state) and rng.random() < 0.7):
            low, high = rng.choice(automaton.next_bytes(state))
            byte = rng.randint(low, high)
            text += bytes([byte])
            state = automaton.step(state, byte)
        texts.append(text)
    return texts


def test_healed_ids_begin_every_encoding(tokenizer: Tokenizer) -> None:
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    continuation = Continuation(tokenizer)
    jumper = Jumper(vocabulary, continuation)
    rng = random.Random(7)
    num_written = 0
    for pattern in PATTERNS:
        compiled = compile_constraint("regex", pattern, vocabulary)
        for prompt in PROMPTS:
            left = tokenizer.encode(prompt) if prompt else []
            for text in completions(pattern, rng, 6):
                try:
                    whole = continuation.encode(left, text)
                except UnknownContext:
                    continue
                if whole is None:
                    continue
                matcher, done = compiled.matcher(), 0
                while True:
                    ids = jumper.heal([*left, *whole[:done]], matcher)
                    assert whole[done : done + len(ids)] == list(ids), (pattern, prompt, text, whole, done, ids)
                    num_written += len(ids)
                    for token_id in ids:
                        matcher.accept(token_id)
                    done += len(ids)
                    if done == len(whole):
                        break
                    matcher.accept(whole[done])
                    done += 1
                    if done == len(whole):
                        break
    assert num_written > 500


def test_the_tokens_of_an_encoding_are_canonical_and_others_are_not(tokenizer: Tokenizer) -> None:
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    continuation = Continuation(tokenizer)
    canonical = Canonical(vocabulary, continuation, Jumper(vocabulary, continuation))
    rng = random.Random(11)
    num_refused = 0
    for pattern in PATTERNS:
        compiled = compile_constraint("regex", pattern, vocabulary)
        left = tokenizer.encode("x\n")
        for text in completions(pattern, rng, 6):
            whole = continuation.encode(left, text)
            if whole is None:
                continue  # it grows into the prompt's last token
            assert canonical.num_noncanonical(left, whole) == 0
            matcher = compiled.matcher()
            for done, token_id in enumerate(whole):
                before = [*left, *whole[:done]]
                assert canonical.allows(before, matcher, token_id), (pattern, text, whole, done)
                assert matcher.num_accepted == done, "the matcher is where it was"
                mask = matcher.mask()
                assert mask is not None
                for other in mask.nonzero()[:, 0].tolist()[:20]:
                    rest = vocabulary.piece(token_id)
                    if len(vocabulary.piece(other)) < len(rest) and rest.startswith(vocabulary.piece(other)) and rest.isascii():
                        # A shorter token of the same text: wrong unless the text may go on otherwise behind it.
                        num_refused += not canonical.allows(before, matcher, other)
                matcher.accept(token_id)
    assert num_refused > 20


def test_counts_of_what_is_not_canonical(tokenizer: Tokenizer) -> None:
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    continuation = Continuation(tokenizer)
    canonical = Canonical(vocabulary, continuation, Jumper(vocabulary, continuation))
    left = tokenizer.encode("x\n")
    whole = continuation.encode(left, b"the river is deep")
    assert whole is not None
    letters = [next(i for i, piece in enumerate(vocabulary.pieces) if piece == bytes([byte])) for byte in b"the"]
    rest = continuation.encode([*left, *whole[:1]], b" river is deep")
    assert rest is not None and vocabulary.piece(whole[0]) in (b"the", b"th", b"t")
    if vocabulary.piece(whole[0]) == b"the":
        assert canonical.num_noncanonical(left, [*letters, *rest]) == 3
    assert canonical.num_noncanonical(left, [*whole, *tokenizer.eos_token_ids[:1]]) == 0
    assert canonical.num_noncanonical(left, []) == 0


def test_retokenize_gives_the_whole_encoding(tokenizer: Tokenizer) -> None:
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    continuation = Continuation(tokenizer)
    jumper = Jumper(vocabulary, continuation)
    left = tokenizer.encode("x\n")
    compiled = compile_constraint("regex", "th(e river is deep|at)", vocabulary)
    output = [next(i for i, piece in enumerate(vocabulary.pieces) if piece == bytes([byte])) for byte in b"the"]
    matcher = compiled.matcher()
    for token_id in output:
        matcher.accept(token_id)
    num_kept, ids = jumper.retokenize(left, output, matcher)
    assert [*output[:num_kept], *ids] == continuation.encode(left, b"the river is deep")
    assert num_kept == num_shared(output, continuation.encode(left, b"the river is deep") or [])


def test_a_jump_is_bounded(tokenizer: Tokenizer) -> None:
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    jumper = Jumper(vocabulary, Continuation(tokenizer))
    matcher = compile_constraint("regex", "(ab){5000}", vocabulary).matcher()
    left = tokenizer.encode("x\n")
    ids = jumper.heal(left, matcher)
    assert 0 < sum(len(vocabulary.piece(i)) for i in ids) <= MAX_JUMP_BYTES


def test_what_cannot_be_judged() -> None:
    tokenizer = load_tokenizer(resolve_model(ModelOptions()))
    continuation = Continuation(tokenizer)
    split = [next(i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == bytes([byte])) for byte in b"th"]
    with pytest.raises(UnknownContext):
        continuation.encode([*tokenizer.encode("x\n"), *split], b"e river")
    assert continuation.encode(tokenizer.encode("x\nth"), b"e river") is None
