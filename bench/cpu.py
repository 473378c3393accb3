"""SmolLM2-135M on this machine's CPU: prefill and decode, alone and with a shared prefix, beside transformers in the same run.

    python bench/cpu.py [--threads N] [--new-tokens 64] [--repeats 3] [--packed-weights auto|off] [--json FILE]

Both sides hold the same weights (those of the embedded GGUF file), use bfloat16 and the same number of threads, and take turns; each
figure is the best of `--repeats` turns, on a shared machine the one least disturbed. Prefill ends when every row has its first token;
decode is what follows.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import time
from collections.abc import Callable, Sequence
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
TEXT = "The sea is wide and blue. In the morning the boats go out, and in the evening they come back with fish for the market."
# What the project aims at: ours / transformers.
AIMS = {"prefill 1000": 1.0, "decode, batch 1": 2.5, "decode, batch 32, shared 700": 5.0}

Prompts = list[list[int]]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds until every row has its first token, and from there to the end."""

    prefill_s: float
    decode_s: float


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


def run_ours(engine: ramet.Engine, prompts: Prompts, num_new: int) -> Times:
    """One cold call, streamed so that the moment is seen when every row has its first token."""
    engine.flush_cache()
    params = {"max_new_tokens": num_new, "temperature": 0, "ignore_eos": True}
    start = first = time.perf_counter()
    started: set[int] = set()
    num_tokens = 0
    for reply in engine.generate(input_ids=prompts, sampling_params=params, stream=True):
        num_tokens += 1
        if reply.get("index", 0) not in started:
            started.add(reply.get("index", 0))
            first = time.perf_counter()
    end = time.perf_counter()
    assert num_tokens == len(prompts) * num_new, "a token a chunk"
    return Times(first - start, end - first)


def run_theirs(model: Any, prompts: Prompts, num_new: int) -> Times:
    ids = torch.tensor(prompts)
    steps: list[float] = []

    def note(*_: Any, **__: Any) -> torch.Tensor:
        steps.append(time.perf_counter())
        return torch.zeros(len(ids), dtype=torch.bool)

    start = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=num_new,
            min_new_tokens=num_new,
            do_sample=False,
            pad_token_id=2,
            stopping_criteria=[note],
        )
    end = time.perf_counter()
    assert out.shape[1] == ids.shape[1] + num_new and len(steps) == num_new
    return Times(steps[0] - start, end - steps[0])


def best(sides: Sequence[Callable[[], Times]], repeats: int) -> list[Times]:
    """The least times of each side; the sides take turns, so that a busy minute of the machine hits both."""
    turns = [[side() for side in sides] for _ in range(repeats)]
    return [Times(min(t.prefill_s for t in of), min(t.decode_s for t in of)) for of in zip(*turns, strict=True)]


def compare(engine: ramet.Engine, model: Any) -> float:
    """Mean difference of the two sides' logprobs of a text's tokens; both are bfloat16, so it is not zero."""
    ids = engine.tokenizer.encode(TEXT)
    meta = engine.generate(input_ids=ids, sampling_params={"max_new_tokens": 0}, return_logprob=True, logprob_start_len=1)["meta_info"]
    ours = torch.tensor([value[0] for value in meta["input_token_logprobs"]])
    with torch.inference_mode():
        logprobs = model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
    theirs = logprobs[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    return float((ours - theirs).abs().mean())


def measure(engine: ramet.Engine, model: Any, num_new: int, repeats: int) -> list[Figure]:
    """All figures; the first runs warm up and do not count."""
    rng = random.Random(0)

    def ids(length: int) -> list[int]:
        return [rng.randrange(100, 40_000) for _ in range(length)]

    def both(prompts: Prompts, num: int) -> list[Times]:
        return best([lambda: run_ours(engine, prompts, num), lambda: run_theirs(model, prompts, num)], repeats)

    best([lambda: run_ours(engine, [ids(64)], 4), lambda: run_theirs(model, [ids(64)], 4)], 1)
    figures = []
    ours, theirs = both([ids(PREFILL_LEN)], 1)
    figures.append(Figure(f"prefill {PREFILL_LEN}", PREFILL_LEN / ours.prefill_s, PREFILL_LEN / theirs.prefill_s))
    shared = ids(SHARED_LEN)
    for prefix, label in (([], ""), (shared, f", shared {SHARED_LEN}")):
        for batch in BATCH_SIZES:
            prompts = [[*prefix, *ids(OWN_LEN)] for _ in range(batch)]
            ours, theirs = both(prompts, num_new)
            if prefix:
                num_prompt = sum(map(len, prompts))
                figures.append(Figure(f"prefill, batch {batch}{label}", num_prompt / ours.prefill_s, num_prompt / theirs.prefill_s))
            num_drawn = batch * (num_new - 1)
            figures.append(Figure(f"decode, batch {batch}{label}", num_drawn / ours.decode_s, num_drawn / theirs.decode_s))
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
        difference = compare(engine, model)
        figures = measure(engine, model, args.new_tokens, args.repeats)
    versions = f"ramet {ramet.__version__}, transformers {transformers.__version__}, torch {torch.__version__}"
    table = Table(title=f"{MODEL}, bfloat16, {args.threads} threads, packed_weights={args.packed_weights}", caption=versions)
    for column in ("tokens/s", "ramet", "transformers", "ratio", "aim"):
        table.add_column(column, justify="left" if column == "tokens/s" else "right")
    for figure in figures:
        aim = AIMS.get(figure.name)
        table.add_row(figure.name, f"{figure.ours:,.0f}", f"{figure.theirs:,.0f}", f"{figure.ratio:.2f}", f"{aim:.1f}" if aim else "")
    console = Console(width=100)
    console.print(table)
    console.print(f"prompt logprobs of the two sides differ by {difference:.3f} on average")
    if args.json:
        record = {
            "model": MODEL,
            "threads": args.threads,
            "packed_weights": args.packed_weights,
            "versions": versions,
            "processor": platform.processor() or platform.machine(),
            "mean_logprob_difference": difference,
            "capability": torch.backends.cpu.get_cpu_capability(),
            "figures": [asdict(figure) | {"ratio": figure.ratio} for figure in figures],
        }
        with open(args.json, "w") as file:
            json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
