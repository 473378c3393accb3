"""The rows of bench/constraint.py that run a model: how constraints bend what it says, and what jumping over forced text saves."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

import ramet
from ramet.constraint.vocabulary import Vocabulary

NUM_RECORDS = 32
MAX_RECORD_LEN = 256
FOR_THE_FILE = ("texts",)
LEAST_MASS = 1e-3  # ways of spelling less likely than this are left out of the distribution under masks
NAMES = (
    "Harry Potter,Hermione Granger,Ron Weasley,Albus Dumbledore,Severus Snape,Rubeus Hagrid,Draco Malfoy,Sirius Black,Remus Lupin,"
    "Luna Lovegood,Neville Longbottom,Ginny Weasley,Minerva McGonagall,Lord Voldemort,Bellatrix Lestrange,Cedric Diggory,Cho Chang,"
    "Fleur Delacour,Viktor Krum,Dolores Umbridge,Gilderoy Lockhart,Nymphadora Tonks,Alastor Moody,Peter Pettigrew,Lucius Malfoy,"
    "Fred Weasley,George Weasley,Molly Weasley,Arthur Weasley,Percy Weasley,Filius Flitwick,Pomona Sprout"
)


@dataclass(frozen=True, slots=True)
class EnumPrompt:
    """A text, and what may follow it; no option is the beginning of another."""

    text: str
    options: tuple[str, ...]


def enum_prompts(is_json: bool) -> list[EnumPrompt]:
    """Thirty of them, with 3 to 8 options: inside a JSON string, or behind a colon, where each option begins with a blank."""
    rows = [
        ("The soup was cold and the waiter rude.", "sentiment", "positive negative neutral"),
        ("What a wonderful evening, thank you all!", "sentiment", "delighted disappointed indifferent angry"),
        ("The sky on a clear day.", "color", "red green blue yellow"),
        ("Fresh snow.", "color", "white black orange purple brown"),
        ("The capital of France.", "city", "Berlin Madrid Paris Rome Vienna"),
        ("The largest city of Japan.", "city", "Osaka Kyoto Tokyo Nagoya Sapporo"),
        ("It barks and guards the house.", "animal", "cat dog horse goldfish"),
        ("It lives in the sea and has eight arms.", "animal", "octopus whale shark lobster penguin"),
        ("My screen stays black when I press the button.", "category", "hardware software billing shipping"),
        ("I was charged twice this month.", "category", "hardware software billing shipping account"),
        ("Please answer within the hour, the server is down.", "priority", "low medium high urgent"),
        ("Whenever you find the time.", "priority", "low medium high urgent"),
        ("def f(x): return x + 1", "language", "python javascript haskell fortran"),
        ("SELECT name FROM users WHERE id = 1", "language", "sql python rust bash perl"),
        ("Guten Morgen, wie geht es dir?", "language", "English French German Spanish Italian"),
        ("Buenos días, ¿cómo estás?", "language", "English French German Spanish Italian Portuguese"),
        ("Water at 150 degrees Celsius.", "state", "solid liquid gas"),
        ("Iron at room temperature.", "state", "solid liquid gas plasma"),
        ("Seven days from Monday.", "day", "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
        ("The month of Christmas.", "month", "January March June September October November December"),
        ("A violin.", "family", "strings brass woodwind percussion"),
        ("A trumpet.", "family", "strings brass woodwind percussion keyboard"),
        ("E = mc^2", "field", "physics chemistry biology history literature"),
        ("The French Revolution.", "field", "physics chemistry biology history literature geography"),
        ("Two plus two.", "result", "three four five six"),
        ("It rained all day and the streets were flooded.", "weather", "sunny rainy snowy windy foggy"),
        ("A story about a detective who looks for a murderer.", "genre", "crime romance fantasy comedy western"),
        ("A story about dragons and wizards.", "genre", "crime romance fantasy comedy western biography"),
        ("Is the earth flat?", "answer", "yes no unknown"),
        ("Bread, butter and jam.", "meal", "breakfast lunch dinner supper dessert snack brunch picnic"),
    ]
    if is_json:
        prompts = [EnumPrompt(f'{text}\n{{"{key}": "', tuple(options.split())) for text, key, options in rows]
    else:
        prompts = [EnumPrompt(f"{text}\nThe {key}:", tuple(f" {option}" for option in options.split())) for text, key, options in rows]
    assert len(prompts) == 30 and all(3 <= len(prompt.options) <= 8 for prompt in prompts)
    return prompts


def engine_rows(model: str, *, pattern: str, with_canonical: bool, console: Console) -> Iterator[dict[str, Any]]:
    """All rows that need the model, printed as they come."""
    groups = (
        ("30 enum prompts in JSON, float32", partial(enum_rows, model, enum_prompts(True), with_canonical=with_canonical)),
        ("30 enum prompts behind a colon, float32", partial(enum_rows, model, enum_prompts(False), with_canonical=with_canonical)),
        ("one character record, greedy", partial(step_rows, model, pattern)),
        (f"{NUM_RECORDS} character records at once, greedy, float32", partial(throughput_rows, model, pattern, dtype="float32")),
        (f"{NUM_RECORDS} character records at once, greedy, bfloat16", partial(throughput_rows, model, pattern, dtype="bfloat16")),
    )
    for title, make in groups:
        rows = list(make())
        table = Table(title=f"{model}: {title}")
        columns = [column for column in rows[0] if column not in FOR_THE_FILE]
        for column in columns:
            table.add_column(column.replace("_", " "))
        for row in rows:
            table.add_row(*(f"{row[name]:.3f}" if isinstance(row[name], float) else str(row[name]) for name in columns))
        console.print(table)
        yield from ({"row": title, "model": model, **row} for row in rows)


def enum_rows(model: str, prompts: Sequence[EnumPrompt], *, with_canonical: bool, **options: Any) -> Iterator[dict[str, Any]]:
    """How often the greedy text is the likeliest option, and how far the options' probabilities under masks are from the exact ones.

    The truth is the probability of each option's own tokens behind the prompt, one run for each, divided by their sum. In float32, so that
    the shape of a batch changes nothing.
    """
    modes = ["never", *(["always"] if with_canonical else [])]
    truths: list[list[float]] = []
    for mode in modes:
        with ramet.Engine(model, canonical_masks=mode, jump_forward="off", dtype="float32", **options) as engine:
            if not truths:
                truths = [truth(engine, prompt) for prompt in prompts]
                scored = [[math.fsum(score.logprobs) for score in engine.score(prompt.text, prompt.options)] for prompt in prompts]
                yield {
                    "way": "exact scores",
                    "argmax_right": f"{sum(map(same_argmax, truths, scored))} of {len(prompts)}",
                    "mean_total_variation": mean(total_variation(a, softmax(b)) for a, b in zip(truths, scored, strict=True)),
                    "texts": [prompt.options[argmax(p)] for prompt, p in zip(prompts, truths, strict=True)],
                }
            texts = [reply["text"] for reply in engine.generate([prompt.text for prompt in prompts], enum_params(prompts))]
            right = sum(text == prompt.options[argmax(p)] for text, prompt, p in zip(texts, prompts, truths, strict=True))
            spread = [under_masks(engine, prompt) if mode == "never" else under_canonical(engine, prompt) for prompt in prompts]
            yield {
                "way": "greedy, all masks" if mode == "never" else "greedy, canonical masks",
                "argmax_right": f"{right} of {len(prompts)}",
                "mean_total_variation": mean(total_variation(a, b) for a, b in zip(truths, spread, strict=True)),
                "texts": texts,
            }


def enum_params(prompts: Sequence[EnumPrompt]) -> list[dict[str, Any]]:
    return [{"choices": list(prompt.options), "temperature": 0, "max_new_tokens": 32} for prompt in prompts]


def truth(engine: ramet.Engine, prompt: EnumPrompt) -> list[float]:
    """The probability of each option among the options: that of its text as the tokenizer spells it."""
    own = engine.tokenizer.encode(prompt.text)
    logprobs: list[float] = []
    for option in prompt.options:
        ids = engine.tokenizer.encode(prompt.text + option)
        assert ids[: len(own)] == own, f"{prompt.text!r} and {option!r} share a token"
        reply = engine.generate(
            input_ids=ids, sampling_params={"max_new_tokens": 0}, return_logprob=True, logprob_start_len=len(own)
        )  # the logprob of the first token is that of what follows the prompt
        values = [value for value, *_ in reply["meta_info"]["input_token_logprobs"]]
        assert len(values) == len(ids) - len(own)
        logprobs.append(math.fsum(values))
    return softmax(logprobs)


def under_canonical(engine: ramet.Engine, prompt: EnumPrompt) -> list[float]:
    """The options' probabilities when each token is drawn among the tokenizer's own spellings of the options."""
    scores = engine.score(prompt.text, prompt.options)
    result: list[float] = []
    for score in scores:
        probability = 1.0
        for at in range(len(score.token_ids)):
            # Each option that begins alike stands for its next token; equal tokens count once.
            nexts = {
                other.token_ids[at]: other.logprobs[at]
                for other in scores
                if other.token_ids[:at] == score.token_ids[:at] and len(other.token_ids) > at
            }
            probability *= math.exp(score.logprobs[at]) / math.fsum(math.exp(value) for value in nexts.values())
        result.append(probability)
    return result


def under_masks(engine: ramet.Engine, prompt: EnumPrompt) -> list[float]:
    """The options' probabilities when each token is drawn among all that fit, over all ways of spelling an option that count."""
    vocabulary = Vocabulary.from_tokenizer(engine.tokenizer)
    own = engine.tokenizer.encode(prompt.text)
    found = dict.fromkeys(prompt.options, 0.0)
    todo: list[tuple[tuple[int, ...], bytes, float]] = [((), b"", 1.0)]
    pieces: dict[bytes, int] = {}
    for token_id, piece in enumerate(vocabulary.pieces):
        if piece:
            pieces.setdefault(piece, token_id)
    while todo:
        path, text, mass = todo.pop()
        if text.decode(errors="ignore") in found:
            found[text.decode()] += mass
            continue
        rest = [option.encode()[len(text) :] for option in prompt.options if option.encode().startswith(text)]
        allowed = sorted({pieces[tail[:size]] for tail in rest for size in range(1, len(tail) + 1) if tail[:size] in pieces})
        if mass < LEAST_MASS or not allowed:
            continue
        reply = engine.generate(
            input_ids=[*own, *path], sampling_params={"max_new_tokens": 1, "temperature": 0}, return_logprob=True, token_ids_logprob=allowed
        )
        picked = {token_id: value for value, token_id, *_ in reply["meta_info"]["output_token_ids_logprobs"][0]}
        whole = math.fsum(math.exp(picked[token_id]) for token_id in allowed)
        for token_id in allowed:
            share = math.exp(picked[token_id]) / whole
            todo.append(((*path, token_id), text + vocabulary.piece(token_id), mass * share))
    total = math.fsum(found.values())
    return [found[option] / total for option in prompt.options]


def step_rows(model: str, pattern: str) -> Iterator[dict[str, Any]]:
    """Tokens that had to be drawn for one record, in each way of jumping."""
    first = ""
    for mode in ("off", "heal", "retokenize"):
        with ramet.Engine(model, jump_forward=mode, canonical_masks="always") as engine:
            reply = engine.generate(record_prompt("Harry Potter"), record_params(pattern))
        meta = reply["meta_info"]
        first = first or reply["text"]
        yield {
            "jump_forward": mode,
            "tokens": meta["completion_tokens"],
            "sampled": meta["completion_tokens"] - meta["forced_tokens"],
            "noncanonical": meta["noncanonical"],
            "masked_mass": meta["masked_mass"],
            "text": "equal" if reply["text"] == first else "differs",
            "texts": [reply["text"]],
        }


def throughput_rows(model: str, pattern: str, *, dtype: str, repeats: int = 2) -> Iterator[dict[str, Any]]:
    """Records a second in one batch, jumping or not; the texts must be equal."""
    prompts = [record_prompt(name) for name in NAMES.split(",")][:NUM_RECORDS]
    texts: dict[str, list[str]] = {}
    times: dict[str, float] = {}
    options: dict[str, Any] = {"canonical_masks": "always", "dtype": dtype, "max_total_tokens": 40_000}
    engines = {mode: ramet.Engine(model, jump_forward=mode, **options) for mode in ("heal", "off")}
    try:
        for mode, engine in engines.items():
            engine.generate(prompts[0], record_params(pattern))  # compiles the pattern, and the kernels where they are compiled
            times[mode] = math.inf
        for _ in range(repeats):  # the sides take turns
            for mode, engine in engines.items():
                engine.flush_cache()
                start = time.perf_counter()
                texts[mode] = [reply["text"] for reply in engine.generate(prompts, record_params(pattern))]
                times[mode] = min(times[mode], time.perf_counter() - start)
    finally:
        for engine in engines.values():
            engine.shutdown()
    num_equal = sum(a == b for a, b in zip(texts["heal"], texts["off"], strict=True))
    for mode in engines:
        yield {
            "jump_forward": mode,
            "records_per_s": len(prompts) / times[mode],
            "times_off": times["off"] / times[mode],
            "equal_texts": f"{num_equal} of {len(prompts)}",
        }


def record_prompt(name: str) -> str:
    return f"{name} is a character in Harry Potter. Please fill in the following information about this character.\n"


def record_params(pattern: str) -> dict[str, Any]:
    return {"regex": pattern, "temperature": 0, "max_new_tokens": MAX_RECORD_LEN}


def softmax(logprobs: Sequence[float]) -> list[float]:
    top = max(logprobs)
    weights = [math.exp(value - top) for value in logprobs]
    return [weight / math.fsum(weights) for weight in weights]


def argmax(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def same_argmax(left: Sequence[float], right: Sequence[float]) -> bool:
    return argmax(left) == argmax(right)


def total_variation(left: Sequence[float], right: Sequence[float]) -> float:
    """Half the sum of the differences of two distributions."""
    return math.fsum(abs(a - b) for a, b in zip(left, right, strict=True)) / 2


def mean(values: Iterator[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)
