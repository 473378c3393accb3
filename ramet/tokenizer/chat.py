"""Messages to a prompt, by the model's own Jinja template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ramet.errors import InvalidRequest
from ramet.tokenizer.tokenizer import Tokenizer


def apply_chat_template(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    add_generation_prompt: bool = True,
    *,
    now: datetime | None = None,
    **variables: Any,
) -> str:
    """The prompt for a conversation. It holds the model's special tokens, BOS included: encode it with `add_special_tokens=False`.

    `now` is what `strftime_now` of the template sees; without it the template falls back to its own fixed date, so that equal conversations
    have equal prompts. `variables` go to the template as they are (`tools`, `enable_thinking`, ...). The template runs in a sandbox.
    Raises InvalidRequest when the model has no template or the template refuses the messages.
    """
    if tokenizer.chat_template is None:
        raise InvalidRequest("this model has no chat template: send a plain prompt, or choose a registered template with chat_template")
    known: dict[str, Any] = {"bos_token": _name(tokenizer, tokenizer.bos_token_id), "eos_token": _name(tokenizer, tokenizer.eos_token_id)}
    if now is not None:
        known["strftime_now"] = now.strftime
    values = {**known, **variables, "messages": messages, "add_generation_prompt": add_generation_prompt}
    try:
        return _compiled(tokenizer.chat_template).render(values)
    except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise InvalidRequest(f"the model's chat template refuses these messages: {error}") from error


def _name(tokenizer: Tokenizer, token_id: int | None) -> str:
    return "" if token_id is None else tokenizer.id_to_token(token_id) or ""


@lru_cache(maxsize=16)
def _compiled(template: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    return environment.from_string(template)


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    """JSON as models saw it in training: without Jinja's escapes for HTML."""
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
