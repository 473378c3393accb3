"""Where tokenizers come from: folders in the Hub's layout and vocabularies inside GGUF files."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, pre_tokenizers

from ramet.errors import InvalidRequest, TokenizerError
from ramet.tokenizer import Tokenizer, load_tokenizer
from ramet.tokenizer.gguf_header import GgufHeader, read_gguf_header
from ramet.tokenizer.gguf_vocab import PRE_TOKENIZERS, tokenizer_from_gguf

SHAPES = Path(__file__).resolve().parents[2].parent / "shared" / "models" / "shapes"
TEXT = "Hello  12345 world's end!\n\n  def f(x): return 1\t🙂 天地 e\u0301 don't WE'LL x² ½ $5.00 <=>\r\n"


def folder_with(path: Path, backend: tokenizers.Tokenizer, **config: Any) -> Path:
    backend.save(str(path / "tokenizer.json"))
    if config:
        (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.fixture
def byte_level(trained: Tokenizer) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(trained._backend.to_str())


# Folders


def test_folder(tmp_path: Path, byte_level: tokenizers.Tokenizer) -> None:
    config = {"eos_token": {"content": "<|end|>"}, "bos_token": None, "chat_template": "{{ messages }}"}
    tokenizer = load_tokenizer(folder_with(tmp_path, byte_level, **config))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.eos_token_ids) == (None, 0, (0,))
    assert tokenizer.chat_template == "{{ messages }}"
    assert tokenizer.special_ids == {0, 1}
    assert tokenizer.vocab_size == byte_level.get_vocab_size()
    assert (tokenizer.id_to_token(0), tokenizer.token_to_id("<|user|>"), tokenizer.token_to_id("nothing here")) == ("<|end|>", 1, None)
    same = load_tokenizer(str(tmp_path / "tokenizer.json"))
    assert same.encode(TEXT) == tokenizer.encode(TEXT) == byte_level.encode(TEXT).ids


def test_resolved_files(tmp_path: Path, byte_level: tokenizers.Tokenizer) -> None:
    @dataclass
    class Files:
        tokenizer_path: Path
        gguf: GgufHeader | None = None

    assert load_tokenizer(Files(folder_with(tmp_path, byte_level))).vocab_size == byte_level.get_vocab_size()


def test_a_folder_without_settings(tmp_path: Path, byte_level: tokenizers.Tokenizer) -> None:
    tokenizer = load_tokenizer(folder_with(tmp_path, byte_level))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.eos_token_ids, tokenizer.chat_template) == (None, None, (), None)


def test_padding_and_truncation_of_the_file_are_off(tmp_path: Path, byte_level: tokenizers.Tokenizer) -> None:
    byte_level.enable_padding(length=50)
    byte_level.enable_truncation(3)
    assert len(load_tokenizer(folder_with(tmp_path, byte_level)).encode("a b c d e f g")) not in (3, 50)


def test_tokens_of_the_settings_are_added(tmp_path: Path, byte_level: tokenizers.Tokenizer) -> None:
    next_id = byte_level.get_vocab_size()
    listed = {
        "0": {"content": "<|end|>", "special": True},
        str(next_id + 1): {"content": "<word>", "special": False},
        str(next_id): {"content": "<|tool|>", "special": True},
    }
    tokenizer = load_tokenizer(folder_with(tmp_path, byte_level, added_tokens_decoder=listed))
    assert tokenizer.encode("<|tool|><word>") == [next_id, next_id + 1]
    assert tokenizer.special_ids == {0, 1, next_id}
    assert tokenizer.decode([next_id, next_id + 1]) == "<word>"


@pytest.mark.parametrize("place", ["tokenizer_config.json", "special_tokens_map.json"])
def test_a_role_makes_a_word_special(tmp_path: Path, byte_level: tokenizers.Tokenizer, place: str) -> None:
    folder_with(tmp_path, byte_level)
    (tmp_path / place).write_text(json.dumps({"eos_token": "Ġfox", "pad_token": "[PAD]", "additional_special_tokens": ["Ġdog"]}))
    ids = {byte_level.token_to_id("Ġfox"), byte_level.token_to_id("Ġdog")}
    assert None not in ids, "the corpus of the trained vocabulary holds both words"
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.special_ids == {0, 1} | ids
    assert tokenizer.eos_token_id == byte_level.token_to_id("Ġfox")
    assert tokenizer.vocab_size == byte_level.get_vocab_size()  # [PAD] is not in the model: no row is invented


def test_chat_template_files(tmp_path: Path, byte_level: tokenizers.Tokenizer) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    folder_with(tmp_path, byte_level, chat_template=named)
    assert load_tokenizer(tmp_path).chat_template == "D"
    (tmp_path / "chat_template.jinja").write_text("J")
    assert load_tokenizer(tmp_path).chat_template == "J"


def nothing(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def only_sentencepiece(folder: Path) -> None:
    nothing(folder)
    (folder / "tokenizer.model").write_bytes(b"x")


def broken_json(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")


def settings_of(content: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "tokenizer_config.json").write_text(content)

    return write


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (nothing, "has no tokenizer.json; give the place of one as tokenizer_path"),
        (only_sentencepiece, r"only tokenizer\.model: save it once with transformers"),
        (broken_json, r"tokenizer\.json cannot be read"),
        (settings_of("{"), "is not JSON"),
        (settings_of("[]"), "holds a list"),
        (settings_of('{"eos_token": "<nowhere>"}'), "eos_token is '<nowhere>'"),
        (settings_of('{"added_tokens_decoder": {"7": {"content": "<|new|>"}}}'), "gives '<|new|>' the id 7"),
        (settings_of('{"chat_template": [{"name": "rag", "template": "R"}]}'), "has rag and no 'default'"),
    ],
)
def test_folders_refused(tmp_path: Path, byte_level: tokenizers.Tokenizer, spoil: Callable[[Path], None], why: str) -> None:
    spoil(folder_with(tmp_path, byte_level))
    with pytest.raises(TokenizerError, match=why.replace("|", r"\|")):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["no-such-folder", "no-such.gguf", "no-such-folder/tokenizer.json"])
def test_places_that_do_not_exist(tmp_path: Path, name: str) -> None:
    with pytest.raises(TokenizerError, match="tokenizer_path"):
        load_tokenizer(tmp_path / name)


# Encoding


def test_special_names_in_text_become_special_tokens(smollm2: Tokenizer) -> None:
    ids = smollm2.encode("<|im_start|>user\nHi<|im_end|>")
    assert (ids[0], ids[-1], len(ids)) == (1, 2, 5)
    assert smollm2.decode(ids) == "user\nHi"
    assert smollm2.decode(ids, skip_special_tokens=False) == "<|im_start|>user\nHi<|im_end|>"


def test_encode_from_many_threads(smollm2: Tokenizer) -> None:
    texts = [f"{TEXT} {number}" for number in range(200)]
    alone = [smollm2.encode(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(smollm2.encode, texts)) == alone
    assert smollm2.encode_batch(texts) == alone
    assert smollm2.encode_batch([]) == []


def test_half_of_a_surrogate_pair_is_refused(trained: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match=r"'\\ud83d' at character 2"):
        trained.encode("ok\ud83d")


# GGUF


def test_smollm2_facts(smollm2: Tokenizer) -> None:
    assert (smollm2.vocab_size, smollm2.bos_token_id, smollm2.eos_token_id, smollm2.eos_token_ids) == (49152, 1, 2, (2,))
    assert len(smollm2.special_ids) == 17
    assert smollm2.chat_template is not None and smollm2.encode("a") == smollm2.encode("a", add_special_tokens=False)


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.text(max_size=30), st.text("a1 2\n'sé", max_size=30)))
def test_smollm2_cuts_as_its_own_tokenizer(smollm2: Tokenizer, smollm2_backend: tokenizers.Tokenizer, text: str) -> None:
    assert smollm2.encode(text) == smollm2_backend.encode(text).ids


@pytest.fixture(scope="session")
def smollm2_backend(smollm2_file: Path) -> tokenizers.Tokenizer:
    """Built as the model's card says, without our code."""
    metadata = read_gguf_header(smollm2_file).metadata
    vocab = {token: index for index, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    backend = tokenizers.Tokenizer(models.BPE(vocab, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    backend.decoder = decoders.ByteLevel()
    types = metadata["tokenizer.ggml.token_type"]
    backend.add_special_tokens([token for token, index in vocab.items() if types[index] == 3])
    return backend


def gpt2_metadata(pre: str | None = "gpt-2", **changes: Any) -> dict[str, Any]:
    """The metadata of a small byte-level vocabulary: all bytes, a few merges, one control, one user-defined, one unused token."""
    words = ["<|end|>", "<w d>", "[unused]", *sorted(pre_tokenizers.ByteLevel.alphabet()), "he", "ll", "hell", "12", "Ġ1"]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [3, 4, 5] + [1] * (len(words) - 3),
        "tokenizer.ggml.merges": ["h e", "l l", "he ll", "1 2", "Ġ 1"],
        "tokenizer.ggml.eos_token_id": 0,
    }
    metadata |= {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return {key: value for key, value in metadata.items() if value is not None}


def test_kinds_of_tokens() -> None:
    tokenizer = tokenizer_from_gguf(gpt2_metadata(), "m.gguf")
    assert tokenizer.special_ids == {0, 2}
    assert tokenizer.encode("<|end|><w d>") == [0, 1]
    assert tokenizer.decode([0, 1, 2]) == "<w d>"
    assert 2 not in tokenizer.encode("[unused]")
    assert [tokenizer.id_to_token(token_id) for token_id in tokenizer.encode("hello")] == ["hell", "o"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "a"),
        ({"add_bos_token": True, "bos_token_id": 0}, "<|end|>a"),
        ({"add_eos_token": True}, "a<|end|>"),
        ({"add_bos_token": False, "bos_token_id": 0, "pre": "llama-bpe"}, "a"),
        ({"bos_token_id": 0, "pre": "llama-bpe"}, "<|end|>a"),  # the default of that kind
        ({"add_bos_token": True, "bos_token_id": 0, "add_eos_token": True}, "<|end|>a<|end|>"),
        ({"add_bos_token": True}, "a"),  # there is none to add
    ],
)
def test_bos_and_eos_as_the_file_says(changes: dict[str, Any], expected: str) -> None:
    tokenizer = tokenizer_from_gguf(gpt2_metadata(**changes), "m.gguf")
    assert tokenizer.decode(tokenizer.encode("a"), skip_special_tokens=False) == expected
    assert tokenizer.decode(tokenizer.encode("a", add_special_tokens=False), skip_special_tokens=False) == "a"


def test_every_end_the_file_names() -> None:
    tokenizer = tokenizer_from_gguf(gpt2_metadata(eot_token_id=5, eom_token_id=0), "m.gguf")
    assert tokenizer.eos_token_ids == (0, 5)


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("gpt-2", "it's 1234  x", ["it", "'s", "Ġ1234", "Ġ", "Ġx"]),
        ("smollm", "it's 1234  x", ["it", "'s", "Ġ", "1", "2", "3", "4", "Ġ", "Ġx"]),
        ("smollm", "a  1", ["a", "ĠĠ", "1"]),
        ("llama-bpe", "IT'S 1234  x\n\n", ["IT", "'S", "Ġ", "123", "4", "Ġ", "Ġx", "ĊĊ"]),
        ("llama3", "12345", ["123", "45"]),
        ("qwen2", "IT'S 12  (x)", ["IT", "'S", "Ġ", "1", "2", "Ġ", "Ġ(", "x", ")"]),
        ("qwen2", "e\u0301", ["Ã©"]),  # NFC, as the model's own tokenizer does
        ("default", "it's 1234!", ["it", "'", "s", "Ġ", "123", "4", "!"]),
        (None, "it's 1234!", ["it", "'", "s", "Ġ", "123", "4", "!"]),
    ],
)
def test_words_before_merging(pre: str | None, text: str, expected: list[str]) -> None:
    backend = tokenizer_from_gguf(gpt2_metadata(pre), "m.gguf")._backend
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    assert backend.pre_tokenizer is not None
    assert [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)] == expected


@pytest.mark.parametrize("pattern", sorted({cut for rule in PRE_TOKENIZERS.values() for cut in rule.cuts}))
def test_patterns_compile(pattern: str) -> None:
    pieces = pre_tokenizers.Split(Regex(pattern), behavior="isolated").pre_tokenize_str(TEXT)
    assert "".join(piece for piece, _ in pieces) == TEXT


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"pre": "nobody-knows"}, "tokenizer.ggml.pre 'nobody-knows' is unknown"),
        ({"model": "bert"}, "tokenizer.ggml.model 'bert' is not read"),
        ({"model": None}, "tokenizer.ggml.model None is not read"),
        ({"tokens": None}, "holds no vocabulary"),
        ({"token_type": [1]}, "1 token types"),
        ({"merges": ["no such"]}, "m.gguf"),
        ({"eos_token_id": 100000}, "the eos token is 100000"),
        ({"tokens": ["a", "a"], "token_type": [1, 1], "eos_token_id": 0}, "'a' stands in the vocabulary twice"),
        ({"model": "llama"}, "0 scores"),
    ],
)
def test_vocabularies_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(TokenizerError, match=why):
        tokenizer_from_gguf(gpt2_metadata(**changes), "m.gguf")


@pytest.fixture(scope="session")
def mistral() -> tuple[Tokenizer, Tokenizer]:
    """Mistral's vocabulary from its tokenizer.json, and from GGUF metadata with SentencePiece's scores."""
    if not (SHAPES / "tokenizer.json").is_file():
        pytest.skip("shared/models/shapes is not beside the checkout")
    content = json.loads((SHAPES / "tokenizer.json").read_text())
    words = sorted(content["model"]["vocab"], key=content["model"]["vocab"].__getitem__)
    ranks: dict[str, int] = {}  # runs of spaces come first by id and last by score, so ids would not do
    for rank, merge in enumerate(content["model"]["merges"]):
        ranks.setdefault("".join(merge.split(" ") if isinstance(merge, str) else merge), rank)
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (len(words) - 259),
        "tokenizer.ggml.scores": [float(-ranks.get(word, 10**6)) for word in words],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return load_tokenizer(SHAPES), tokenizer_from_gguf(metadata, "mistral.gguf")


@settings(max_examples=100, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.text(max_size=30), st.text("abcdefgh  \n", max_size=60), st.just(TEXT), st.just("")))
def test_sentencepiece_scores_give_the_same_ids_as_merges(mistral: tuple[Tokenizer, Tokenizer], text: str) -> None:
    own, from_scores = mistral
    ids = from_scores.encode(text)
    assert ids == own.encode(text)
    assert ids[0] == 1  # BOS, the default of that kind
    assert from_scores.decode(ids) == own.decode(ids)


def test_sentencepiece_words_of_real_text(mistral: tuple[Tokenizer, Tokenizer]) -> None:
    own, from_scores = mistral
    text = Path(__file__).read_text()
    assert from_scores.encode(text) == own.encode(text)


def test_sentencepiece_without_a_first_space() -> None:
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁a"]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 3,
        "tokenizer.ggml.scores": [0.0] * 261 + [-1.0],
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.ggml.add_bos_token": False,
    }
    tokenizer = tokenizer_from_gguf(metadata, "m.gguf")
    assert [tokenizer.id_to_token(token_id) for token_id in tokenizer.encode("a a")] == ["a", "▁a"]
    assert tokenizer.decode(tokenizer.encode(" a")) == " a"


def test_a_file_of_the_library(tmp_path: Path) -> None:
    metadata = gpt2_metadata()
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(metadata["tokenizer.ggml.tokens"])
    writer.add_token_types(metadata["tokenizer.ggml.token_type"])
    writer.add_token_merges(metadata["tokenizer.ggml.merges"])
    writer.add_eos_token_id(0)
    writer.add_chat_template("{{ 1 }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    tokenizer = load_tokenizer(tmp_path / "m.gguf")
    assert tokenizer.encode(TEXT) == tokenizer_from_gguf(metadata, "m").encode(TEXT)
    assert (tokenizer.chat_template, tokenizer.eos_token_id) == ("{{ 1 }}", 0)
