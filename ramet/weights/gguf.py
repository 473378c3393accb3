"""Tensors of a GGUF file under their Hugging Face names, multiplied out one by one from the mapped file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import torch

from ramet.errors import WeightError
from ramet.tokenizer.gguf_header import GgufHeader, GgufTensor
from ramet.weights.dequantize import FORMATS, OTHER_NAMES, BlockFormat, affine4, dequantize
from ramet.weights.named import Affine4, NamedWeight

_TOP_NAMES: Final[Mapping[str, str]] = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK_NAMES: Final[Mapping[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE_FACTORS: Final = "rope_freqs.weight"  # told to the model as rope_scaling in the config
_BLOCK: Final = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_HEAD_COUNT_OF: Final[Mapping[str, str]] = {"attn_q": "head_count", "attn_k": "head_count_kv"}


def hf_name(name: str) -> str | None:
    """The Hugging Face name of a tensor of a GGUF file; None for one that has none."""
    match = _BLOCK.fullmatch(name)
    if match:
        stem = _BLOCK_NAMES.get(match[2])
        return stem and f"model.layers.{match[1]}.{stem}.{match[3]}"
    stem, _, kind = name.rpartition(".")
    return f"{_TOP_NAMES[stem]}.{kind}" if stem in _TOP_NAMES and kind in ("weight", "bias") else None


def iterate_gguf(header: GgufHeader, dtype: torch.dtype) -> Iterator[NamedWeight]:
    """Every tensor of the file in file order, `rope_freqs.weight` apart.

    Query and key rows of the llama architecture, which the format stores interleaved, come back in Hugging Face's order. Raises WeightError
    naming the tensor: for a type that is not read, a name without a meaning, or data beyond the end of the file.
    """
    data = np.memmap(header.path, np.uint8, mode="c")  # copy on write: torch wants writable memory, the file must not change
    for tensor in header.tensors.values():
        if tensor.name == ROPE_FACTORS:
            continue
        name = hf_name(tensor.name)
        if name is None:
            raise WeightError(f"{header.path}: tensor {tensor.name!r} has no place in the architectures that are read from GGUF")
        yield _Stored(data, header, tensor).named(name, dtype)


class _Stored:
    """One tensor where it lies in the file."""

    def __init__(self, data: np.ndarray[tuple[int], np.dtype[np.uint8]], header: GgufHeader, tensor: GgufTensor) -> None:
        self._data = data
        self._tensor = tensor
        self._form = _format_of(header, tensor)
        row_len = tensor.shape[-1] if tensor.shape else 1
        if row_len % self._form.block_len:
            raise WeightError(f"{header.path}: tensor {tensor.name!r} has rows of {row_len}, not whole blocks of {self._form.name}")
        self._row_bytes = row_len // self._form.block_len * self._form.block_bytes
        self._num_rows = math.prod(tensor.shape[:-1])
        if tensor.offset_bytes + self._num_rows * self._row_bytes > len(data):
            raise WeightError(f"{header.path} is cut short: tensor {tensor.name!r} reaches beyond its end; fetch the file again")
        self._num_heads = _interleaved_heads(header, tensor)

    def named(self, name: str, dtype: torch.dtype) -> NamedWeight:
        return NamedWeight(
            name,
            self._tensor.shape,
            load=lambda: self._load(dtype),
            affine4=self._affine4,
        )

    def _load(self, dtype: torch.dtype) -> torch.Tensor:
        weights = dequantize(self._rows(), self._form, dtype).view(self._tensor.shape)
        if self._num_heads and len(self._tensor.shape) == 1:  # a bias: its rows are its elements
            return weights[_deinterleave(len(weights), self._num_heads)]
        return weights

    def _affine4(self) -> Affine4 | None:
        return affine4(self._rows(), self._form) if len(self._tensor.shape) == 2 else None

    def _rows(self) -> torch.Tensor:
        """[rows, row_bytes] uint8, rows in Hugging Face's order."""
        start = self._tensor.offset_bytes
        flat = torch.from_numpy(self._data[start : start + self._num_rows * self._row_bytes])
        rows = flat.view(self._num_rows, self._row_bytes)
        if self._num_heads and len(self._tensor.shape) == 2:
            return rows[_deinterleave(self._num_rows, self._num_heads)]
        return rows


def _format_of(header: GgufHeader, tensor: GgufTensor) -> BlockFormat:
    form = FORMATS.get(tensor.type_id)
    if form is None:
        name = OTHER_NAMES.get(tensor.type_id, f"number {tensor.type_id}")
        known = ", ".join(form.name for form in FORMATS.values())
        raise WeightError(f"{header.path}: tensor {tensor.name!r} is of type {name}, which is not read; files with {known} are")
    return form


def _interleaved_heads(header: GgufHeader, tensor: GgufTensor) -> int:
    """Number of heads whose rows the format stores interleaved; 0 when the tensor is stored plainly."""
    match = _BLOCK.fullmatch(tensor.name)
    if header.metadata.get("general.architecture") != "llama" or match is None or match[2] not in _HEAD_COUNT_OF:
        return 0
    num_query_heads = header.metadata["llama.attention.head_count"]
    return int(header.metadata.get(f"llama.attention.{_HEAD_COUNT_OF[match[2]]}", num_query_heads))


def _deinterleave(num_rows: int, num_heads: int) -> torch.Tensor:
    """Where each row of Hugging Face's order lies in the file: a head's rotary pairs (i, i + half) stand next to each other there."""
    half = num_rows // num_heads // 2
    return torch.arange(num_rows).view(num_heads, half, 2).transpose(1, 2).reshape(-1)
