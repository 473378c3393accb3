"""How many tokens the KV pool holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from ramet.config import CacheOptions
from ramet.errors import ConfigError
from ramet.models import ModelConfig

# A laptop's memory belongs to others too: without `max_total_tokens` the pool on a CPU takes no more than this.
CPU_MAX_CONTEXTS: Final = 16
CPU_MAX_BYTES: Final = 2 << 30
MIN_SLOTS: Final = 16  # fewer cannot serve a request worth the name
_MEMINFO: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


def token_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """Bytes of the keys and values of one token, all layers together."""
    return config.num_layers * 2 * config.num_kv_heads * config.head_dim * dtype.itemsize


def size_pool(config: ModelConfig, dtype: torch.dtype, device: torch.device, options: CacheOptions) -> int:
    """Slots of the pool: `max_total_tokens`, or what fits into `mem_fraction_static` of the memory that is free beside the weights.

    On a CPU the latter is capped at 16 requests of full length and 2 GiB, one full request at least if it fits.
    Raises ConfigError when the memory does not hold even a handful of tokens.
    """
    if options.max_total_tokens is not None:
        return options.max_total_tokens
    each = token_bytes(config, dtype)
    room = int(free_bytes(device) * options.mem_fraction_static) // each
    if device.type == "cpu":
        room = min(room, CPU_MAX_CONTEXTS * config.context_len, max(CPU_MAX_BYTES // each, config.context_len))
    if room < MIN_SLOTS:
        why = f"leaves room for {room} tokens of {each} bytes; raise it, free memory, or take a smaller model"
        raise ConfigError("mem_fraction_static", options.mem_fraction_static, why)
    return room


def free_bytes(device: torch.device) -> int:
    """Memory that can still be taken on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    available = _meminfo_available()
    if available is None:
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2  # no better source here: half of what is built in
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    return available if limit is None or used is None else max(0, min(available, limit - used))


def make_pool(config: ModelConfig, num_slots: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """Room for keys and values: one tensor a layer, [num_slots, 2 * num_kv_heads, head_dim], keys before values. Not initialised."""
    shape = (config.num_layers, num_slots, 2 * config.num_kv_heads, config.head_dim)
    return torch.empty(shape, dtype=dtype, device=device).unbind(0)


def _meminfo_available() -> int | None:
    if not _MEMINFO.is_file():
        return None
    for line in _MEMINFO.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _number(file: Path) -> int | None:
    """The number in a file of the control group; None for no file or no limit."""
    text = file.read_text().strip() if file.is_file() else ""
    return int(text) if text.isdigit() else None
