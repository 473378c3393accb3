"""Tensors of safetensors files, one by one, from one file or from shards with an index."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from ramet.errors import WeightError
from ramet.weights.named import NamedWeight

SINGLE_NAME: Final = "model.safetensors"
INDEX_NAME: Final = "model.safetensors.index.json"
_SHARD: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d+)-of-(?P<total>\d+)\.safetensors")


def find_safetensors(folder: Path) -> tuple[Path, ...]:
    """The weight files of a folder in order; empty when it has none.

    Raises WeightError naming the first shard that the index lists (or the numbering promises) and the folder lacks.
    """
    if (folder / SINGLE_NAME).is_file():
        return (folder / SINGLE_NAME,)
    if (folder / INDEX_NAME).is_file():
        return tuple(_must_exist(folder / name, INDEX_NAME) for name in sorted(set(_weight_map(folder / INDEX_NAME).values())))
    files = sorted(folder.glob("*.safetensors"))
    shards = [match for file in files if (match := _SHARD.fullmatch(file.name))]
    if len(files) == len(shards) > 0 and len({(match["stem"], match["total"]) for match in shards}) == 1:
        stem, width, total = shards[0]["stem"], len(shards[0]["number"]), shards[0]["total"]
        names = (f"{stem}-{number:0{width}d}-of-{total}.safetensors" for number in range(1, int(total) + 1))
        return tuple(_must_exist(folder / name, "the numbering of the other files") for name in names)
    if len(files) > 1:
        raise WeightError(f"{folder} has {len(files)} safetensors files and no {INDEX_NAME}: which of them are the model is not said")
    return tuple(files)


def iterate_safetensors(files: Sequence[Path], dtype: torch.dtype) -> Iterator[NamedWeight]:
    """Every tensor of the files, file by file; one file is open at a time unless a caller keeps its weights.

    With an index beside the files, each file must hold exactly the tensors that the index puts into it. Raises WeightError for a file that
    cannot be read, a tensor that is missing, one that is left over, and one that stands in two files.
    """
    seen: dict[str, Path] = {}
    for file in files:
        names = _open(file).keys()
        _check_index(file, set(names))
        for name in names:
            if name in seen:
                raise WeightError(f"tensor {name!r} stands in {seen[name].name} and in {file.name}")
            seen[name] = file
        yield from _iterate_file(file, dtype)


def _iterate_file(file: Path, dtype: torch.dtype) -> Iterator[NamedWeight]:
    handle = _open(file)
    for name in handle.keys():  # noqa: SIM118  (the handle is no mapping and cannot be iterated)
        yield NamedWeight(name, tuple(handle.get_slice(name).get_shape()), _loader(handle, file, name, dtype))


def _loader(handle: Any, file: Path, name: str, dtype: torch.dtype) -> Callable[[], torch.Tensor]:
    def load() -> torch.Tensor:
        tensor: torch.Tensor = handle.get_tensor(name)
        if not tensor.dtype.is_floating_point or tensor.dtype.itemsize < 2:
            raise WeightError(
                f"{file}: tensor {name!r} is {tensor.dtype}; quantised safetensors are not read, use a 16-bit checkpoint or GGUF"
            )
        return tensor.to(dtype)

    return load


def _open(file: Path) -> Any:
    try:
        return safe_open(file, framework="pt", device="cpu")  # stays mapped as long as a weight refers to it
    except (SafetensorError, OSError) as error:
        raise WeightError(f"{file} is not a readable safetensors file: {error}; fetch it again") from error


def _check_index(file: Path, found: set[str]) -> None:
    index = file.parent / INDEX_NAME
    if file.name == SINGLE_NAME or not index.is_file():
        return
    listed = {name for name, shard in _weight_map(index).items() if shard == file.name}
    for names, what in ((listed - found, "lacks"), (found - listed, "holds, against the index,")):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise WeightError(f"{file} {what} tensor {min(names)!r}{more}: {INDEX_NAME} and the shards do not belong together")


def _weight_map(index: Path) -> Mapping[str, str]:
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
        weight_map: Mapping[str, str] = dict(content["weight_map"])
    except (ValueError, KeyError, TypeError) as error:
        raise WeightError(f"{index} is not an index of shards: {error}") from error
    for shard in weight_map.values():
        if Path(shard).name != shard:
            raise WeightError(f"{index} lists {shard!r}, which is not a file name beside it")
    return weight_map


def _must_exist(file: Path, said_by: str) -> Path:
    if not file.is_file():
        raise WeightError(f"{file.parent} lacks the shard {file.name}, which {said_by} lists; fetch the model again")
    return file
