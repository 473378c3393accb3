"""The kind "choice": the text is a JSON list of strings, and the output is one of them."""

from __future__ import annotations

import json

from ramet.constraint.base import Compiled
from ramet.constraint.compiled import AutomatonConstraint
from ramet.constraint.limits import Source
from ramet.constraint.schema.read import plain_decoder
from ramet.constraint.syntax import Alt, literal
from ramet.constraint.vocabulary import Vocabulary


def compile_choice(source: Source, vocabulary: Vocabulary) -> Compiled:
    """Compile a list of options; nothing in them has a special meaning. Raises InvalidConstraint for anything but a list of strings."""
    try:
        options = plain_decoder(source).decode(source.text)
    except json.JSONDecodeError as error:
        raise source.error(f"the options are no JSON: {error.msg}", error.pos) from error
    except RecursionError as error:
        raise source.error("the options are no flat list") from error
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
        raise source.error("the options must be a JSON list of strings")
    if not options:
        raise source.error("there is no option: give at least one")
    for option in options:
        if any(0xD800 <= ord(char) <= 0xDFFF for char in option):
            raise source.error(f"the option {option!r} holds half of a surrogate pair, which is no character")
    return AutomatonConstraint(Alt(tuple(literal(option) for option in dict.fromkeys(options))), source, vocabulary)
