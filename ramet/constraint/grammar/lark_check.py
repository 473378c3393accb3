"""What of llguidance's Lark dialect is refused here: what it would pass over, and what is not text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from ramet.constraint.grammar.deep import check_depth
from ramet.constraint.grammar.gbnf import error_at
from ramet.constraint.grammar.json import json_grammar
from ramet.constraint.limits import Source
from ramet.constraint.schema.read import plain_decoder
from ramet.errors import InvalidConstraint

# Comments, strings and patterns, in which nothing is looked for; a JSON value behind %json, %regex and %llguidance is read on its own.
_SILENT: Final = re.compile(r'//[^\n]*|#[^\n]*|"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/')
_WITH_JSON: Final = re.compile(r"%(json|regex|llguidance)\b\s*")
_RULE: Final = re.compile(r"^[ \t]*[?!]?(\w+)[^:\n]*:", re.MULTILINE)
_TERMINAL: Final = re.compile(r"\b_*[A-Z][A-Z0-9_]*\b")
_PLACE: Final = re.compile(r"(?:at )?(\d+)\((\d+)\): ")
_TOKEN: Final = re.compile(r"<[^\s<>]*>")
_HEAD: Final = re.compile(r"\[([^\[\]]*)\]\s*:")
_ATTRIBUTE: Final = re.compile(r"\s*(\w+)[^,]*(?:,|$)")
_REFUSED_ATTRIBUTES: Final = {
    "max_tokens": "the number of tokens is max_new_tokens of the request",
    "temperature": "the temperature is one of the request",
    "capture": "captures are not given back",
    "stop": "use suffix, whose text stays in the output",
}
_OFFERED_ATTRIBUTES: Final = ("lazy", "suffix")


def checked_lark(source: Source) -> str:
    """The grammar as llguidance shall read it, line by line the same: the JSON Schemas in it with our white space and escapes.

    Raises InvalidConstraint, with line and column, for what is not offered: tokens by name, attributes and options without effect here,
    other grammars, and JSON Schemas that are not done exactly.
    """
    text = source.text
    if not text.strip():
        raise source.error("the grammar is empty: write a rule named start")
    decoder = plain_decoder(source)
    values = list(_json_values(source, decoder))
    bare = _bare(text, values)
    _check_bare(bare, source)
    _check_size(bare, source)
    checked, at = "", 0
    for kind, start, end in values:
        value = text[start:end]
        if kind == "json":
            value = _one_line(json_grammar(source, decoder.decode(value), "json_schema")["json_schema"], value.count("\n"))
        elif kind == "llguidance" and decoder.decode(value) != {}:
            raise error_at(source, "options of %llguidance are not offered: leave it empty", start)
        checked += text[at:start] + value
        at = end
    return checked + text[at:]


def located(error: InvalidConstraint, source: Source) -> InvalidConstraint:
    """The same error with the offset that llguidance writes as `line(column)`, if it does."""
    found = _PLACE.match(error.why)
    if not found:
        return error
    line_start = sum(len(line) for line in source.text.splitlines(keepends=True)[: int(found[1]) - 1])
    return error_at(source, error.why[found.end() :], min(line_start + int(found[2]) - 1, len(source.text)))


def _check_bare(bare: str, source: Source) -> None:
    for pattern, why in (
        (_TOKEN, "tokens by name or number are not offered: write the text"),
        (re.compile("@"), "grammars by name are not offered: there is only this one"),
        (re.compile(r"%lark\b"), "a grammar inside a grammar is not offered: write its rules here"),
    ):
        found = pattern.search(bare)
        if found:
            raise error_at(source, why, found.start())
    for head in _HEAD.finditer(bare):
        for attribute in _ATTRIBUTE.finditer(head[1]):
            if attribute[1] not in _OFFERED_ATTRIBUTES:
                why = _REFUSED_ATTRIBUTES.get(attribute[1], "offered are " + ", ".join(_OFFERED_ATTRIBUTES))
                raise error_at(source, f"the attribute {attribute[1]} is not offered: {why}", head.start(1) + attribute.start(1))


def _json_values(source: Source, decoder: json.JSONDecoder) -> Iterator[tuple[str, int, int]]:
    """The JSON values in the text: what stands before each, its start and its end."""
    text = source.text
    at = 0
    while at < len(text):
        silent = _SILENT.match(text, at)
        named = _WITH_JSON.match(text, at)
        if named:
            try:
                _, end = decoder.raw_decode(text, named.end())
            except json.JSONDecodeError as error:
                raise error_at(source, f"%{named[1]} takes a JSON value: {error}", named.end()) from error
            except RecursionError as error:
                raise error_at(source, f"the JSON value behind %{named[1]} nests too deep", named.end()) from error
            yield named[1], named.end(), end
            at = end
        else:
            at = silent.end() if silent else at + 1


def _check_size(bare: str, source: Source) -> None:
    """Refuse terminals that are over the limit with those they name written out in their place, as llguidance does it."""
    heads = list(_RULE.finditer(bare))
    check_depth(len(heads) + sum(map(bare.count, "([{")), source)
    ends = [*(head.start() for head in heads[1:]), len(bare)]
    bodies = {head[1]: (head.end(), end) for head, end in zip(heads, ends, strict=False)}
    needed = {name: _TERMINAL.findall(bare, *span) for name, span in bodies.items() if _TERMINAL.fullmatch(name)}
    sizes: dict[str, int] = {}
    todo = list(needed)
    while todo:  # a terminal that needs itself is never reached; llguidance refuses it
        source.check_time()
        ready = [name for name in todo if all(other in sizes or other not in needed for other in needed[name])]
        for name in ready:
            start, end = bodies[name]
            sizes[name] = end - start + sum(sizes.get(other, 0) for other in needed[name])
            if sizes[name] > source.limits.max_nfa_states:
                raise error_at(
                    source, f"{name} is over the limit of {source.limits.max_nfa_states} characters with its parts written out", start
                )
        if not ready:
            return
        todo = [name for name in todo if name not in sizes]


def _bare(text: str, values: list[tuple[str, int, int]]) -> str:
    """The text with blanks in the place of comments, strings, patterns and JSON values."""
    for _, start, end in values:
        text = text[:start] + " " * (end - start) + text[end:]
    return _SILENT.sub(lambda silent: re.sub(r"[^\n]", " ", silent[0]), text)


def _one_line(schema: dict[str, Any], num_newlines: int) -> str:
    return json.dumps(schema)[:-1] + "\n" * num_newlines + "}"
