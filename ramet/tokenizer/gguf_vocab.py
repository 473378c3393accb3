"""A tokenizer from the vocabulary inside a GGUF file.

GGUF names the pre-tokenizer (`tokenizer.ggml.pre`) instead of describing it; the rows of `PRE_TOKENIZERS` spell out what each name means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from ramet.errors import TokenizerError
from ramet.tokenizer.token_bytes import SPACE_MARK
from ramet.tokenizer.tokenizer import Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5  # tokenizer.ggml.token_type

_GPT2_WORDS: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How a byte-level vocabulary cuts text into words before merging.

    `cuts` are regular expressions applied one after another; every match stands alone. Without any, GPT-2's own rule is used.
    """

    cuts: tuple[str, ...] = ()
    single_digits: bool = False
    is_nfc: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False  # when tokenizer.ggml.add_bos_token is absent

    def build(self) -> pre_tokenizers.PreTokenizer:
        """The steps as the library's objects."""
        steps: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.Digits(individual_digits=True)] if self.single_digits else []
        steps += [pre_tokenizers.Split(Regex(cut), behavior="isolated") for cut in self.cuts]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not self.cuts))
        return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)


_LLAMA3: Final = PreTokenizer(cuts=(_LLAMA3_WORDS,), ignore_merges=True, adds_bos=True)
PRE_TOKENIZERS: Final[Mapping[str, PreTokenizer]] = {
    "gpt-2": PreTokenizer(),
    "smollm": PreTokenizer(single_digits=True),
    "qwen2": PreTokenizer(cuts=(_LLAMA3_WORDS.replace("{1,3}", ""),), is_nfc=True),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "default": PreTokenizer(cuts=(r"[\p{P}\$\+<=>\^~\|]+", _GPT2_WORDS, r"\p{N}+", r"[0-9][0-9][0-9]")),
}


def tokenizer_from_gguf(metadata: Mapping[str, Any], name: str) -> Tokenizer:
    """Build the tokenizer that a GGUF file's metadata describes; `name` is the file's, for errors.

    Reads byte-level BPE (`gpt2`) and SentencePiece BPE with scores (`llama`). Raises TokenizerError for other kinds, for an unknown
    `tokenizer.ggml.pre`, and for a vocabulary that contradicts itself.
    """
    kind = metadata.get("tokenizer.ggml.model")
    tokens: list[str] = metadata.get("tokenizer.ggml.tokens", [])
    if not tokens:
        raise TokenizerError(f"{name} holds no vocabulary: give a folder with tokenizer.json as tokenizer_path")
    types: list[int] = metadata.get("tokenizer.ggml.token_type", [_NORMAL] * len(tokens))
    if len(types) != len(tokens):
        raise TokenizerError(f"{name}: {len(tokens)} tokens but {len(types)} token types")
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        twice = next(token for token_id, token in enumerate(tokens) if vocab[token] != token_id)
        raise TokenizerError(f"{name}: the token {twice!r} stands in the vocabulary twice")
    if kind == "gpt2":
        backend, adds_bos = _byte_level(metadata, vocab, name)
    elif kind == "llama":
        backend, adds_bos = _sentencepiece(metadata, vocab, types, name)
    else:
        raise TokenizerError(f"{name}: tokenizer.ggml.model {kind!r} is not read (gpt2 and llama are): give a tokenizer_path")
    for type_id in (_UNKNOWN, _CONTROL, _USER_DEFINED):
        added = [token for token, token_type in zip(tokens, types, strict=True) if token_type == type_id]
        backend.add_tokens([AddedToken(token, special=type_id != _USER_DEFINED, normalized=False) for token in added])
    ids = {role: _role_id(metadata, role, len(tokens), name) for role in ("bos", "eos", "eot", "eom")}
    _add_post_processor(backend, metadata, tokens, ids, adds_bos)
    ends = dict.fromkeys(token_id for role in ("eos", "eot", "eom") if (token_id := ids[role]) is not None)
    return Tokenizer(
        backend,
        bos_token_id=ids["bos"],
        eos_token_ids=tuple(ends),
        chat_template=metadata.get("tokenizer.chat_template"),
        unused_ids=frozenset(token_id for token_id, token_type in enumerate(types) if token_type == _UNUSED),
    )


def _byte_level(metadata: Mapping[str, Any], vocab: dict[str, int], name: str) -> tuple[Backend, bool]:
    pre = metadata.get("tokenizer.ggml.pre", "default")
    if pre not in PRE_TOKENIZERS:
        raise TokenizerError(
            f"{name}: tokenizer.ggml.pre {pre!r} is unknown (known: {', '.join(sorted(PRE_TOKENIZERS))}): "
            "give a folder with tokenizer.json as tokenizer_path"
        )
    rule = PRE_TOKENIZERS[pre]
    merges = []
    for merge in metadata.get("tokenizer.ggml.merges", []):
        left, _, right = merge.partition(" ")
        merges.append((left, right))
    backend = _merging(name, vocab, merges, ignore_merges=rule.ignore_merges)
    if rule.is_nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = rule.build()
    backend.decoder = decoders.ByteLevel()
    return backend, rule.adds_bos


def _sentencepiece(metadata: Mapping[str, Any], vocab: dict[str, int], types: Sequence[int], name: str) -> tuple[Backend, bool]:
    scores = metadata.get("tokenizer.ggml.scores", [])
    if len(scores) != len(vocab):
        raise TokenizerError(f"{name}: {len(vocab)} tokens but {len(scores)} scores")
    unknown_id = _role_id(metadata, "unknown", len(vocab), name)
    unknown = None if unknown_id is None else metadata["tokenizer.ggml.tokens"][unknown_id]
    merges = _merges_of_scores(vocab, types, scores)
    backend = _merging(name, vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    steps = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    mark_spaces: normalizers.Normalizer = normalizers.Replace(" ", SPACE_MARK)
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        mark_spaces = normalizers.Sequence([normalizers.Prepend(SPACE_MARK), mark_spaces])
        steps.append(decoders.Strip(" ", 1, 0))
    backend.normalizer = mark_spaces
    backend.decoder = decoders.Sequence(steps)
    return backend, True


def _merging(name: str, vocab: dict[str, int], merges: list[tuple[str, str]], **options: Any) -> Backend:
    try:
        return Backend(models.BPE(vocab, merges, **options))
    except Exception as error:  # the library raises bare Exception when merges and vocabulary do not fit together
        raise TokenizerError(f"{name}: {error}") from error


def _merges_of_scores(vocab: Mapping[str, int], types: Sequence[int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Merge rules, best first, that do what SentencePiece does: of all neighbours that form a word, join those of the best score."""
    words = {token: token_id for token, token_id in vocab.items() if types[token_id] in (_NORMAL, _USER_DEFINED)}
    ranked = sorted((token for token in words if types[words[token]] == _NORMAL), key=lambda token: -scores[words[token]])
    merges = []
    for token in ranked:
        splits = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [pair for pair in splits if pair[0] in words and pair[1] in words]
        merges += sorted(known, key=lambda pair: (words[pair[0]], words[pair[1]]))
    return merges


def _role_id(metadata: Mapping[str, Any], role: str, num_tokens: int, name: str) -> int | None:
    token_id = metadata.get(f"tokenizer.ggml.{role}_token_id")
    if token_id is not None and not 0 <= token_id < num_tokens:
        raise TokenizerError(f"{name}: the {role} token is {token_id}, outside the vocabulary of {num_tokens}")
    return token_id


def _add_post_processor(
    backend: Backend, metadata: Mapping[str, Any], tokens: Sequence[str], ids: Mapping[str, int | None], adds_bos: bool
) -> None:
    before = ids["bos"] if metadata.get("tokenizer.ggml.add_bos_token", adds_bos) else None
    after = ids["eos"] if metadata.get("tokenizer.ggml.add_eos_token", False) else None
    around = [token_id for token_id in (before, after) if token_id is not None]
    if not around:
        return
    # The template's own syntax reserves characters that token names hold, so its tokens are called by number.
    single = [f"t{before}"] * (before is not None) + ["$A"] + [f"t{after}"] * (after is not None)
    backend.post_processor = processors.TemplateProcessing(
        single=single, pair=None, special_tokens=[{"id": f"t{i}", "ids": [i], "tokens": [tokens[i]]} for i in set(around)]
    )
