"""What bench/constraint.py compares: our constraints, llguidance and xgrammar behind one face, over the same vocabulary."""

from __future__ import annotations

import base64
import importlib.metadata
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import regex
import torch
from numpy.typing import NDArray

import ramet
from ramet.config import ModelOptions
from ramet.constraint.compile import compile_constraint
from ramet.constraint.compiled import AutomatonConstraint
from ramet.constraint.vocabulary import Vocabulary
from ramet.tokenizer import load_tokenizer
from ramet.weights import resolve_model

NUM_TEKKEN_SPECIAL, TEKKEN_EOS = 1000, 2
LARGE_PACKAGE, LARGE_FILE = "mistral_common", "data/tekken_240911.json"


class SideFailed(Exception):
    """This side cannot do what the others do; the message is for the table."""


@dataclass(frozen=True, slots=True)
class Words:
    """A vocabulary to measure over: how it is called, what its tokens are, and how a text is cut into them.

    `to_llguidance` makes llguidance's own tokenizer of it (it encodes forced text while it works out masks, so it must not wait for ours).
    """

    name: str
    vocabulary: Vocabulary
    encode: Callable[[str], list[int]]
    to_llguidance: Callable[[], Any]


class Batch(Protocol):
    """Matchers of one constraint, all at the start at first."""

    def fill(self, index: int) -> None:
        """The mask of one matcher."""

    def fill_all(self) -> None:
        """The masks of all, one after the other."""

    def fill_parallel(self) -> None:
        """The masks of all in the side's own way for a batch, which may use threads."""

    def accept_all(self, token_ids: Sequence[int]) -> None:
        """A token each. Raises SideFailed when one is not allowed."""

    def accept(self, index: int, token_id: int) -> None:
        """A token for one matcher. Raises SideFailed when it is not allowed."""

    def restart(self, index: int) -> None:
        """Put one matcher back to the start."""

    def allowed(self, index: int) -> NDArray[np.bool_]:
        """The mask that was filled last, bool [vocabulary]."""


class Side(Protocol):
    """One engine; what it must know about the vocabulary is worked out when it is made."""

    name: str
    version: str

    def compile(self, pattern: str) -> Any:
        """A compiled pattern, made anew at every call. Raises SideFailed."""

    def batch(self, compiled: Any, size: int) -> Batch:
        """Matchers over it."""


class OurBatch:
    """Rows are looked up and shared, so nothing is written."""

    def __init__(self, compiled: AutomatonConstraint, size: int) -> None:
        self._compiled = compiled
        self.matchers = [compiled.matcher() for _ in range(size)]
        self.rows: list[torch.Tensor | None] = [None] * size

    def fill(self, index: int) -> None:
        self.rows[index] = self.matchers[index].mask()

    def fill_all(self) -> None:
        self.rows = [matcher.mask() for matcher in self.matchers]

    def fill_parallel(self) -> None:
        """All rows copied into one tensor, as a sampler on the CPU takes them."""
        torch.stack([row for matcher in self.matchers if (row := matcher.mask()) is not None])

    def accept_all(self, token_ids: Sequence[int]) -> None:
        for matcher, token_id in zip(self.matchers, token_ids, strict=True):
            matcher.accept(token_id)

    def accept(self, index: int, token_id: int) -> None:
        self.matchers[index].accept(token_id)

    def restart(self, index: int) -> None:
        self.matchers[index] = self._compiled.matcher()

    def allowed(self, index: int) -> NDArray[np.bool_]:
        row = self.rows[index]
        assert row is not None
        return row.numpy()


class Ours:
    """This package."""

    name = "ramet"
    version = ramet.__version__

    def __init__(self, words: Words) -> None:
        self._vocabulary = words.vocabulary
        self._vocabulary.prepare()

    def compile(self, pattern: str) -> AutomatonConstraint:
        compiled = compile_constraint("regex", pattern, self._vocabulary)
        assert isinstance(compiled, AutomatonConstraint)
        return compiled

    def batch(self, compiled: AutomatonConstraint, size: int) -> OurBatch:
        return OurBatch(compiled, size)


class LlguidanceBatch:
    """A bit of int32 words for each token; the parallel way is its executor."""

    def __init__(self, tokenizer: Any, grammar: str, size: int) -> None:
        import llguidance
        from llguidance.numpy import allocate_token_bitmask

        first = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
        if first.is_error():
            raise SideFailed(first.get_error().splitlines()[0][:80])
        self._first = first  # stays at the start; copies share what has been worked out
        self._matchers = [first.deep_copy() for _ in range(size)]
        self._bits = allocate_token_bitmask(size, tokenizer.vocab_size)
        self._num_words = tokenizer.vocab_size
        self._row_bytes = self._bits.shape[1] * 4
        self._pointers = [self._bits[i].ctypes.data for i in range(size)]

    def fill(self, index: int) -> None:
        self._matchers[index].unsafe_compute_mask_ptr(self._pointers[index], self._row_bytes)

    def fill_all(self) -> None:
        for matcher, pointer in zip(self._matchers, self._pointers, strict=True):
            matcher.unsafe_compute_mask_ptr(pointer, self._row_bytes)

    @cached_property
    def _executor(self) -> Any:
        import llguidance

        return llguidance.LLExecutor()

    def fill_parallel(self) -> None:
        indexed = [(matcher, i) for i, matcher in enumerate(self._matchers)]
        self._executor.unsafe_compute_mask_ptr(indexed, self._bits.ctypes.data, self._row_bytes, len(self._matchers))

    def accept_all(self, token_ids: Sequence[int]) -> None:
        for matcher, token_id in zip(self._matchers, token_ids, strict=True):
            if not matcher.consume_token(token_id):
                raise SideFailed("refuses a token of the path")

    def accept(self, index: int, token_id: int) -> None:
        if not self._matchers[index].consume_token(token_id):
            raise SideFailed("refuses a token of the path")

    def restart(self, index: int) -> None:
        self._matchers[index] = self._first.deep_copy()

    def allowed(self, index: int) -> NDArray[np.bool_]:
        return _unpacked(self._bits[index], self._num_words)


class Llguidance:
    """llguidance, with the slices that it takes by default."""

    name = "llguidance"

    def __init__(self, words: Words) -> None:
        self.version = importlib.metadata.version("llguidance")
        self._tokenizer = words.to_llguidance()

    def compile(self, pattern: str) -> str:
        """Only the text of its grammar; a matcher does the rest, so that a fresh batch is a fresh compilation."""
        import llguidance

        return str(llguidance.LLMatcher.grammar_from_regex(pattern))

    def batch(self, compiled: str, size: int) -> LlguidanceBatch:
        return LlguidanceBatch(self._tokenizer, compiled, size)


class XgrammarBatch:
    """A bit of int32 words for each token; the parallel way is its batch matcher."""

    def __init__(self, compiled: Any, size: int, num_words: int) -> None:
        import xgrammar

        self._matchers = [xgrammar.GrammarMatcher(compiled) for _ in range(size)]
        self._bits = xgrammar.allocate_token_bitmask(size, num_words)
        self._num_words = num_words

    @cached_property
    def _parallel(self) -> Any:
        import xgrammar

        return xgrammar.BatchGrammarMatcher()

    def fill(self, index: int) -> None:
        self._matchers[index].fill_next_token_bitmask(self._bits, index)

    def fill_all(self) -> None:
        bits = self._bits
        for i, matcher in enumerate(self._matchers):
            matcher.fill_next_token_bitmask(bits, i)

    def fill_parallel(self) -> None:
        self._parallel.batch_fill_next_token_bitmask(self._matchers, self._bits)

    def accept_all(self, token_ids: Sequence[int]) -> None:
        for matcher, token_id in zip(self._matchers, token_ids, strict=True):
            if not matcher.accept_token(token_id):
                raise SideFailed("refuses a token of the path")

    def accept(self, index: int, token_id: int) -> None:
        if not self._matchers[index].accept_token(token_id):
            raise SideFailed("refuses a token of the path")

    def restart(self, index: int) -> None:
        self._matchers[index].reset()

    def allowed(self, index: int) -> NDArray[np.bool_]:
        return _unpacked(self._bits[index].numpy(), self._num_words)


class Xgrammar:
    """xgrammar, without its cache of whole grammars, so that a compilation is one."""

    name = "xgrammar"

    def __init__(self, words: Words) -> None:
        import xgrammar

        self.version = importlib.metadata.version("xgrammar")
        self._num_words = words.vocabulary.width
        info = xgrammar.TokenizerInfo(
            list(words.vocabulary.pieces),
            xgrammar.VocabType.RAW,
            vocab_size=words.vocabulary.width,
            stop_token_ids=list(words.vocabulary.eos_ids),
        )
        self._compiler = xgrammar.GrammarCompiler(info, cache_enabled=False)

    def compile(self, pattern: str) -> Any:
        try:
            return self._compiler.compile_regex(pattern)
        except RuntimeError as error:
            raise SideFailed(str(error).splitlines()[0].rpartition(": ")[2][:80]) from error

    def batch(self, compiled: Any, size: int) -> XgrammarBatch:
        return XgrammarBatch(compiled, size, self._num_words)


def make_sides(words: Words, names: Sequence[str]) -> list[Side]:
    """Our side and those peers that are installed."""
    kinds: dict[str, Callable[[Words], Side]] = {"llguidance": Llguidance, "xgrammar": Xgrammar}
    return [Ours(words), *(kinds[name](words) for name in names if importlib.util.find_spec(name) is not None)]


def words_of_model(model: str) -> Words:
    """The vocabulary of a model, or of a folder or file with a tokenizer that `ramet` reads."""
    path = Path(model).expanduser()
    has_file = path.name == "tokenizer.json" or (path / "tokenizer.json").is_file()
    tokenizer = load_tokenizer(path if has_file else resolve_model(ModelOptions(model_path=model)))
    vocabulary = Vocabulary.from_tokenizer(tokenizer)

    def to_llguidance() -> Any:
        import llguidance

        return llguidance.LLTokenizer(tokenizer._backend.to_str(), n_vocab=vocabulary.width, eos_token=list(vocabulary.eos_ids))

    name = f"{Path(model).name} ({vocabulary.width:,})"
    return Words(name, vocabulary, lambda text: tokenizer.encode(text, add_special_tokens=False), to_llguidance)


def words_of_tekken(path: Path) -> Words:
    """The vocabulary of a Tekken file of Mistral's: 131,072 words, the first 1,000 special."""
    content = json.loads(path.read_text(encoding="utf-8"))
    num_words, pattern = content["config"]["default_vocab_size"], content["config"]["pattern"]
    listed = content["vocab"][: num_words - NUM_TEKKEN_SPECIAL]
    pieces = [b""] * NUM_TEKKEN_SPECIAL + [base64.b64decode(entry["token_bytes"]) for entry in listed]
    vocabulary = Vocabulary(pieces, eos_ids=(TEKKEN_EOS,), special_ids=range(NUM_TEKKEN_SPECIAL))
    id_of = {piece: token_id for token_id, piece in enumerate(pieces) if piece}

    def to_llguidance() -> Any:
        import llguidance

        return llguidance.LLTokenizer.from_tiktoken(  # type: ignore[attr-defined]
            encoder=id_of,
            special_tokens={f"<SPECIAL_{i}>": i for i in range(NUM_TEKKEN_SPECIAL)},
            pattern=pattern,
            eos_token=TEKKEN_EOS,
            n_vocab=num_words,
            slices=None,
        )

    return Words(f"{path.stem} ({num_words:,})", vocabulary, BytePairs(id_of, pattern), to_llguidance)


def large_words(path: str | None) -> Words | None:
    """A vocabulary of about 131,000 words: the file that was given, or that of mistral-common where it is installed."""
    if path is None:
        spec = importlib.util.find_spec(LARGE_PACKAGE)
        if spec is None or spec.origin is None:
            return None
        path = str(Path(spec.origin).parent / LARGE_FILE)
    return words_of_tekken(Path(path)) if Path(path).name.startswith("tekken") else words_of_model(path)


class BytePairs:
    """Cuts a text by a pattern, and each part by joining the neighbours whose joint word has the least id, as long as there are any."""

    def __init__(self, id_of: dict[bytes, int], pattern: str) -> None:
        self._id_of = id_of
        self._pattern = regex.compile(pattern)

    def __call__(self, text: str) -> list[int]:
        return [token_id for part in self._pattern.findall(text) for token_id in self._joined(part.encode())]

    def _joined(self, data: bytes) -> list[int]:
        parts = [data[i : i + 1] for i in range(len(data))]
        while len(parts) > 1:
            pairs = [(self._id_of.get(parts[i] + parts[i + 1], len(self._id_of) * 2), i) for i in range(len(parts) - 1)]
            found, at = min(pairs)
            if found == len(self._id_of) * 2:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [self._id_of[part] for part in parts]


def _unpacked(bits: NDArray[np.int32], num_words: int) -> NDArray[np.bool_]:
    return np.unpackbits(bits.view(np.uint8), bitorder="little")[:num_words].astype(np.bool_)
