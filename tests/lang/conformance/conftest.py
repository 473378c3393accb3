"""A real engine for the suite: its model is a script that spells the alphabet, its tokenizer is made on the spot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def alphabet_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Any]]:
    """Gives an engine whose next token is always the letter that its number of tokens names."""
    tokenizers = pytest.importorskip("tokenizers")
    from ramet import Engine
    from ramet.execute.scripted import ScriptedRunner
    from ramet.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(_byte_tokenizer(tokenizers, tmp_path_factory.mktemp("tokenizer")))
    letters = [tokenizer.encode(chr(ord("a") + i))[0] for i in range(26)]

    def next_id(tokens: Sequence[int]) -> int:
        return letters[len(tokens) % 26]

    engine = Engine(runner=ScriptedRunner(tokenizer.vocab_size, next_id), tokenizer=tokenizer)
    yield lambda: engine
    engine.shutdown()


def _byte_tokenizer(tokenizers: Any, folder: Path) -> Path:
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=258, special_tokens=["<eos>", "<pad>"], initial_alphabet=alphabet, show_progress=False
    )
    model.train_from_iterator(["a b"], trainer)
    model.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<eos>", "pad_token": "<pad>"}')
    return folder
