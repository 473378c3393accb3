"""Constraints beside llguidance and xgrammar in one run: compilation, masks cold and warm, a batch that advances, hard patterns.

    python bench/constraint.py [--model smollm2-135m] [--large-tokenizer PATH] [--only record,hard,engine] [--repeats 5] [--out FILE]

Needs `pip install ramet[bench,masks]`; a peer that is not installed is left out. The vocabularies are those of `--model` (49,152 words)
and of a tokenizer of about 131,000 words: `--large-tokenizer` takes a folder with tokenizer.json or a Tekken file; without it the one in
mistral-common is taken where that is installed (`pip install --no-deps mistral-common`), and nothing where it is not.

All sides get the same pattern and follow the same tokens, which come from our own masks; a side that refuses the pattern is reported as
such, and one that refuses a token has a `*`: it left some of the paths early. Each figure is the least of `--repeats` turns (of each step,
for figures over steps), in CPU time of the process, so that other work on the machine counts little; "parallel" rows are in wall time,
since threads are what they are about. What each side prepares once for a vocabulary is not counted. Masks are compared where the batch
goes: llguidance's are narrower where text is forced, since it then allows the tokenizer's own token alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from constraint_patterns import RECORD, hard_patterns
from constraint_rows import Figure, hard_figures, record_figures
from constraint_sides import Ours, Side, Words, large_words, make_sides, words_of_model
from rich.console import Console
from rich.table import Table

PEERS = ("llguidance", "xgrammar")
GROUPS = ("record", "hard", "engine")
NUM_REQUESTS = 64
NUM_STEPS = 48


def measure(
    words: Words, sides: Sequence[Side], groups: Sequence[str], repeats: int, num_requests: int = NUM_REQUESTS, num_steps: int = NUM_STEPS
) -> Iterator[Figure]:
    """All figures over one vocabulary."""
    if "record" in groups:
        yield from record_figures(words, sides, repeats, num_requests, num_steps)
    if "hard" in groups:
        yield from hard_figures(words, sides, repeats, hard_patterns())


def show(figures: Sequence[Figure], title: str, caption: str, console: Console) -> None:
    """The table; a figure that misses its aim is marked."""
    table = Table(title=title, caption=caption)
    for column in ("", "unit", "ramet", "aim", *PEERS, *(f"{peer} / ramet" for peer in PEERS)):
        table.add_column(column, justify="right" if column not in ("", "unit") else "left")
    for figure in figures:
        ours = figure.values.get("ramet")
        aim = "" if figure.aim is None else f"<= {figure.aim:g}" + (" MISSED" if isinstance(ours, float) and ours > figure.aim else "")
        refused = figure.more.get("refused", {})
        cells = [_cell(figure.values.get(name, "")) + "*" * (name in refused) for name in ("ramet", *PEERS)]
        ratios = []
        for peer in PEERS:
            ratio, wanted = figure.ratio(peer), figure.ratio_aims.get(peer)
            text = "" if ratio is None else f"{ratio:,.1f}"
            ratios.append(text + ("" if wanted is None or ratio is None else f" (>= {wanted:g}{'' if ratio >= wanted else ' MISSED'})"))
        table.add_row(figure.name, figure.unit, cells[0], aim, *cells[1:], *ratios)
    console.print(table)


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return value[:40]
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "num_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "has_numba": importlib.util.find_spec("numba") is not None,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="the model of the small vocabulary and of the rows that generate")
    parser.add_argument("--large-tokenizer", help="a tokenizer of about 131,000 words")
    parser.add_argument("--only", default="record,hard", help=f"groups of rows, of {', '.join(GROUPS)}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--requests", type=int, default=NUM_REQUESTS)
    parser.add_argument("--steps", type=int, default=NUM_STEPS)
    parser.add_argument("--peers", default=",".join(PEERS), help="the peers to run")
    parser.add_argument("--no-canonical", action="store_true", help="engine rows: leave out those under canonical masks")
    parser.add_argument("--out", help="add the figures to this file, a JSON line each")
    args = parser.parse_args()
    groups = args.only.split(",")
    if unknown := set(groups) - set(GROUPS):
        parser.error(f"unknown groups: {', '.join(sorted(unknown))}")
    console = Console(width=180)
    about = machine()
    lines: list[dict[str, Any]] = []
    vocabularies = [words_of_model(args.model), large_words(args.large_tokenizer)] if {"record", "hard"} & set(groups) else []
    for words in vocabularies:
        if words is None:
            console.print("no vocabulary of 131,000 words: give --large-tokenizer, or install mistral-common")
            continue
        sides = make_sides(words, [name for name in args.peers.split(",") if name])
        versions = {side.name: side.version for side in sides}
        figures = list(measure(words, sides, groups, args.repeats, args.requests, args.steps))
        caption = ", ".join(f"{name} {version}" for name, version in versions.items())
        show(figures, words.name, f"{caption}; {about['processor']}, {about['num_cores']} cores", console)
        for figure in figures:
            if agreed := figure.more.get("equal_masks"):
                console.print("masks beside ours: " + "; ".join(f"{name} {count}" for name, count in agreed.items()))
        lines += [{**asdict(figure), "versions": versions, "machine": about} for figure in figures]
    if "engine" in groups:
        from constraint_engine import engine_rows

        for row in engine_rows(args.model, pattern=RECORD, with_canonical=not args.no_canonical, console=console):
            lines.append({**row, "versions": {"ramet": Ours.version}, "machine": about})
    if args.out:
        with open(args.out, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


if __name__ == "__main__":
    main()
