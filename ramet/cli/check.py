"""`ramet check`: a constraint on texts, without a model: what it accepts, where a text leaves it, how large it is and what it forces."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from ramet.cli.check_report import Checked, Overview, TokenizerView, error_json, print_error, print_report, report_json
from ramet.cli.report import to_json
from ramet.config import ModelOptions
from ramet.constraint.compile import compile_constraint
from ramet.constraint.jump import Jumper
from ramet.constraint.testing import TokenStep, byte_vocabulary, count_states, explain_bytes, trace_tokens
from ramet.constraint.vocabulary import Vocabulary
from ramet.errors import InvalidConstraint
from ramet.tokenizer import Tokenizer, load_tokenizer
from ramet.tokenizer.continuation import Continuation
from ramet.weights import resolve_model

ACCEPTED, REFUSED, INVALID = 0, 1, 2


def check_constraint(
    kind: str,
    constraint: str,
    texts: Sequence[str],
    *,
    tokenizer: str | None,
    out: Console,
    err: Console,
    is_json: bool,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """Check texts and print what came out; returns the exit code: all accepted, some refused, or the constraint itself is invalid.

    `tokenizer` is the model (or the folder with a tokenizer.json) whose tokens are looked at too.
    Raises ModelError when it cannot be loaded, and OutputLost.
    """
    tokens = None if tokenizer is None else _Tokens(tokenizer)
    try:
        overview, view, checked = _check(kind, constraint, texts, tokens, clock)
    except InvalidConstraint as error:
        print_error(error, err)
        if is_json:
            out.file.write(to_json({"kind": kind, "is_valid": False, "error": error_json(error)}) + "\n")
        return INVALID
    if is_json:
        out.file.write(to_json(report_json(overview, view, checked)) + "\n")
        out.file.flush()
    else:
        print_report(overview, view, checked, out)
    return ACCEPTED if all(item.explanation.is_accepted for item in checked) else REFUSED


def _check(
    kind: str, constraint: str, texts: Sequence[str], tokens: _Tokens | None, clock: Callable[[], float]
) -> tuple[Overview, TokenizerView | None, list[Checked]]:
    compiled = compile_constraint(kind, constraint, byte_vocabulary())
    overview = Overview(kind, count_states(compiled), explain_bytes(compiled, b"").forced)
    view, trace = (None, None) if tokens is None else tokens.compile(kind, constraint, clock)
    checked: list[Checked] = []
    for text in texts:
        data = text.encode("utf-8", "surrogateescape")  # what a command line holds that is no text comes as such halves
        found = explain_bytes(compiled, data)
        checked.append(
            Checked(data.decode("utf-8", "backslashreplace"), len(data), found, None if trace is None else trace(found.accepted))
        )
    return overview, view, checked


class _Tokens:
    """The tokens of one model, and how its tokenizer cuts a text that stands at the beginning of a line."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._tokenizer = _load_tokenizer(model)
        self._vocabulary = Vocabulary.from_tokenizer(self._tokenizer)
        self._vocabulary.prepare()
        self._continuation = Continuation(self._tokenizer)
        self._jumper = Jumper(self._vocabulary, self._continuation)
        self._line_start = self._tokenizer.encode("\n", add_special_tokens=False)

    def compile(
        self, kind: str, constraint: str, clock: Callable[[], float]
    ) -> tuple[TokenizerView, Callable[[str], tuple[TokenStep, ...]]]:
        """A constraint over these tokens: its times, and a function that walks a text's tokens along it."""
        compile_constraint(kind, constraint, self._vocabulary).matcher().mask()  # loads and builds what is made once for a vocabulary
        times = [clock()]
        compiled = compile_constraint(kind, constraint, self._vocabulary)
        times.append(clock())
        mask = compiled.matcher().mask()
        times.append(clock())
        assert mask is not None, "a matcher at its start is not finished"

        def trace(text: str) -> tuple[TokenStep, ...]:
            ids = self._continuation.encode_alone(text.encode()) or self._tokenizer.encode(text, add_special_tokens=False)
            return tuple(trace_tokens(compiled, self._vocabulary, ids, self._jumper, self._line_start))

        compile_ms, first_mask_ms = (1e3 * (end - start) for start, end in zip(times, times[1:], strict=False))
        return TokenizerView(self._model, self._tokenizer.vocab_size, int(mask.sum()), compile_ms, first_mask_ms), trace


def _load_tokenizer(model: str) -> Tokenizer:
    path = Path(model).expanduser()
    has_file = path.name == "tokenizer.json" or (path / "tokenizer.json").is_file()
    return load_tokenizer(path if has_file else resolve_model(ModelOptions(model_path=model)))
