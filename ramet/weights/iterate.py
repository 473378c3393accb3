"""The weight formats, by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch

from ramet.registry import Registry
from ramet.weights.dummy import iterate_dummy
from ramet.weights.gguf import iterate_gguf
from ramet.weights.named import NamedWeight
from ramet.weights.safetensors import iterate_safetensors
from ramet.weights.source import ModelFiles

Shapes = Mapping[str, tuple[int, ...]]
Reader = Callable[[ModelFiles, torch.dtype, Shapes, int], Iterator[NamedWeight]]


def _safetensors(files: ModelFiles, dtype: torch.dtype, shapes: Shapes, seed: int) -> Iterator[NamedWeight]:
    return iterate_safetensors(files.weight_files, dtype)


def _gguf(files: ModelFiles, dtype: torch.dtype, shapes: Shapes, seed: int) -> Iterator[NamedWeight]:
    assert files.gguf is not None, "files of kind gguf carry the header"
    return iterate_gguf(files.gguf, dtype)


def _dummy(files: ModelFiles, dtype: torch.dtype, shapes: Shapes, seed: int) -> Iterator[NamedWeight]:
    assert shapes, "dummy weights are made for the names and shapes that the model asks for"
    return iterate_dummy(shapes, dtype, seed)


FORMATS: Registry[Reader] = Registry("load_format")
FORMATS.add("safetensors", _safetensors)
FORMATS.add("gguf", _gguf)
FORMATS.add("dummy", _dummy)


def iterate_weights(files: ModelFiles, dtype: torch.dtype, *, shapes: Shapes | None = None, seed: int = 0) -> Iterator[NamedWeight]:
    """The tensors of a model under Hugging Face's names, one after another, each read when it is asked for.

    `shapes` (Hugging Face name to shape) and `seed` say what the dummy kind makes; files with weights do not look at them.
    Raises WeightError naming what is wrong with which file or tensor.
    """
    return FORMATS.get(files.kind)(files, dtype, shapes or {}, seed)
