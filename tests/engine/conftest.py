from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
import tokenizers

from ramet import Engine
from ramet.execute.scripted import ScriptedRunner
from ramet.tokenizer import Tokenizer, load_tokenizer

NextId = Callable[[Sequence[int]], int | None]


@pytest.fixture(scope="session")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A byte-level tokenizer with a few merges: most characters beyond ASCII take two tokens or more; <eos> is the only special one."""
    folder = tmp_path_factory.mktemp("tokenizer")
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<eos>", "<pad>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(["the river is danube today and the hen did cross when it rained all done"] * 3, trainer)
    model.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<eos>", "pad_token": "<pad>"}')
    return load_tokenizer(folder)


@pytest.fixture
def make_engine(byte_tokenizer: Tokenizer) -> Iterator[Callable[..., Engine]]:
    """Engines over a scripted runner; all are shut down, and every slot is back, at the end of the test."""
    made: list[Engine] = []

    def make(next_id: NextId | None = None, *, num_slots: int = 4096, context_len: int = 2048, **options: Any) -> Engine:
        runner = ScriptedRunner(byte_tokenizer.vocab_size, next_id or (lambda tokens: None), num_slots=num_slots, context_len=context_len)
        engine = Engine(runner=runner, tokenizer=byte_tokenizer, **options)
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.shutdown()
        core = engine._core
        if not core.has_work:
            core.check()
            core.flush()
            assert core.scheduler.cache.slots.num_free == core.scheduler.cache.num_slots


@pytest.fixture
def say(byte_tokenizer: Tokenizer) -> Callable[..., NextId]:
    """`say(prompt, text)`: a script that answers a prompt with a text, then <eos>."""

    def script(prompt: str | Sequence[int], text: str, *, by_character: bool = False) -> NextId:
        ids = byte_tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        answer = [i for c in text for i in byte_tokenizer.encode(c)] if by_character else byte_tokenizer.encode(text)
        eos = byte_tokenizer.eos_token_ids[0]

        def next_id(tokens: Sequence[int]) -> int | None:
            done = len(tokens) - len(ids)
            if done < 0 or list(tokens[: len(ids)]) != ids:
                return None
            return answer[done] if done < len(answer) else eos

        return next_id

    return script
