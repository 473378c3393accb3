"""The whole engine, cache and chunks included: same logprobs as transformers, same tokens on every device."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers

from ramet import Engine

CUDA = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")])
on_each_device = pytest.mark.parametrize("device", ["cpu", CUDA])
VOCAB_SIZE = 128
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Mistral": {"sliding_window": 10},
    "Qwen2": {},
    "Qwen3": {"head_dim": 16},
}


@pytest.fixture(params=FAMILIES)
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any]:
    """A tiny random model with a tokenizer of single bytes."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{request.param}Config")(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        **FAMILIES[request.param],
    )
    model = getattr(transformers, f"{request.param}ForCausalLM")(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({chr(33 + i): i for i in range(VOCAB_SIZE)}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path, model


def prompts() -> list[list[int]]:
    rng = random.Random(0)
    shared = [rng.randrange(VOCAB_SIZE) for _ in range(40)]
    return [[*shared, *(rng.randrange(VOCAB_SIZE) for _ in range(n))] for n in (1, 3, 9, 20)] + [[5, 6, 7]]


@on_each_device
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-3), ("bfloat16", 0.25)])
def test_logprobs_equal_those_of_transformers(checkpoint: tuple[Path, Any], dtype: str, tolerance: float, device: str) -> None:
    folder, model = checkpoint
    with Engine(str(folder), device=device, dtype=dtype, max_total_tokens=2048, chunked_prefill_size=16) as engine:
        engine.generate(input_ids=prompts()[0], sampling_params={"max_new_tokens": 0})  # the others find its prefix
        for ids in prompts():
            start = 38 if len(ids) > 38 else 1
            meta = engine.generate(input_ids=ids, sampling_params={"max_new_tokens": 0}, return_logprob=True, logprob_start_len=start)[
                "meta_info"
            ]
            assert meta["cached_tokens"] == (37 if start > 1 else 0)
            with torch.inference_mode():
                logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            expected = logprobs[start - 1 : -1].gather(1, torch.tensor(ids[start:])[:, None])[:, 0]
            found = torch.tensor([value[0] for value in meta["input_token_logprobs"]])
            assert float((found - expected).abs().mean()) < tolerance


@on_each_device
def test_tokens_equal_those_of_the_cpu(checkpoint: tuple[Path, Any], device: str) -> None:
    folder, _ = checkpoint
    params = {"temperature": 0, "max_new_tokens": 24, "ignore_eos": True}
    found = {}
    for place in ("cpu", device):
        with Engine(str(folder), device=place, dtype="float32", max_total_tokens=2048) as engine:
            cold = engine.generate(input_ids=prompts(), sampling_params=params)
            hot = engine.generate(input_ids=prompts(), sampling_params=params)
            seeded = engine.generate(input_ids=prompts(), sampling_params={**params, "temperature": 1.0, "top_p": 0.9, "seed": 7})
            found[place] = [[reply["output_ids"] for reply in replies] for replies in (cold, hot, seeded)]
            assert found[place][0] == found[place][1]
    assert found[device] == found["cpu"]


@on_each_device
def test_every_sampling_rule_and_a_pattern_run_on_the_device(checkpoint: tuple[Path, Any], device: str) -> None:
    folder, _ = checkpoint
    rules = {
        "temperature": 0.8, "top_p": 0.9, "top_k": 20, "min_p": 0.01, "frequency_penalty": 0.5, "presence_penalty": 0.5,
        "repetition_penalty": 1.1, "logit_bias": {"5": 2}, "min_new_tokens": 4, "max_new_tokens": 12, "seed": 3,
    }  # fmt: skip
    pattern = {"regex": "[a-c]{4}", "max_new_tokens": 12, "seed": 1}
    found = {}
    for place in ("cpu", device):
        with Engine(str(folder), device=place, dtype="float32", max_total_tokens=2048) as engine:
            replies = engine.generate(input_ids=[[1, 2, 3], [4, 5, 6], [1, 2, 3]], sampling_params=[rules, pattern, {"temperature": 0}])
            found[place] = [reply["output_ids"] for reply in replies]
            assert len(replies[1]["text"]) == 4 and set(replies[1]["text"]) <= set("abc")
            samples = engine.generate(input_ids=[1, 2, 3], sampling_params={"n": 3, "seed": 5, "max_new_tokens": 5, "ignore_eos": True})
            assert len({tuple(sample["output_ids"]) for sample in samples}) > 1
    assert found[device] == found["cpu"]
