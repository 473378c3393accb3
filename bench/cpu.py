"""SmolLM2-135M on this machine's CPU: prefill and decode, alone and with a shared prefix, beside transformers in the same run.

    python bench/cpu.py [--threads N] [--new-tokens 64] [--repeats 3] [--packed-weights auto|off] [--json FILE]

Both sides hold the same weights (those of the embedded GGUF file), use bfloat16 and the same number of threads, and take turns; each
figure is the best of `--repeats` runs. Decode is the time of N new tokens less that of one, so prefill is not in it.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import transformers
from rich.console import Console
from rich.table import Table

import ramet
from ramet.config import ModelOptions
from ramet.weights import iterate_weights, resolve_model

MODEL = "smollm2-135m"
PREFILL_LEN = 1000
OWN_LEN = 32
SHARED_LEN = 700
BATCH_SIZES = (1, 8, 32)
# What the project aims at: ours / transformers.
AIMS = {"prefill 1000": 1.0, "decode, batch 1": 2.5, "decode, batch 32, shared 700": 5.0}

Prompts = list[list[int]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table; rates are tokens a second over the whole batch."""

    name: str
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


def load_transformers() -> Any:
    """The same weights in transformers' own Llama."""
    files = resolve_model(ModelOptions(model_path=MODEL))
    config = transformers.LlamaConfig(**{k: v for k, v in files.config.items() if k not in ("architectures", "model_type")})
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    state = {weight.name: weight.load() for weight in iterate_weights(files, torch.bfloat16)}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    model.tie_weights()
    return model.eval()


def run_ours(engine: ramet.Engine, prompts: Prompts, num_new: int) -> float:
    """Seconds of one cold call."""
    engine.flush_cache()
    params = {"max_new_tokens": num_new, "temperature": 0, "ignore_eos": True}
    start = time.perf_counter()
    replies = engine.generate(input_ids=prompts, sampling_params=params)
    taken = time.perf_counter() - start
    assert all(len(reply["output_ids"]) == num_new for reply in replies)
    return taken


def run_theirs(model: Any, prompts: Prompts, num_new: int) -> float:
    ids = torch.tensor(prompts)
    start = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=num_new,
            min_new_tokens=num_new,
            do_sample=False,
            pad_token_id=2,
        )
    taken = time.perf_counter() - start
    assert out.shape[1] == ids.shape[1] + num_new
    return taken


def best(runs: Callable[[], float], repeats: int) -> float:
    return min(runs() for _ in range(repeats))


def measure(engine: ramet.Engine, model: Any, num_new: int, repeats: int) -> list[Figure]:
    """All figures, the two sides in turn."""
    rng = random.Random(0)

    def ids(length: int) -> list[int]:
        return [rng.randrange(100, 40_000) for _ in range(length)]

    run_ours(engine, [ids(64)], 4)
    run_theirs(model, [ids(64)], 4)
    figures = []
    prompt = [ids(PREFILL_LEN)]
    figures.append(
        Figure(
            f"prefill {PREFILL_LEN}",
            PREFILL_LEN / best(lambda: run_ours(engine, prompt, 1), repeats),
            PREFILL_LEN / best(lambda: run_theirs(model, prompt, 1), repeats),
        )
    )
    shared = ids(SHARED_LEN)
    for prefix, label in (([], ""), (shared, f", shared {SHARED_LEN}")):
        for batch in BATCH_SIZES:
            prompts = [[*prefix, *ids(OWN_LEN)] for _ in range(batch)]
            rates = []
            for run in (lambda n, p=prompts: run_ours(engine, p, n), lambda n, p=prompts: run_theirs(model, p, n)):
                first = best(lambda run=run: run(1), repeats)
                whole = best(lambda run=run: run(num_new), repeats)
                rates.append((sum(map(len, prompts)) / first, batch * (num_new - 1) / (whole - first)))
            if prefix:
                figures.append(Figure(f"prefill, batch {batch}{label}", rates[0][0], rates[1][0]))
            figures.append(Figure(f"decode, batch {batch}{label}", rates[0][1], rates[1][1]))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--packed-weights", default="auto")
    parser.add_argument("--json", help="write the figures to this file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = load_transformers()
    options = {"dtype": "bfloat16", "num_threads": args.threads, "packed_weights": args.packed_weights, "max_total_tokens": 40_000}
    with ramet.Engine(MODEL, **options) as engine:
        figures = measure(engine, model, args.new_tokens, args.repeats)
    versions = f"ramet {ramet.__version__}, transformers {transformers.__version__}, torch {torch.__version__}"
    table = Table(title=f"{MODEL}, bfloat16, {args.threads} threads, packed_weights={args.packed_weights}", caption=versions)
    for column in ("tokens/s", "ramet", "transformers", "ratio", "aim"):
        table.add_column(column, justify="left" if column == "tokens/s" else "right")
    for figure in figures:
        aim = AIMS.get(figure.name)
        table.add_row(figure.name, f"{figure.ours:,.0f}", f"{figure.theirs:,.0f}", f"{figure.ratio:.2f}", f"{aim:.1f}" if aim else "")
    Console(width=100).print(table)
    if args.json:
        record = {
            "model": MODEL,
            "threads": args.threads,
            "packed_weights": args.packed_weights,
            "versions": versions,
            "processor": platform.processor() or platform.machine(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "figures": [asdict(figure) | {"ratio": figure.ratio} for figure in figures],
        }
        with open(args.json, "w") as file:
            json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
