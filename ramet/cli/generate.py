"""`ramet generate`: one prompt, text as it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ramet.cli.output import Output
from ramet.params import SamplingParams


def generate_text(
    start_engine: Callable[[Mapping[str, Any]], Any], prompt: str, options: Mapping[str, Any], sampling: Mapping[str, Any], out: Output
) -> None:
    """Start an engine and write what it generates to `out` as it comes; several samples one after the other, each under a heading.

    Raises InvalidRequest when a parameter is out of its range, before the engine starts, and OutputLost.
    """
    params = SamplingParams.from_mapping(sampling)
    engine = start_engine(options)
    try:
        if params.n > 1:
            for index, reply in enumerate(engine.generate(prompt, dict(sampling))):
                out.write(f"--- sample {index + 1}\n{reply['text']}\n")
            out.flush()
            return
        shown_len = 0
        for reply in engine.stream(prompt, dict(sampling)):
            out.write(reply["text"][shown_len:])
            out.flush()
            shown_len = len(reply["text"])
        out.write("\n")
        out.flush()
    finally:
        engine.shutdown()
