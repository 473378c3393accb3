"""`Engine`: a model in this process, with its loop in a thread of its own."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ramet.config import Config
from ramet.engine.assemble import assemble, given_model
from ramet.engine.channel import Channel, Mailbox
from ramet.engine.client import EngineClient
from ramet.engine.loop import EngineLoop
from ramet.engine.mask_filler import MaskFiller
from ramet.errors import EngineError, InvalidRequest
from ramet.messages import GenerateRequest
from ramet.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ramet.execute.runner import Runner


class Engine(EngineClient):
    """Runs a model in this process; usable as a context manager, from many threads and from asyncio.

    Options are the fields of `ramet.config` by name, for example `Engine(model_path="smollm2-135m", max_total_tokens=8192)`.
    `runner` and `tokenizer` replace the loaded ones (both together); tests use that.

    Raises ConfigError for an unknown option and ModelError when the model cannot be loaded.
    """

    def __init__(
        self,
        model_path: str | None = None,
        *,
        config: Config | None = None,
        runner: Runner | None = None,
        tokenizer: Tokenizer | None = None,
        eos_token_ids: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if config is None:
            config = Config.from_options(options if model_path is None else {"model_path": model_path, **options})
        elif options or model_path is not None:
            raise InvalidRequest("give either config or single options, not both")
        assert (runner is None) == (tokenizer is None), "replace runner and tokenizer together"
        if runner is None or tokenizer is None:
            from ramet.engine.launch import load  # what reads model files is imported when it is used

            model = load(config)
            if eos_token_ids is not None:
                model = replace(model, eos_ids=tuple(eos_token_ids))
        else:
            model = given_model(config, runner, tokenizer, eos_token_ids)
        parts = assemble(config, model)
        self.config = config
        self.model_name, self.tokenizer, self.eos_ids = model.name, model.tokenizer, model.eos_ids
        self.generation_config = model.generation_config
        self.limits = parts.limits
        self._core, self._guides = parts.core, parts.guides
        self._channel = Channel()
        self._loop = EngineLoop(self._core, self._channel)
        self._loop.start()
        # Also when no one calls it: an engine that is collected, or left open at the end of the process, leaves no running loop.
        self._stop = weakref.finalize(self, _stop_loop, self._channel, self._loop, self._guides.filler)

    @property
    def closed_by(self) -> EngineError | None:
        return self._channel.closed_by

    def shutdown(self) -> None:
        self._stop()

    def _compile(self, requests: Sequence[GenerateRequest]) -> None:
        self._guides.compile(requests)

    def _submit(self, requests: tuple[GenerateRequest, ...], mailboxes: tuple[Mailbox, ...]) -> None:
        self._channel.submit(requests, mailboxes)

    def _abort(self, request_id: str) -> None:
        self._channel.abort(request_id)

    def _ask(self, what: str, mailbox: Mailbox) -> None:
        self._channel.ask(what, mailbox)


def _stop_loop(channel: Channel, loop: EngineLoop, filler: MaskFiller) -> None:
    channel.stop()
    # The collector may run this on the loop's own thread, and in a forked copy the thread does not exist.
    if loop.is_alive() and threading.current_thread() is not loop:
        loop.join()
    filler.close()
