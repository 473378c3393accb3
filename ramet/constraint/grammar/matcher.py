"""A constraint that llguidance parses. This file is the border: its errors and limits become InvalidConstraint here."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import llguidance
import numpy as np

from ramet.constraint.grammar.deep import on_deep_stack
from ramet.constraint.grammar.tokens import tokens_of
from ramet.constraint.limits import Limits, Source
from ramet.constraint.mask import mask_row
from ramet.constraint.vocabulary import Vocabulary

if TYPE_CHECKING:
    from ramet.constraint.mask import MaskRow

_START_KEY: Final = 0
_FINISHED_KEY: Final = -1
_MAX_FORCED_LEN: Final = 512  # of one answer; a grammar may force text without end
_MAX_REASON_LEN: Final = 300
_NOTHING: Final = "NoExtension"  # what llguidance says when no token may come next
_ONE_OF: Final = "coerce_one_of"  # its way out for a oneOf, which is none here
_MAX_ROW_ITEMS: Final = 2000  # of the parser, for one byte of text
_MAX_LETTER_ROW_ITEMS: Final = 64  # of the parser over bytes, which looks ahead on the engine's loop: what needs more is not looked for
_BASE_BYTES: Final = 1 << 20
_BYTES_PER_CHAR: Final = 1000
_ANY_BYTE: Final = ((0, 255),)

# What llguidance does in a second, by its own documentation. A step gets a share of the seconds, since a batch waits for it.
_LEXER_BUILD_PER_S: Final = 50_000_000
_LEXER_STEP_PER_S: Final = 14_000_000
_ITEMS_PER_S: Final = 20_000_000
_BUILD_SHARE: Final = 1 / 2
_LEXER_SHARE: Final = 1 / 8
_ITEMS_SHARE: Final = 1 / 400  # ambiguous grammars take a hundred times longer than documented

# With forcing, a mask would hold only one token of forced text, the one that a tokenizer would take.
_MAIN: Final = "main"
_HEAD: Final = f'%llguidance {{"no_forcing": true}}\nstart: @{_MAIN}\n'


def parser_limits(limits: Limits, max_row_items: int = _MAX_ROW_ITEMS) -> llguidance.LLParserLimits:
    """Our limits in llguidance's units."""
    return llguidance.LLParserLimits(
        initial_lexer_fuel=int(limits.max_seconds * _BUILD_SHARE * _LEXER_BUILD_PER_S),
        step_lexer_fuel=int(limits.max_seconds * _LEXER_SHARE * _LEXER_STEP_PER_S),
        max_items_in_row=max_row_items,
        step_max_items=int(limits.max_seconds * _ITEMS_SHARE * _ITEMS_PER_S),
        max_lexer_states=limits.max_dfa_states,
        max_grammar_size=min(limits.max_nfa_states, 500_000),
        verbose_errors=False,
    )


class GrammarConstraint:
    """A grammar over one vocabulary; `Compiled` for every kind that is not a regular language.

    `grammars` are in llguidance's form; the first is the text's, the others have names. Raises InvalidConstraint when llguidance refuses
    one, when they are over the limits, and when no text at all can begin.
    """

    is_finite: Final = False  # not known

    def __init__(self, grammars: Sequence[Mapping[str, Any]], source: Source, vocabulary: Vocabulary) -> None:
        self.source = source
        self.vocabulary = vocabulary
        self.tokens = tokens_of(vocabulary)
        first, *others = grammars
        self._text = json.dumps({"grammars": [{"lark_grammar": _HEAD}, {"name": _MAIN, **first}, *others]})
        self._keys = itertools.count(_START_KEY + 1)
        self._start_row: MaskRow | None = None
        self._start = self._parse(self.tokens.words, _MAX_ROW_ITEMS)
        self._start_letters = self._parse(self.tokens.letters, _MAX_LETTER_ROW_ITEMS)
        self._start_row = self.matcher().mask()

    def matcher(self) -> GrammarMatcher:
        """A matcher at the start."""
        return GrammarMatcher(self, self.restart(), self._start_row)

    @property
    def num_bytes(self) -> int:
        """About how much memory it holds."""
        return _BASE_BYTES + _BYTES_PER_CHAR * len(self._text)

    def prepare(self, max_states: int = 1, goes_on: Callable[[], bool] = lambda: True) -> int:
        """Nothing to do ahead: the mask of the start is there, and what is behind it depends on the text."""
        return min(max_states, 1)

    def restart(self) -> llguidance.LLMatcher:
        """A parser at the start, over the vocabulary."""
        return self._start.deep_copy()

    def restart_letters(self) -> llguidance.LLMatcher:
        """A parser at the start, over single bytes."""
        return self._start_letters.deep_copy()

    def next_key(self) -> int:
        """A state key that was never given out."""
        return next(self._keys)

    def check(self, parser: llguidance.LLMatcher) -> None:
        """Raise InvalidConstraint when a parser is in its error state."""
        if parser.is_error():
            raise self.source.error(_reason(parser.get_error()))

    def _parse(self, tokenizer: llguidance.LLTokenizer, max_row_items: int) -> llguidance.LLMatcher:
        limits = parser_limits(self.source.limits, max_row_items)
        parser = on_deep_stack(lambda: llguidance.LLMatcher(tokenizer, self._text, log_level=0, limits=limits))
        self.check(parser)
        warnings = parser.get_grammar_warnings()
        if warnings:
            raise self.source.error("; ".join(map(_reason, warnings)))
        return parser


class GrammarMatcher:
    """A place in a text that llguidance parses. Belongs to one thread at a time."""

    __slots__ = ("_compiled", "_ids", "_is_finished", "_keys", "_letters", "_lost_at", "_num_letter_ids", "_parser", "_row")

    def __init__(self, compiled: GrammarConstraint, parser: llguidance.LLMatcher, row: MaskRow | None) -> None:
        self._compiled = compiled
        self._parser: llguidance.LLMatcher | None = parser  # None once it is broken, until one at this place is needed
        self._row = row  # of this place, once asked for
        self._ids: list[int] = []  # the tokens of text
        self._keys = [_START_KEY]  # the start's, then one a token of text
        self._is_finished = False
        self._letters: llguidance.LLMatcher | None = None  # the same text by bytes, as far as the first `_num_letter_ids` tokens
        self._num_letter_ids = 0
        self._lost_at: int | None = None  # how many tokens were too much for the parser over bytes

    @property
    def is_final(self) -> bool:
        """Whether the text so far matches."""
        return bool(self._at_place().is_accepting())

    @property
    def is_finished(self) -> bool:
        """Whether an id that ends the text was accepted."""
        return self._is_finished

    @property
    def state_key(self) -> int:
        """Equal for a matcher, its forks and itself after a rollback at the same place; else different. -1 when finished."""
        return _FINISHED_KEY if self._is_finished else self._keys[-1]

    @property
    def num_accepted(self) -> int:
        """How many tokens were accepted and not rolled back."""
        return len(self._ids) + self._is_finished

    @property
    def is_mask_ready(self) -> bool:
        """Whether the mask of this place was asked for before."""
        return self._is_finished or self._row is not None

    def mask(self) -> MaskRow | None:
        """The tokens that may come next; see `Matcher`."""
        if self._is_finished:
            return None
        if self._row is None:
            is_final = self.is_final
            allowed = self._words() & self._compiled.tokens.is_text
            if is_final:
                allowed[list(self._compiled.vocabulary.eos_ids)] = True
            elif not allowed.any():
                raise self._compiled.source.error(_dead_end(self.bytes_behind(b"")))
            self._row = mask_row(allowed)
        return self._row

    def allows(self, token_id: int) -> bool:
        """Whether this token may come next. Raises InvalidConstraint when a limit is passed on the way."""
        if self._is_finished:
            return False
        if token_id in self._compiled.vocabulary.eos_ids:
            return self.is_final
        if not self._compiled.vocabulary.piece(token_id):
            return False
        if self._row is not None:
            return bool(self._row[token_id])
        parser = self._at_place()
        num_valid = parser.validate_tokens([token_id])
        self._check(parser)
        return bool(num_valid == 1)

    def accept(self, token_id: int) -> None:
        """Go on by one token, which must be allowed. Raises InvalidConstraint, and stays, when a limit is passed on the way."""
        assert not self._is_finished, f"token {token_id} comes after the end of the text"
        assert self.allows(token_id), f"token {token_id} ({self._compiled.vocabulary.piece(token_id)!r}) is not allowed here"
        if token_id in self._compiled.vocabulary.eos_ids:
            self._is_finished = True
            return
        parser = self._at_place()
        if not parser.consume_token(token_id):
            self._parser = None
            self._compiled.check(parser)
            raise AssertionError(f"llguidance refuses token {token_id} and gives no reason")
        self._ids.append(token_id)
        self._keys.append(self._compiled.next_key())
        self._row = None

    def forced_bytes(self, max_len: int | None = None) -> bytes:
        """The bytes up to the next choice, at most `max_len` and 512; fewer where finding them would take long."""
        letters = None if self._is_finished or self.is_final else self._by_letters()
        if letters is None:
            return b""
        ahead = letters.deep_copy()
        forced = bytearray()
        while len(forced) < (_MAX_FORCED_LEN if max_len is None else min(max_len, _MAX_FORCED_LEN)):
            next_bytes = _next_bytes(ahead)
            if next_bytes.bit_count() != 1 or ahead.is_accepting():
                break
            if not ahead.consume_token(next_bytes.bit_length() - 1):
                break
            forced.append(next_bytes.bit_length() - 1)
        return bytes(forced)

    def bytes_behind(self, data: bytes) -> list[tuple[int, int]]:
        """The bytes that may follow `data`; any where finding them would take long. Raises InvalidConstraint when a limit is passed."""
        letters = self._by_letters()
        if letters is not None:
            ahead = letters.deep_copy()
            num_valid = ahead.validate_tokens(list(data))
            if not ahead.is_error():
                assert num_valid == len(data), f"{data!r} is not allowed here"
                ahead.consume_tokens(list(data))
                next_bytes = _next_bytes(ahead)
                if not ahead.is_error():
                    return _ranges(next_bytes)
        if not data and not (self._words() & self._compiled.tokens.is_text).any():
            return []  # that nothing may follow is known all the same
        return list(_ANY_BYTE)

    def rollback(self, num_tokens: int) -> None:
        """Take back the last tokens."""
        assert 0 <= num_tokens <= self.num_accepted, f"{num_tokens} tokens to take back, {self.num_accepted} accepted"
        if num_tokens and self._is_finished:
            self._is_finished = False
            num_tokens -= 1
        if num_tokens == 0:
            return
        num_kept = len(self._ids) - num_tokens
        if self._num_letter_ids > num_kept:
            assert self._letters is not None, "tokens were read by bytes"
            is_back = self._letters.rollback(len(self._text(num_kept, self._num_letter_ids)))
            self._letters, self._num_letter_ids = (self._letters, num_kept) if is_back else (None, 0)
        del self._ids[num_kept:]
        del self._keys[num_kept + 1 :]
        self._row = None
        if self._lost_at is not None and num_kept < self._lost_at:
            self._lost_at = None
        if self._parser is not None and not self._parser.rollback(num_tokens):
            self._parser = None

    def fork(self) -> GrammarMatcher:
        """An independent matcher at the same place."""
        twin = GrammarMatcher(self._compiled, self._at_place().deep_copy(), self._row)
        twin._ids, twin._keys, twin._is_finished = self._ids.copy(), self._keys.copy(), self._is_finished
        return twin

    def _words(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """The tokens that llguidance allows, bool [width]."""
        width = self._compiled.vocabulary.width
        words = np.zeros(-(-(width + 1) // 32), np.uint32)
        parser = self._at_place()
        parser.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        if parser.is_error():
            self._parser = None
            if _NOTHING not in parser.get_error():
                self._compiled.check(parser)
            words[:] = 0
        return np.unpackbits(words.view(np.uint8), count=width, bitorder="little").view(np.bool_)

    def _by_letters(self) -> llguidance.LLMatcher | None:
        """The parser over bytes, at this place; None where it takes more than it may."""
        if self._lost_at is not None:
            return None
        letters = self._letters or self._compiled.restart_letters()
        data = self._text(self._num_letter_ids, len(self._ids))
        if data and not letters.consume_tokens(list(data)):
            self._letters, self._num_letter_ids, self._lost_at = None, 0, len(self._ids)
            return None
        self._letters, self._num_letter_ids = letters, len(self._ids)
        return letters

    def _text(self, start: int, end: int) -> bytes:
        return b"".join(map(self._compiled.vocabulary.piece, self._ids[start:end]))

    def _check(self, parser: llguidance.LLMatcher) -> None:
        if parser.is_error():
            self._parser = None
            self._compiled.check(parser)

    def _at_place(self) -> llguidance.LLMatcher:
        """The parser over the vocabulary, at this place."""
        if self._parser is None:
            parser = self._compiled.restart()
            if self._ids:
                parser.consume_tokens(self._ids)
                self._compiled.check(parser)
            self._parser = parser
        return self._parser


def _next_bytes(letters: llguidance.LLMatcher) -> int:
    """The bytes that may come next, one bit a byte; none when it takes too much."""
    bits = int.from_bytes(letters.compute_bitmask(), "little")
    return 0 if letters.is_error() else bits & ((1 << 256) - 1)


def _ranges(next_bytes: int) -> list[tuple[int, int]]:
    starts = [byte for byte in range(256) if next_bytes >> byte & 1 and not (byte and next_bytes >> (byte - 1) & 1)]
    ends = [byte for byte in range(256) if next_bytes >> byte & 1 and not next_bytes >> (byte + 1) & 1]
    return list(zip(starts, ends, strict=True))


def _dead_end(wanted: list[tuple[int, int]]) -> str:
    if not wanted:
        return "no text matches, or none can end from here"
    return "no token of this vocabulary continues here: wanted is a byte among " + ", ".join(
        f"{low:02x}-{high:02x}" if low < high else f"{low:02x}" for low, high in wanted[:8]
    )


def _reason(message: str) -> str:
    """The first line of what llguidance says, without its dump of the grammar."""
    if _NOTHING in message:
        return _dead_end([])
    if _ONE_OF in message:
        return (
            "oneOf: that its options exclude each other cannot be shown: write anyOf, or require a property with a const of its own in each"
        )
    lines = message.strip().splitlines() or ["it gives no reason"]
    return lines[0][:_MAX_REASON_LEN]
