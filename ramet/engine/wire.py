"""Messages between the engine's process and the one that serves, as MessagePack: one codec for both directions.

What the records of `ramet.messages` hold is sent as it is. Errors travel as their class, `args` and attributes, and become the same
error on the other side; values that no message can hold become their `repr`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

import ramet.errors
from ramet.engine.channel import Delivery, Message
from ramet.engine.limits import Limits
from ramet.errors import EngineError, RametError
from ramet.messages import Abort, Ask, Chunk, Failed, Flush, GenerateRequest, Reply, Stop, Submit


class ErrorRecord(msgspec.Struct, frozen=True, array_like=True):
    """An error as data."""

    kind: str
    args: list[Any]
    state: dict[str, Any]


class SubmitFrame(msgspec.Struct, frozen=True, array_like=True, tag="submit"):
    """See `Submit`."""

    requests: tuple[GenerateRequest, ...]


class AbortFrame(msgspec.Struct, frozen=True, array_like=True, tag="abort"):
    """See `Abort`."""

    request_id: str


class AskFrame(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """See `Ask` and `Flush`."""

    ticket: int
    what: str


class StopFrame(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """See `Stop`."""


class FailedRecord(msgspec.Struct, frozen=True, array_like=True):
    """See `Failed`."""

    request_id: str
    error: ErrorRecord


class ReplyRecord(msgspec.Struct, frozen=True, array_like=True):
    """See `Reply`."""

    ticket: int
    value: Any
    error: ErrorRecord | None


class OutFrame(msgspec.Struct, frozen=True, array_like=True, tag="out"):
    """What came out of one round of the loop; the chunks of a request stand before its failure."""

    chunks: tuple[Chunk, ...] = ()
    failed: tuple[FailedRecord, ...] = ()
    replies: tuple[ReplyRecord, ...] = ()


class ReadyFrame(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """The engine takes requests."""

    limits: Limits
    model_name: str
    eos_ids: tuple[int, ...]
    generation_config: dict[str, Any]


class ClosedFrame(msgspec.Struct, frozen=True, array_like=True, tag="closed"):
    """The last message of an engine: everything open ends with this error."""

    error: ErrorRecord


ToEngine = SubmitFrame | AbortFrame | AskFrame | StopFrame
FromEngine = OutFrame | ReadyFrame | ClosedFrame

_encoder = msgspec.msgpack.Encoder(enc_hook=repr)
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_from_engine = msgspec.msgpack.Decoder(FromEngine)


def encode(frame: ToEngine | FromEngine) -> bytes:
    """The bytes of a frame."""
    return _encoder.encode(frame)


def decode_to_engine(data: bytes) -> Message:
    """The message for the loop."""
    frame = _to_engine.decode(data)
    match frame:
        case SubmitFrame():
            return Submit(frame.requests)
        case AbortFrame():
            return Abort(frame.request_id)
        case AskFrame():
            return Flush(frame.ticket) if frame.what == "flush" else Ask(frame.ticket, frame.what)
        case StopFrame():
            return Stop()


def decode_from_engine(data: bytes) -> FromEngine:
    """The frame as it is."""
    return _from_engine.decode(data)


def out_frame(items: Iterable[Delivery]) -> OutFrame:
    """Deliveries in one frame."""
    chunks: list[Chunk] = []
    failed: list[FailedRecord] = []
    replies: list[ReplyRecord] = []
    for item in items:
        match item:
            case Chunk():
                chunks.append(item)
            case Failed():
                failed.append(FailedRecord(item.request_id, error_record(item.error)))
            case Reply():
                replies.append(ReplyRecord(item.ticket, item.value, None if item.error is None else error_record(item.error)))
    return OutFrame(tuple(chunks), tuple(failed), tuple(replies))


def deliveries(frame: OutFrame) -> list[Delivery]:
    """The deliveries of a frame."""
    items: list[Delivery] = list(frame.chunks)
    items += [Failed(one.request_id, error_of(one.error)) for one in frame.failed]
    items += [Reply(one.ticket, one.value, None if one.error is None else error_of(one.error)) for one in frame.replies]
    return items


def error_record(error: Exception) -> ErrorRecord:
    """An error of the package as data; any other becomes an EngineError that names it."""
    if not isinstance(error, RametError):
        return ErrorRecord("EngineError", [f"{type(error).__name__}: {error}"], {})
    return ErrorRecord(type(error).__name__, [_plain(value) for value in error.args], _plain_state(error.__dict__))


def error_of(record: ErrorRecord) -> RametError:
    """The error again."""
    kind = getattr(ramet.errors, record.kind, EngineError)
    assert isinstance(kind, type) and issubclass(kind, RametError), f"{record.kind} is no error of the package"
    error = kind.__new__(kind, *record.args)
    error.__dict__.update(record.state)
    return error


def _plain_state(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in state.items()}


def _plain(value: Any) -> Any:
    """The value if a message can hold it, else how it prints."""
    try:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError, msgspec.MsgspecError):
        return repr(value)[:500]
