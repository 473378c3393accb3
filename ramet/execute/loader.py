"""From options to a runner."""

from __future__ import annotations

import torch

from ramet.attention import ATTENTION
from ramet.config import CacheOptions, ModelOptions
from ramet.errors import ConfigError
from ramet.execute.device import resolve_device, resolve_dtype
from ramet.execute.memory import make_pool, size_pool
from ramet.execute.runner import ModelRunner
from ramet.layers.placement import Storage
from ramet.models import Decoder, load_weights, read_config
from ramet.weights import ModelFiles, iterate_weights, resolve_model


def load_runner(options: ModelOptions, cache: CacheOptions, files: ModelFiles | None = None) -> ModelRunner:
    """Find, build and fill a model; `files` are those of `resolve_model(options)` when the caller has them already.

    Sets torch's number of threads for the whole process when `options.num_threads` says so. Raises ConfigError and ModelError.
    """
    device = resolve_device(options.device)
    dtype = resolve_dtype(options.dtype, device)
    if options.num_threads is not None:
        torch.set_num_threads(options.num_threads)
    files = files or resolve_model(options)
    config = read_config(files.config, options.context_length)
    storage = Storage(dtype, device, _packing(options.packed_weights, dtype, device))
    model = Decoder(config, storage)
    shapes = {name: place.shape for name, place in model.places().items()}
    load_weights(model, iterate_weights(files, dtype, shapes=shapes, seed=options.random_seed))
    kv = make_pool(config, size_pool(config, dtype, device, cache), dtype, device)
    return ModelRunner(model, kv, ATTENTION.get("cpu" if device.type == "cpu" else "reference"))


def _packing(option: str, dtype: torch.dtype, device: torch.device) -> str:
    """Packed kernels take bfloat16 on a CPU; elsewhere `auto` packs nothing and the others are refused."""
    if option == "off" or (device.type == "cpu" and dtype == torch.bfloat16):
        return option
    if option == "auto":
        return "off"
    raise ConfigError("packed_weights", option, f"works on a CPU in bfloat16, not on {device} in {dtype}; use off or auto")
