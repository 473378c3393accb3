"""Which device and which dtype."""

from __future__ import annotations

from typing import Final

import torch

from ramet.errors import ConfigError

DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve_device(device: str) -> torch.device:
    """The device of that name; auto is the first CUDA device, or the CPU. Raises ConfigError for one that is not there."""
    if device == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and (kind == "cpu" or not index.isdigit())):
        raise ConfigError("device", device, "must be cpu, cuda, cuda:N or auto")
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError("device", device, "no CUDA device is found; use device=cpu or a build of torch with CUDA")
    if int(index or 0) >= torch.cuda.device_count():
        raise ConfigError("device", device, f"there are {torch.cuda.device_count()} CUDA devices")
    return torch.device("cuda", int(index or 0))


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The dtype of that name; auto is bfloat16 where the device multiplies it in hardware, else float32."""
    if dtype != "auto":
        return DTYPES[dtype]
    return torch.bfloat16 if device.type == "cuda" or has_fast_bfloat16() else torch.float32


def has_fast_bfloat16() -> bool:
    """Whether this CPU has AMX tiles or AVX-512 instructions for bfloat16."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
