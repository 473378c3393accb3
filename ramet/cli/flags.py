"""Flags made from the fields of a dataclass, so that an option has one name, one default and one help text."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from ramet.config import Config
from ramet.lang.run import SglFunction
from ramet.params import SamplingParams

NONE_WORD = "none"  # how a command line says None where that is not the default


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: the field it sets, how typer sees it, and how its value becomes the field's."""

    name: str
    annotation: Any
    read: Callable[[Any], Any] = field(default=lambda value: value)


def engine_flags() -> list[Flag]:
    """A flag for every option of the engine, with the help text of its field."""
    flags: list[Flag] = []
    for section, kind in get_type_hints(Config).items():
        for item in dataclasses.fields(kind):
            names = ("--model", "--model-path") if item.name == "model_path" else _spelling(item.name)
            flags.append(_flag(item, get_type_hints(kind)[item.name], names, item.metadata["doc"], f"Engine: {section}"))
    return flags


def sampling_flags() -> list[Flag]:
    """A flag for every sampling parameter; one that SAMPLING_DOCS lacks has no help text."""
    hints = get_type_hints(SamplingParams)
    return [
        _flag(item, hints[item.name], _spelling(item.name), SAMPLING_DOCS.get(item.name, ""), "Sampling")
        for item in dataclasses.fields(SamplingParams)
    ]


def run_flags() -> list[Flag]:
    """The sampling parameters that a program takes for all its gens."""
    known = inspect.signature(SglFunction.run_batch).parameters
    return [flag for flag in sampling_flags() if flag.name in known]


def with_flags(**groups: list[Flag]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add groups of flags to a command: its parameter `group` receives a dict of those that were given on the command line."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)

        def wrapper(**arguments: Any) -> None:
            for group, flags in groups.items():
                arguments[group] = _given(flags, arguments)
            command(**arguments)

        parameters = [parameter for name, parameter in own.parameters.items() if name not in groups]
        for flags in groups.values():
            parameters += [
                inspect.Parameter(flag.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=flag.annotation) for flag in flags
            ]
        wrapper.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {}
        wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
        return wrapper

    return decorate


def _given(flags: Iterable[Flag], arguments: dict[str, Any]) -> dict[str, Any]:
    """Take the values of these flags out of the arguments and keep those that were given."""
    taken = {flag: arguments.pop(flag.name) for flag in flags}
    return {flag.name: flag.read(value) for flag, value in taken.items() if value not in (None, [])}


def _spelling(name: str) -> tuple[str, ...]:
    return ("--" + name.replace("_", "-"),)


def _flag(item: dataclasses.Field[Any], hint: Any, names: tuple[str, ...], doc: str, panel: str) -> Flag:
    kind, read, metavar = _kind(item.name, hint, item.default)
    if kind is bool:
        names = (f"{names[0]}/--no-{names[0][2:]}",)
    shown = False if item.default in (None, ()) else str(item.default).lower() if kind is bool else str(item.default)
    option = typer.Option(*names, help=doc, rich_help_panel=panel, show_default=shown, metavar=metavar)
    return Flag(item.name, Annotated[kind | None, option], read)


def _kind(name: str, hint: Any, default: Any) -> tuple[Any, Callable[[Any], Any], str | None]:
    """What typer parses, how that becomes the field's value, and what help shows for it."""
    kinds = [kind for kind in get_args(hint) if kind is not type(None)] if type(None) in get_args(hint) else [hint]
    assert len(kinds) == 1, f"no flag can be made for {name}: {hint}"
    if get_origin(kinds[0]) is tuple:
        item = get_args(kinds[0])[0]
        if get_origin(item) is tuple:
            return list[str], lambda values: _pairs(name, values), "ID=BIAS"
        return list[item], tuple, None  # type: ignore[valid-type]
    if type(None) in get_args(hint) and default is not None:
        return str, lambda text: _number_or_none(name, text), f"INTEGER|{NONE_WORD}"
    return kinds[0], lambda value: value, None


def _number_or_none(name: str, text: str) -> int | None:
    if text.lower() == NONE_WORD:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is neither an integer nor {NONE_WORD}", param_hint=_spelling(name)[0]) from error


def _pairs(name: str, values: list[str]) -> Mapping[str, float]:
    pairs: dict[str, float] = {}
    for value in values:
        token_id, _, bias = value.partition("=")
        try:
            pairs[token_id] = float(bias)
        except ValueError as error:
            raise typer.BadParameter(f"{value!r} is not ID=BIAS, a token id and a number", param_hint=_spelling(name)[0]) from error
    return pairs


SAMPLING_DOCS = {
    "max_new_tokens": "tokens to generate at most",
    "min_new_tokens": "tokens to generate before the text may end",
    "n": "samples of the prompt",
    "stop": "end before this text; may be given several times",
    "stop_token_ids": "end at this token id; may be given several times",
    "stop_regex": "end before text that matches; may be given several times",
    "temperature": "0 takes the most likely token",
    "top_p": "draw from the most likely tokens that have this share of the probability",
    "top_k": "draw from this many of the most likely tokens; -1 is off",
    "min_p": "draw from tokens at least this likely, relative to the likeliest",
    "frequency_penalty": "taken from a token's logit once for every time it was generated",
    "presence_penalty": "taken from a token's logit if it was generated",
    "repetition_penalty": "divides the logit of every token seen before",
    "logit_bias": "added to a token's logit; may be given several times",
    "sampling_seed": "the same seed gives the same text in any batch",
    "ignore_eos": "go on past the end-of-text token",
    "skip_special_tokens": "leave special tokens out of the text",
    "spaces_between_special_tokens": "put spaces between special tokens that are shown",
    "no_stop_trim": "keep the stop text at the end",
    "regex": "a pattern that the whole text must match",
    "json_schema": "a JSON Schema that the text must satisfy",
    "ebnf": "a grammar in EBNF that the text must follow",
    "lark": "a grammar in Lark's notation that the text must follow",
    "structural_tag": "a JSON text: regions that must hold once their tag has begun",
    "choices": "the text is one of these; given once for each",
}
