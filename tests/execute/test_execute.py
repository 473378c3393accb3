"""Devices, memory and what the loader refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ramet.config import CacheOptions, ModelOptions
from ramet.errors import ConfigError
from ramet.execute.device import has_fast_bfloat16, resolve_device, resolve_dtype
from ramet.execute.loader import load_runner
from ramet.execute.memory import CPU_MAX_BYTES, CPU_MAX_CONTEXTS, free_bytes, size_pool, token_bytes
from ramet.execute.runner import ModelRunner, Runner
from ramet.models import read_config
from ramet.schedule.plan import Plan, Row, Span

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 100,
}
CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def dummy(folder: Path, dtype: str = "float32", **options: Any) -> ModelRunner:
    model = ModelOptions(model_path=str(folder), load_format="dummy", device="cpu", dtype=dtype, **options)
    return load_runner(model, CacheOptions(max_total_tokens=40))


def row(start: int, ids: list[int], num_logits: int = 1, context: tuple[Span, ...] = ()) -> Row:
    return Row("a", start, np.array(ids), np.arange(start, start + len(ids)), context, num_logits)


def test_dummy_model_runs(folder: Path) -> None:
    runner: Runner = dummy(folder)
    logits = runner.run(Plan((row(0, [1, 2, 3], num_logits=3),)))
    assert (logits.shape, logits.dtype, logits.device) == ((3, 50), torch.float32, CPU)
    assert (runner.vocab_size, runner.context_len, runner.num_slots, runner.device) == (50, 100, 40, CPU)
    again = dummy(folder).run(Plan((row(0, [1, 2, 3], num_logits=3),)))
    other = dummy(folder, random_seed=1).run(Plan((row(0, [1, 2, 3], num_logits=3),)))
    assert torch.equal(logits, again) and not torch.allclose(logits, other)


def test_no_logits_wanted(folder: Path) -> None:
    runner = dummy(folder)
    assert runner.run(Plan((row(0, [1, 2], num_logits=0),))).shape == (0, 50)
    whole = dummy(folder).run(Plan((row(0, [1, 2, 3]),)))
    rest = runner.run(Plan((row(2, [3], context=(Span(1, 0, np.arange(2)),)),)))
    torch.testing.assert_close(rest, whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        row(1, [1]),
        row(3, [1], context=(Span(1, 0, np.arange(2)),)),
        row(0, [1], num_logits=2),
        row(0, []),
        Row("a", 0, np.array([1, 2]), np.array([0]), (), 1),
    ],
)
def test_a_plan_that_contradicts_itself_is_our_fault(folder: Path, wrong: Row) -> None:
    with pytest.raises(AssertionError, match="row a"):
        dummy(folder).run(Plan((wrong,)))


@pytest.mark.parametrize(("dtype", "packed"), [("float32", "int4"), ("float32", "int8"), ("float16", "int8")])
def test_packing_needs_bfloat16(folder: Path, dtype: str, packed: str) -> None:
    with pytest.raises(ConfigError, match=f"packed_weights='{packed}'.*use off or auto"):
        dummy(folder, dtype, packed_weights=packed)


def test_int4_needs_four_bits(folder: Path) -> None:
    with pytest.raises(ConfigError, match="packed_weights='int4'"):
        dummy(folder, "bfloat16", packed_weights="int4")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_near_float32(folder: Path, dtype: str) -> None:
    plan = Plan((row(0, [4, 9, 2, 7], num_logits=4),))
    full = dummy(folder).run(plan)
    torch.testing.assert_close(dummy(folder, dtype).run(plan), full, rtol=0.05, atol=0.02 * float(full.abs().max()))


def test_devices() -> None:
    assert resolve_device("cpu") == CPU
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for wrong in ("gpu", "cuda:x", "cpu:1", "", "cuda:99"):
        with pytest.raises(ConfigError, match="device="):
            resolve_device(wrong)


def test_dtypes() -> None:
    assert resolve_dtype("float16", CPU) == torch.float16
    assert resolve_dtype("auto", CPU) == (torch.bfloat16 if has_fast_bfloat16() else torch.float32)
    assert resolve_dtype("auto", torch.device("cuda")) == torch.bfloat16


def test_pool_size(monkeypatch: pytest.MonkeyPatch) -> None:
    config = read_config(CONFIG)
    assert token_bytes(config, torch.bfloat16) == 2 * 2 * 2 * 8 * 2
    assert size_pool(config, torch.bfloat16, CPU, CacheOptions(max_total_tokens=77)) == 77
    assert size_pool(config, torch.bfloat16, CPU, CacheOptions()) == CPU_MAX_CONTEXTS * 100
    long = read_config({**CONFIG, "max_position_embeddings": 10**8})
    monkeypatch.setattr("ramet.execute.memory.free_bytes", lambda device: 10**15)
    assert size_pool(long, torch.bfloat16, CPU, CacheOptions()) == 10**8  # one context although it is more than the cap
    middle = read_config({**CONFIG, "max_position_embeddings": 2 * 10**6})
    assert size_pool(middle, torch.bfloat16, CPU, CacheOptions()) == CPU_MAX_BYTES // 128
    monkeypatch.setattr("ramet.execute.memory.free_bytes", lambda device: 128 * 100)
    assert size_pool(config, torch.bfloat16, CPU, CacheOptions(mem_fraction_static=0.5)) == 50
    with pytest.raises(ConfigError, match="mem_fraction_static=0.1: leaves room for 10 tokens of 128 bytes"):
        size_pool(config, torch.bfloat16, CPU, CacheOptions(mem_fraction_static=0.1))


def test_free_memory_is_that_of_this_machine() -> None:
    assert 2**20 < free_bytes(CPU) < 2**50
