"""A backend that answers from a script: for tests, examples and demonstrations without a model.

    ScriptedBackend(["Paris", "Rome"])                         replies in the order of the calls
    ScriptedBackend({"city": "Paris", re.compile("2\\+2"): "4"})  by variable name, or by a pattern searched in the prompt
    ScriptedBackend(lambda prompt, params: prompt.text[-3:])   computed

A reply is a text, a tuple with the `n` samples of one call, an exception (the call fails with it), or a function of (prompt, params). Under
a name or pattern, a list holds the replies of successive calls. A "token" of a script is one word with the blanks before it.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ramet.errors import ProgramError, UnsupportedNode
from ramet.lang.backends.base import BaseBackend
from ramet.lang.chat import ChatTemplate
from ramet.lang.chat_templates import get_chat_template
from ramet.lang.choices import ChoicesDecision, ChoicesSamplingMethod, decide
from ramet.lang.prompt import Prompt
from ramet.lang.sampling import SglSamplingParams
from ramet.messages import ChoiceScore

Script = Sequence[Any] | Mapping[str | re.Pattern[str], Any] | Callable[..., Any]
_WORD = re.compile(r"\s*\S+|\s+$")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the backend: `kind` is generate, stream, select or cache_prefix."""

    kind: str
    prompt: Prompt
    params: SglSamplingParams | None = None
    choices: tuple[str, ...] = ()


class ScriptedBackend(BaseBackend):
    """Replies from a script and records every call.

    `replies` answer gens, `choices` answer selects: an option, or for every option its token log-probabilities (numbers, or a
    ChoiceScore); without a script the first option wins. `latency_s` is slept in every call, spread over the pieces when streaming.

    Honoured: `max_new_tokens` (in words), `stop`, `stop_regex`, `n`, `return_logprob` (a script is certain: 0 a word), and constraints: a
    reply that does not match `regex` or `dtype`, or is no JSON for `json_schema`, raises ProgramError; a grammar (`ebnf`, `lark`,
    `structural_tag`) or a pattern beyond Python's `re` cannot be checked and raises UnsupportedNode. Values that shape chance, such as
    `temperature`, have nothing to act on.
    """

    def __init__(
        self,
        replies: Script = (),
        *,
        choices: Script | None = None,
        latency_s: float = 0.0,
        chat_template: str = "default",
        model_name: str = "scripted",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.calls: list[Call] = []
        self.prefixes: list[str] = []  # cached ones, in order
        self._replies = _ScriptReader(replies, "reply")
        self._choices = None if choices is None else _ScriptReader(choices, "choice")
        self._latency_s = latency_s
        self._template = get_chat_template(chat_template)
        self._model_name = model_name
        self._sleep = sleep
        self._lock = threading.Lock()

    def get_model_name(self) -> str:
        return self._model_name

    def get_chat_template(self) -> ChatTemplate:
        return self._template

    def cache_prefix(self, prefix_str: str) -> None:
        with self._lock:
            self.prefixes.append(prefix_str)
            self.calls.append(Call("cache_prefix", Prompt(prefix_str)))

    def flush_cache(self) -> bool:
        with self._lock:
            self.prefixes.clear()
        return True

    def get_server_info(self) -> dict[str, Any]:
        return {"model_name": self._model_name, "num_calls": len(self.calls)}

    def generate(self, s: Prompt, sampling_params: SglSamplingParams) -> tuple[str | list[str], dict[str, Any] | list[dict[str, Any]]]:
        samples = self._samples("generate", s, sampling_params)
        self._wait(1)
        if sampling_params.n == 1:
            return samples[0]
        return [text for text, _ in samples], [meta for _, meta in samples]

    def generate_stream(self, s: Prompt, sampling_params: SglSamplingParams) -> Iterator[tuple[str, dict[str, Any]]]:
        assert sampling_params.n == 1, "one sample is streamed at a time"
        text, meta = self._samples("stream", s, sampling_params)[0]
        words = _WORD.findall(text) or [""]
        for index, word in enumerate(words):
            self._wait(len(words))
            is_last = index == len(words) - 1
            yield word, {**meta, "completion_tokens": index + 1 if text else 0, "finish_reason": meta["finish_reason"] if is_last else None}

    def select(self, s: Prompt, choices: Sequence[str], temperature: float, choices_method: ChoicesSamplingMethod) -> ChoicesDecision:
        with self._lock:
            self.calls.append(Call("select", s, choices=tuple(choices)))
        answer = choices[0] if self._choices is None else self._choices.next(s, tuple(choices))
        self._wait(1)
        return decide(choices, _scores(answer, choices), choices_method)

    def _wait(self, num_parts: int) -> None:
        if self._latency_s > 0:
            self._sleep(self._latency_s / num_parts)

    def _samples(self, kind: str, prompt: Prompt, params: SglSamplingParams) -> list[tuple[str, dict[str, Any]]]:
        with self._lock:
            call_id = len(self.calls)
            self.calls.append(Call(kind, prompt, params))
        reply = self._replies.next(prompt, params)
        texts = reply if isinstance(reply, tuple) else (reply,) * params.n
        if len(texts) != params.n or not all(isinstance(text, str) for text in texts):
            raise ProgramError(f"the script gives {reply!r} where {params.n} texts are wanted")
        return [_finished(text, prompt, params, f"scripted-{call_id}-{index}") for index, text in enumerate(texts)]


class _ScriptReader:
    """Finds the answer to the next call."""

    def __init__(self, script: Script, what: str) -> None:
        self._script = script
        self._what = what
        self._num_used: dict[Any, int] = {}
        self._lock = threading.Lock()

    def next(self, prompt: Prompt, asked: Any) -> Any:
        """The answer; raises it when it is an exception, and ProgramError when the script has none."""
        answer = self._script
        if isinstance(answer, Mapping):
            key = self._key(answer, prompt)
            answer = self._in_turn(key, answer[key]) if isinstance(answer[key], list) else answer[key]
        elif isinstance(answer, Sequence):
            answer = self._in_turn(None, answer)
        if callable(answer) and not isinstance(answer, type):
            answer = answer(prompt, asked)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _key(self, table: Mapping[Any, Any], prompt: Prompt) -> Any:
        if prompt.name in table:
            return prompt.name
        for key in table:
            if isinstance(key, re.Pattern) and key.search(prompt.text):
                return key
        raise ProgramError(f"the script has no {self._what} for the variable {prompt.name!r} after {prompt.text[-60:]!r}")

    def _in_turn(self, key: Any, answers: Sequence[Any]) -> Any:
        with self._lock:
            index = self._num_used.get(key, 0)
            self._num_used[key] = index + 1
        if index >= len(answers):
            raise ProgramError(f"the script is over: {self._what} number {index + 1} was asked for and there are {len(answers)}")
        return answers[index]


def _finished(text: str, prompt: Prompt, params: SglSamplingParams, call_id: str) -> tuple[str, dict[str, Any]]:
    """Cut a reply as a model's would be, check its constraint, and tell about it."""
    text, reason = _cut(text, params)
    _check(text, prompt, params)
    words, prompt_words = _WORD.findall(text), _WORD.findall(prompt.text)
    meta: dict[str, Any] = {
        "id": call_id,
        "finish_reason": reason,
        "prompt_tokens": len(prompt_words),
        "completion_tokens": len(words),
        "cached_tokens": 0,
    }
    if params.return_logprob:
        start = len(prompt_words) if params.logprob_start_len in (None, -1) else params.logprob_start_len
        meta["input_token_logprobs"] = _certain(prompt_words[start:], params)
        meta["output_token_logprobs"] = _certain(words, params)
        if params.top_logprobs_num:
            meta["input_top_logprobs"] = [[triple] for triple in meta["input_token_logprobs"]]
            meta["output_top_logprobs"] = [[triple] for triple in meta["output_token_logprobs"]]
    return text, meta


def _check(text: str, prompt: Prompt, params: SglSamplingParams) -> None:
    label = f"Gen({prompt.name!r}, {params.constraint_label})"
    if params.pattern is not None:
        try:
            is_match = re.fullmatch(params.pattern, text) is not None
        except re.error as error:
            raise UnsupportedNode(label, ScriptedBackend.__name__, f"it checks patterns with Python's re: {error}") from error
        if not is_match:
            raise ProgramError(f"the scripted reply {text!r} does not match {params.constraint_label}")
    elif params.json_schema is not None:
        try:
            json.loads(text)
        except ValueError as error:
            raise ProgramError(f"the scripted reply {text!r} is no JSON: {error}") from error
    elif params.constraint_label is not None:
        raise UnsupportedNode(label, ScriptedBackend.__name__, "it has nothing to check a reply against a grammar with")


def _certain(words: list[str], params: SglSamplingParams) -> list[list[Any]]:
    return [[0.0, index, word if params.return_text_in_logprobs else None] for index, word in enumerate(words)]


def _cut(text: str, params: SglSamplingParams) -> tuple[str, dict[str, Any]]:
    words = _WORD.findall(text)
    is_too_long = len(words) > params.max_new_tokens
    text = "".join(words[: params.max_new_tokens]) if is_too_long else text
    found = [(at, stop) for stop in params.stop if (at := text.find(stop)) >= 0]
    found += [(match.start(), match.group()) for pattern in params.stop_regex if (match := re.search(pattern, text))]
    if found:
        at, matched = min(found)
        return text[:at], {"type": "stop", "matched": matched}
    if is_too_long:
        return text, {"type": "length", "length": params.max_new_tokens}
    return text, {"type": "stop", "matched": None}


def _scores(answer: Any, choices: Sequence[str]) -> list[ChoiceScore]:
    if isinstance(answer, str):
        if answer not in choices:
            raise ProgramError(f"the script chooses {answer!r}, which is not among {list(choices)}")
        return [_score([-0.1 if choice == answer else -5.0], index) for index, choice in enumerate(choices)]
    rows = list(answer)
    if len(rows) != len(choices):
        raise ProgramError(f"the script scores {len(rows)} options, there are {len(choices)}")
    return [row if isinstance(row, ChoiceScore) else _score(list(row), index) for index, row in enumerate(rows)]


def _score(logprobs: list[float], index: int) -> ChoiceScore:
    """Scores of one option on tokens of its own: no two options share an id. Without the prompt every token has -3."""
    ids = tuple(range(1000 * index, 1000 * index + len(logprobs)))
    return ChoiceScore(ids, tuple(logprobs), (-3.0,) * len(logprobs))
