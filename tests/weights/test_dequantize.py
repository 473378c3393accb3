"""Every block format against a scalar reference written from the format's definition, and against the gguf library."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from ramet.config import ModelOptions
from ramet.errors import WeightError
from ramet.tokenizer.gguf_header import read_gguf_header
from ramet.weights import iterate_weights, resolve_model
from ramet.weights.dequantize import FORMATS, OTHER_NAMES, affine4, dequantize
from ramet.weights.gguf import iterate_gguf

NAME_TO_ID = {form.name: type_id for type_id, form in FORMATS.items()}
HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}


def half(block: bytes, at: int) -> float:
    return float(struct.unpack_from("<e", block, at)[0])


def q4_0(b: bytes) -> list[float]:
    return [half(b, 0) * (((b[2 + i % 16] >> (4 * (i // 16))) & 15) - 8) for i in range(32)]


def q4_1(b: bytes) -> list[float]:
    return [half(b, 0) * ((b[4 + i % 16] >> (4 * (i // 16))) & 15) + half(b, 2) for i in range(32)]


def q5(b: bytes, at: int, i: int) -> int:
    high = int.from_bytes(b[at : at + 4], "little") >> i & 1
    return ((b[at + 4 + i % 16] >> (4 * (i // 16))) & 15) | high << 4


def q5_0(b: bytes) -> list[float]:
    return [half(b, 0) * (q5(b, 2, i) - 16) for i in range(32)]


def q5_1(b: bytes) -> list[float]:
    return [half(b, 0) * q5(b, 4, i) + half(b, 2) for i in range(32)]


def q8_0(b: bytes) -> list[float]:
    return [half(b, 0) * struct.unpack_from("<b", b, 2 + i)[0] for i in range(32)]


def k_scale(b: bytes, j: int) -> tuple[int, int]:
    s = b[4:16]
    if j < 4:
        return s[j] & 63, s[j + 4] & 63
    return (s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4


def q4_k(b: bytes) -> list[float]:
    out = []
    for i in range(256):
        j = i // 32
        scale, minimum = k_scale(b, j)
        q = b[16 + 32 * (j // 2) + i % 32] >> (4 * (j % 2)) & 15
        out.append(half(b, 0) * scale * q - half(b, 2) * minimum)
    return out


def q5_k(b: bytes) -> list[float]:
    out = []
    for i in range(256):
        j = i // 32
        scale, minimum = k_scale(b, j)
        q = (b[48 + 32 * (j // 2) + i % 32] >> (4 * (j % 2)) & 15) | (b[16 + i % 32] >> j & 1) << 4
        out.append(half(b, 0) * scale * q - half(b, 2) * minimum)
    return out


def q6_k(b: bytes) -> list[float]:
    out = []
    for i in range(256):
        part, j, k = i // 128, i % 128 // 32, i % 32
        low = b[64 * part + 32 * (j % 2) + k] >> (4 * (j // 2)) & 15
        high = b[128 + 32 * part + k] >> (2 * j) & 3
        scale = struct.unpack_from("<b", b, 192 + i // 16)[0]
        out.append(half(b, 208) * scale * ((low | high << 4) - 32))
    return out


SCALAR: dict[str, Callable[[bytes], list[float]]] = {
    "F32": lambda b: list(struct.unpack("<f", b)),
    "F16": lambda b: list(struct.unpack("<e", b)),
    "BF16": lambda b: list(struct.unpack("<f", b"\0\0" + b)),
    "Q4_0": q4_0, "Q4_1": q4_1, "Q5_0": q5_0, "Q5_1": q5_1, "Q8_0": q8_0, "Q4_K": q4_k, "Q5_K": q5_k, "Q6_K": q6_k,
}  # fmt: skip


def random_blocks(name: str, num_rows: int, blocks_per_row: int) -> np.ndarray:
    """[rows, row_bytes] random bytes whose float16 fields are finite and of the size that real scales have."""
    form = FORMATS[NAME_TO_ID[name]]
    rng = np.random.default_rng(7)
    if form.block_len == 1:
        values = torch.from_numpy(rng.normal(size=(num_rows, blocks_per_row)).astype("f4"))
        kind = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[name]
        return values.to(kind).view(torch.uint8).numpy()
    blocks = rng.integers(0, 256, (num_rows * blocks_per_row, form.block_bytes), dtype=np.uint8)
    for at in HALVES[name]:
        blocks[:, at : at + 2] = (rng.normal(size=len(blocks)) / 8).astype("<f2")[:, None].view(np.uint8)
    return blocks.reshape(num_rows, -1)


@pytest.mark.parametrize("name", sorted(NAME_TO_ID))
def test_equal_to_the_definition_and_to_the_library(name: str) -> None:
    form = FORMATS[NAME_TO_ID[name]]
    raw = random_blocks(name, num_rows=5, blocks_per_row=3)
    found = dequantize(torch.from_numpy(raw), form, torch.float32)
    assert found.shape == (5, 3 * form.block_len)
    blocks = raw.reshape(-1, form.block_bytes)
    by_definition = np.array([SCALAR[name](bytes(block)) for block in blocks])  # float64: exact products, rounded once below
    scale = np.abs(by_definition).max()
    np.testing.assert_allclose(found.numpy().reshape(by_definition.shape), by_definition, rtol=0, atol=float(scale) * 2**-23)
    by_library = gguf.quants.dequantize(raw if name != "F32" else raw.view("f4"), gguf.GGMLQuantizationType(NAME_TO_ID[name]))
    assert np.array_equal(found.numpy(), by_library.reshape(found.shape))


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1"])
def test_four_bit_form_multiplies_out_to_the_same_weights(name: str) -> None:
    form = FORMATS[NAME_TO_ID[name]]
    raw = torch.from_numpy(random_blocks(name, num_rows=6, blocks_per_row=4))
    packed = affine4(raw, form)
    assert packed is not None
    assert packed.q.dtype == torch.uint8 and packed.q.shape == (6, 128) and int(packed.q.max()) <= 15
    assert packed.scale.shape == packed.minimum.shape == (6, 4) and packed.scale.dtype == torch.float32
    out = packed.q.float() * packed.scale.repeat_interleave(32, 1) + packed.minimum.repeat_interleave(32, 1)
    assert torch.equal(out, dequantize(raw, form, torch.float32))


def test_large_tensors_are_cut_into_parts_without_a_seam() -> None:
    raw = torch.from_numpy(random_blocks("Q8_0", num_rows=70, blocks_per_row=2048))  # 4.6 million weights
    form = FORMATS[NAME_TO_ID["Q8_0"]]
    whole = form.decode(raw.reshape(-1, form.block_bytes)).view(70, -1)
    assert torch.equal(dequantize(raw, form, torch.bfloat16), whole.bfloat16())


def test_names_of_types_are_those_of_the_format() -> None:
    for type_id, name in {**{k: form.name for k, form in FORMATS.items()}, **OTHER_NAMES}.items():
        assert gguf.GGMLQuantizationType(type_id).name == name
    for type_id, form in FORMATS.items():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(type_id)] == (form.block_len, form.block_bytes)


def write_model(path: Path, arch: str, tensors: dict[str, tuple[np.ndarray, int | None]]) -> None:
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(256)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    for name, (data, type_id) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=None if type_id is None else gguf.GGMLQuantizationType(type_id))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("name", sorted(NAME_TO_ID))
def test_through_a_file(name: str, tmp_path: Path) -> None:
    form = FORMATS[NAME_TO_ID[name]]
    raw = random_blocks(name, num_rows=8, blocks_per_row=256 // form.block_len)
    kinds = {"F32": np.float32, "F16": np.float16}
    data = raw.view(kinds[name]) if name in kinds else raw
    write_model(tmp_path / "m.gguf", "llama", {"token_embd.weight": (data, None if name in kinds else NAME_TO_ID[name])})
    (weight,) = iterate_weights(resolve_model(ModelOptions(model_path=str(tmp_path / "m.gguf"))), torch.float32)
    assert (weight.name, weight.shape) == ("model.embed_tokens.weight", (8, 256))
    assert torch.equal(weight.load(), dequantize(torch.from_numpy(raw), form, torch.float32))
    assert (weight.affine4() is not None) == (name in ("Q4_0", "Q4_1"))


@pytest.mark.parametrize("type_id", [10, 11, 20, 23, 27])
def test_another_type_is_refused_by_name(type_id: int, tmp_path: Path) -> None:
    block_len, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(type_id)]
    raw = np.zeros((4, 256 // block_len * block_bytes), np.uint8)
    write_model(tmp_path / "m.gguf", "llama", {"blk.0.ffn_up.weight": (raw, type_id)})
    with pytest.raises(WeightError, match=rf"'blk.0.ffn_up.weight' is of type {OTHER_NAMES[type_id]}, which is not read"):
        list(iterate_gguf(read_gguf_header(tmp_path / "m.gguf"), torch.float32))
