"""What the tests of the language share: a deadline, an engine of the right shape, and a tidy process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from ramet.errors import PromptTooLong
from ramet.lang.settings import global_config
from ramet.messages import ChoiceScore


@pytest.fixture
def within() -> Callable[..., Any]:
    """`within(seconds, f)` gives f's result or raises what it raises; it fails when f is not back in time."""

    def call(seconds: float, function: Callable[[], Any]) -> Any:
        outcome: list[tuple[bool, Any]] = []

        def work() -> None:
            try:
                outcome.append((True, function()))
            except BaseException as error:
                outcome.append((False, error))

        thread = threading.Thread(target=work, daemon=True, name="within")
        thread.start()
        thread.join(seconds)
        assert outcome, f"still blocked after {seconds} s"
        is_good, value = outcome[0]
        if not is_good:
            raise value
        return value

    return call


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    """Every test leaves the settings as they were, and no thread of a program behind."""
    before = {name: getattr(global_config, name) for name in ("verbosity", "default_backend", "enable_precache_with_tracing")}
    yield
    for name, value in before.items():
        setattr(global_config, name, value)
    deadline = time.monotonic() + 5
    of_programs = ("ramet-stream-", "ramet-program-", "ramet-row")
    while left := [thread.name for thread in threading.enumerate() if thread.name.startswith(of_programs)]:
        assert time.monotonic() < deadline, f"threads left behind: {left}"
        time.sleep(0.005)


class FakeEngine:
    """An engine without a model: a function of the prompt answers, a word is a token, options are scored by a table."""

    def __init__(
        self,
        answer: Callable[[str], str] = lambda prompt: "one two three four",
        *,
        scores: dict[str, list[float]] | None = None,
        latency_s: float = 0.0,
        word_latency_s: float = 0.0,
        context_len: int = 1000,
        model_name: str = "fake",
        chat_template_name: str | None = None,
    ) -> None:
        self.answer = answer
        self.scores = scores or {}
        self.latency_s = latency_s
        self.word_latency_s = word_latency_s
        self.context_len = context_len
        self.model_name = model_name
        self.chat_template_name = chat_template_name
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.prefixes: list[str] = []
        self.is_shut_down = False
        self.num_open = 0  # streams under way
        self.num_streamed = 0  # replies given

    def _reply(self, prompt: str, params: dict[str, Any], words: list[str], is_last: bool) -> dict[str, Any]:
        text = " ".join(words)
        for stop in params["stop"]:
            text = text.split(stop)[0]
        reason = {"type": "stop", "matched": None} if is_last else None
        meta = {"id": "fake", "prompt_tokens": len(prompt.split()), "completion_tokens": len(words), "finish_reason": reason}
        return {"text": text, "output_ids": list(range(len(words))), "meta_info": {**meta, "cached_tokens": 0}}

    def _words(self, kind: str, prompt: str, params: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
        self.calls.append((kind, prompt, {"params": params, **arguments}))
        if len(prompt.split()) > self.context_len:
            raise PromptTooLong(len(prompt.split()), self.context_len, "the context length")
        time.sleep(self.latency_s)
        return self.answer(prompt).split(" ")[: params["max_new_tokens"]]

    def generate(self, prompt: str, sampling_params: dict[str, Any], **arguments: Any) -> Any:
        words = self._words("generate", prompt, sampling_params, arguments)
        replies = [self._reply(prompt, sampling_params, words, True) for _ in range(sampling_params["n"])]
        return replies[0] if len(replies) == 1 else replies

    def stream(self, prompt: str, sampling_params: dict[str, Any], **arguments: Any) -> Iterator[dict[str, Any]]:
        words, num_samples = self._words("stream", prompt, sampling_params, arguments), sampling_params["n"]
        self.num_open += 1
        try:
            for count in range(1, len(words) + 1):
                for index in reversed(range(num_samples)):  # samples end in any order
                    self.num_streamed += 1
                    reply = self._reply(prompt, sampling_params, words[:count], count == len(words))
                    yield reply if num_samples == 1 else {**reply, "index": index}
                time.sleep(self.word_latency_s)
        finally:
            self.num_open -= 1

    def score(self, prompt: str, choices: Sequence[str], *, unconditional: bool = False, group_id: str | None = None) -> list[ChoiceScore]:
        self.calls.append(("score", prompt, {"choices": list(choices), "unconditional": unconditional, "group_id": group_id}))
        out = []
        for index, choice in enumerate(choices):
            logprobs = tuple(self.scores.get(choice, [-9.0]))
            ids = tuple(range(100 * index, 100 * index + len(logprobs)))
            out.append(ChoiceScore(ids, logprobs, (None,) + (-5.0,) * (len(ids) - 1) if unconditional else None))
        return out

    def cache_prefix(self, text: str) -> None:
        self.prefixes.append(text)

    def flush_cache(self) -> bool:
        self.prefixes.clear()
        return True

    def get_server_info(self) -> dict[str, Any]:
        return {"model_name": self.model_name, "num_calls": len(self.calls)}

    def shutdown(self) -> None:
        self.is_shut_down = True


@pytest.fixture
def fake_engine() -> type[FakeEngine]:
    """The class of the engine without a model."""
    return FakeEngine
