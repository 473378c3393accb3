"""What a backend is: overridable methods, of which only `generate` must be written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ramet.errors import UnsupportedNode
from ramet.lang.chat import ChatTemplate
from ramet.lang.chat_templates import get_chat_template_by_model_path
from ramet.lang.choices import ChoicesDecision, ChoicesSamplingMethod
from ramet.lang.nodes import Image, Select, Video
from ramet.lang.prompt import Prompt
from ramet.lang.sampling import SglSamplingParams


class BaseBackend:
    """Runs what a program asks of a model. Methods are called from many threads at once.

    A method that is not overridden falls back to a more general one (`generate_stream` to `generate`, `commit_lazy_operations` to
    `cache_prefix`), does nothing where nothing is a right answer, or raises UnsupportedNode.
    """

    @property
    def name(self) -> str:
        """How errors call this backend."""
        return type(self).__name__

    def get_model_name(self) -> str:
        """The model's name or path; the backend's own name where it has none."""
        return self.name

    def get_chat_template(self) -> ChatTemplate:
        """How turns are written for this model; found from its name."""
        return get_chat_template_by_model_path(self.get_model_name())

    def cache_prefix(self, prefix_str: str) -> None:
        """Compute and keep a prefix that many programs will begin with. Does nothing where nothing is cached."""

    def commit_lazy_operations(self, s: Prompt) -> None:
        """Compute the prompt now because copies of it follow; `s.text` is not empty."""
        self.cache_prefix(s.text)

    def begin_program(self, s: Prompt) -> None:
        """A program starts."""

    def end_program(self, s: Prompt) -> None:
        """A program has ended without an error."""

    def fork_program(self, src: Prompt, dst: Prompt, position_ids_offset: list[int] | None = None) -> None:
        """A copy of a state was made. Raises UnsupportedNode when positions are to be shifted."""
        if position_ids_offset is not None:
            raise UnsupportedNode(f"fork(position_ids_offset={position_ids_offset})", self.name, "positions cannot be shifted")

    def fill_image(self, s: Prompt, image: Image | Video) -> str:
        """The text that stands for an image in the prompt. Raises UnsupportedNode."""
        raise UnsupportedNode(repr(image), self.name, "it takes text only")

    def generate(self, s: Prompt, sampling_params: SglSamplingParams) -> tuple[str | list[str], dict[str, Any] | list[dict[str, Any]]]:
        """Text that follows the prompt, and its meta info; lists of `n` when `n` > 1.

        A long call may ask `s.is_abandoned()` as it goes: once that is true it may return with what it has, which no one reads.
        Raises UnsupportedNode for a constraint that cannot be held, and here, where nothing generates.
        """
        raise UnsupportedNode(f"Gen({s.name!r})", self.name, "it does not generate")

    def generate_stream(self, s: Prompt, sampling_params: SglSamplingParams) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (new text, meta info so far); `n` is 1. Closing the iterator early cancels the call. In one piece by default."""
        text, meta = self.generate(s, sampling_params)
        assert isinstance(text, str) and isinstance(meta, dict), "one sample was asked for"
        yield text, meta

    def select(self, s: Prompt, choices: Sequence[str], temperature: float, choices_method: ChoicesSamplingMethod) -> ChoicesDecision:
        """The option that the method picks. Raises UnsupportedNode where options cannot be scored."""
        raise UnsupportedNode(repr(Select(s.name, tuple(choices))), self.name, "it cannot score options")

    def flush_cache(self) -> bool:
        """Drop what is cached; False where nothing is."""
        return False

    def get_server_info(self) -> dict[str, Any]:
        """Facts about the backend."""
        return {"model_name": self.get_model_name()}

    def shutdown(self) -> None:
        """Give back what the backend holds; it is not used afterwards."""
