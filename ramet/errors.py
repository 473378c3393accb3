"""The errors of the package: one tree, each with the offending value and the way out.

RametError
├── InvalidRequest            the caller's fault (HTTP 400); also a ValueError
│   ├── InvalidParams         a sampling parameter or option out of range or unknown
│   │   └── InvalidPattern    a regular expression that cannot be read; also a re.error
│   ├── InvalidConstraint     a regex, choice list, ... for the output that is wrong, not offered or too large
│   ├── StopPatternTooSlow    a stop pattern that took too long on the output
│   ├── PromptTooLong         the prompt does not fit the context or the KV pool
│   └── UnsupportedFeature    a field we know and do not offer: refused, never ignored
├── ConfigError               an option of the engine is unknown or contradicts another; also a ValueError
│   └── UnknownChatTemplate   no chat template is registered under this name; also a KeyError
├── ModelError                a model cannot be found, read or built
│   ├── ModelNotFound
│   ├── UnsupportedModel
│   ├── WeightError           leftovers, gaps or shapes that do not match
│   └── TokenizerError
├── EngineError               our fault, or the engine's state
│   ├── EngineDied            the loop is gone: every open request gets this
│   ├── EngineClosed          the engine was shut down
│   ├── EngineBusy            the operation needs an idle engine
│   └── QueueFull             more waiting requests than `max_queued_requests` (HTTP 429)
└── ProgramError              a language-model program went wrong
    ├── UnsupportedNode       this backend cannot run that node
    ├── UnknownVariable       a name that no one has set; also a KeyError
    └── StreamFailed          an earlier failure of the same stream; the original is its cause
"""

from __future__ import annotations

import re
from typing import Any

_MAX_SHOWN_LEN = 500  # of a value in a message


class RametError(Exception):
    """Root of every error this package raises on purpose; each can be pickled and copied, as long as the value it names can.

    Class attributes: `http_status` (the status a server answers with) and `is_retryable` (whether the same call may succeed later).
    """

    http_status: int = 500
    is_retryable: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """The kind, `args` and the attributes: subclasses take other arguments than the message they make, so none is called again."""
        return _rebuilt, (type(self), self.args), self.__dict__


class InvalidRequest(RametError, ValueError):
    """The request cannot be served as it stands; the message names the value and the way out."""

    http_status = 400


class InvalidParams(InvalidRequest):
    """A parameter is unknown, of the wrong type or out of its range."""

    def __init__(self, field: str, value: object, why: str) -> None:
        shown = repr(value)
        super().__init__(f"{field}={shown if len(shown) <= _MAX_SHOWN_LEN else shown[:_MAX_SHOWN_LEN] + '...'}: {why}")
        self.field = field
        self.value = value


class InvalidPattern(InvalidParams, re.error):
    """A pattern is not a regular expression, or one that could only match the empty text."""

    def __init__(self, field: str, pattern: str, why: str) -> None:
        super().__init__(field, pattern, why)
        self.msg, self.pattern, self.pos, self.lineno, self.colno = why, pattern, None, 1, 1


class InvalidConstraint(InvalidRequest):
    """A constraint on the output cannot be read, asks for what is not offered, or is over a limit.

    `kind` names the sort of constraint ("regex", "choice", ...), `offset` is the character of `text` at fault, None when it is the whole.
    """

    def __init__(self, kind: str, text: str, why: str, offset: int | None = None) -> None:
        start = max(0, min(offset or 0, len(text)) - 20)
        shown = ("..." if start else "") + text[start : start + 60] + ("..." if len(text) > start + 60 else "")
        super().__init__(f"{kind} constraint {shown!r}" + ("" if offset is None else f", character {offset}") + f": {why}")
        self.kind = kind
        self.text = text
        self.why = why
        self.offset = offset


class StopPatternTooSlow(InvalidRequest):
    """A stop pattern took too long on the output so far; a pattern without repetitions inside repetitions does not."""

    def __init__(self, pattern: str, limit_s: float) -> None:
        super().__init__(f"stop_regex={pattern!r}: one search took more than {limit_s} s; write it without nested or adjacent repetitions")
        self.pattern = pattern
        self.limit_s = limit_s


class PromptTooLong(InvalidRequest):
    """The prompt leaves no room: both lengths are in the message and on the error."""

    def __init__(self, prompt_len: int, limit: int, limit_name: str) -> None:
        super().__init__(
            f"The input ({prompt_len} tokens) is longer than {limit_name} allows ({limit} tokens). Shorten the prompt or raise the limit."
        )
        self.prompt_len = prompt_len
        self.limit = limit


class UnsupportedFeature(InvalidRequest):
    """A known field that this engine does not offer; it is refused rather than ignored."""

    def __init__(self, feature: str, way_out: str) -> None:
        super().__init__(f"{feature} is not supported here: {way_out}")
        self.feature = feature


class ConfigError(RametError, ValueError):
    """An engine option is unknown, out of range or contradicts another."""

    http_status = 400

    def __init__(self, option: str, value: object, why: str) -> None:
        super().__init__(f"{option}={value!r}: {why}")
        self.option = option
        self.value = value


class UnknownChatTemplate(ConfigError, KeyError):
    """No chat template is registered under this name; the message lists the known ones."""

    __str__ = Exception.__str__


class ModelError(RametError):
    """A model cannot be found, read or built."""


class ModelNotFound(ModelError):
    """Nothing usable lies under this model name; the message says what would bring it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"model {name!r}: {why}")
        self.name = name


class UnsupportedModel(ModelError):
    """The checkpoint's architecture or one of its settings is not implemented."""


class WeightError(ModelError):
    """Tensors are missing, left over, or of the wrong shape."""


class TokenizerError(ModelError):
    """The tokenizer files are missing or contradict the model."""


class EngineError(RametError):
    """The engine could not do its part."""


class EngineDied(EngineError):
    """The engine's loop ended with an error; every open request fails with this, the original as its cause."""

    http_status = 503


class EngineClosed(EngineError):
    """The engine was shut down; make a new one."""

    http_status = 503


class EngineBusy(EngineError):
    """The operation needs an idle engine; wait for the open requests or abort them."""

    http_status = 409
    is_retryable = True


class QueueFull(EngineError):
    """More requests wait than `max_queued_requests` allows; try again later."""

    http_status = 429
    is_retryable = True

    def __init__(self, num_queued: int, limit: int) -> None:
        super().__init__(f"{num_queued} requests are waiting and max_queued_requests is {limit}: try again later")
        self.num_queued = num_queued
        self.limit = limit


class ProgramError(RametError):
    """A language-model program did something that cannot be carried out."""


class UnsupportedNode(ProgramError):
    """This backend cannot run this node, nor anything more general that would do."""

    def __init__(self, node: str, backend: str, why: str = "") -> None:
        super().__init__(f"the backend {backend} cannot run {node}" + (f": {why}" if why else ""))
        self.node = node
        self.backend = backend


class UnknownVariable(ProgramError, KeyError):
    """No one has set this variable and no submitted node will."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        self.name = name
        self.known = known
        super().__init__(name, known)

    def __str__(self) -> str:
        return f"no variable {self.name!r} in this state; known: {', '.join(map(repr, self.known)) or 'none'}"


class StreamFailed(ProgramError):
    """The stream failed earlier; nothing more can be appended to it or read from it. The first failure is the cause."""


def _rebuilt(kind: type[RametError], args: tuple[Any, ...]) -> RametError:
    return kind.__new__(kind, *args)
