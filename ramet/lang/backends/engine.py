"""The in-process engine as a backend: one call of the engine a node."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Protocol

from ramet.lang.backends.base import BaseBackend
from ramet.lang.chat import ChatTemplate
from ramet.lang.chat_templates import get_chat_template
from ramet.lang.choices import ChoicesDecision, ChoicesSamplingMethod, decide
from ramet.lang.prompt import Prompt
from ramet.lang.sampling import SglSamplingParams
from ramet.lang.settings import global_config
from ramet.messages import ChoiceScore


class EngineLike(Protocol):
    """What this backend needs of `ramet.Engine`."""

    model_name: str

    @property
    def chat_template_name(self) -> str | None:
        """The configured template, if one was given."""

    def generate(self, prompt: str, sampling_params: dict[str, Any], *, group_id: str | None = None, **arguments: Any) -> Any:
        """A reply, or a list of them for n > 1."""

    def stream(self, prompt: str, sampling_params: dict[str, Any], *, group_id: str | None = None, **arguments: Any) -> Generator[Any]:
        """Replies whose text is cumulative, with an `index` each when n > 1. Closing it aborts what still runs."""

    def score(self, prompt: str, choices: Sequence[str], *, unconditional: bool = False, group_id: str | None = None) -> list[ChoiceScore]:
        """Log-probabilities of each option's own tokens."""

    def cache_prefix(self, text: str) -> None:
        """Compute a prefix and keep it."""

    def flush_cache(self) -> bool:
        """Drop every cached token."""

    def get_server_info(self) -> dict[str, Any]:
        """Options, sizes and counters."""

    def shutdown(self) -> None:
        """Stop the engine."""


class EngineBackend(BaseBackend):
    """Runs programs on an engine in this process. Siblings of one fork are sent as one group, options of a select in one pass.

    Errors of the engine come through as they are.
    """

    def __init__(self, engine: EngineLike) -> None:
        self.engine = engine

    def get_model_name(self) -> str:
        return self.engine.model_name

    def get_chat_template(self) -> ChatTemplate:
        name = self.engine.chat_template_name
        return super().get_chat_template() if name is None else get_chat_template(name)

    def cache_prefix(self, prefix_str: str) -> None:
        self.engine.cache_prefix(prefix_str)

    def generate(self, s: Prompt, sampling_params: SglSamplingParams) -> tuple[str | list[str], dict[str, Any] | list[dict[str, Any]]]:
        replies: list[dict[str, Any]]
        if sampling_params.return_logprob:
            # A streamed reply repeats the log-probabilities of every token before it, so that the cost would grow with the square of the
            # length. The price: such a call runs to its end even when its program has failed.
            whole = self.engine.generate(
                s.text, self._raw_params(sampling_params), group_id=s.group_id, **sampling_params.to_engine_logprobs()
            )
            replies = [whole] if sampling_params.n == 1 else whole
        else:
            replies = self._last_replies(s, sampling_params)
        texts, meta = [reply["text"] for reply in replies], [reply["meta_info"] for reply in replies]
        return (texts[0], meta[0]) if sampling_params.n == 1 else (texts, meta)

    def _last_replies(self, s: Prompt, params: SglSamplingParams) -> list[dict[str, Any]]:
        """The finished reply of each sample; what there is, when the caller gives up meanwhile."""
        last: dict[int, dict[str, Any]] = {}
        with closing(self._stream(s, params)) as replies:
            for reply in replies:
                last[reply.get("index", 0)] = reply
                if s.is_abandoned():
                    break  # closing aborts what still runs
        return [reply for _, reply in sorted(last.items(), key=lambda item: item[0])]

    def generate_stream(self, s: Prompt, sampling_params: SglSamplingParams) -> Iterator[tuple[str, dict[str, Any]]]:
        text_len = 0
        with closing(self._stream(s, sampling_params)) as replies:
            for reply in replies:
                yield reply["text"][text_len:], reply["meta_info"]
                text_len = len(reply["text"])

    def _stream(self, s: Prompt, params: SglSamplingParams) -> Generator[dict[str, Any]]:
        return self.engine.stream(s.text, self._raw_params(params), group_id=s.group_id, **params.to_engine_logprobs())

    def select(self, s: Prompt, choices: Sequence[str], temperature: float, choices_method: ChoicesSamplingMethod) -> ChoicesDecision:
        needs_alone = choices_method.requires_unconditional_logprobs
        scores = self.engine.score(s.text, list(choices), unconditional=needs_alone, group_id=s.group_id)
        return decide(choices, scores, choices_method)

    def flush_cache(self) -> bool:
        return self.engine.flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        return self.engine.get_server_info()

    def shutdown(self) -> None:
        self.engine.shutdown()

    def _raw_params(self, params: SglSamplingParams) -> dict[str, Any]:
        return {
            **params.to_engine(),
            **params.to_engine_constraint(),
            "skip_special_tokens": global_config.skip_special_tokens_in_output,
            "spaces_between_special_tokens": global_config.spaces_between_special_tokens_in_out,
        }
