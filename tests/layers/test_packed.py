"""Packed forms of a matrix against the plain product."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ramet.errors import ConfigError
from ramet.execute.device import has_fast_bfloat16
from ramet.layers.linear import Linear
from ramet.layers.matrix import INT4_MAX_TOKENS, INT8_MAX_TOKENS, Matrix
from ramet.layers.packed import DenseWeight, Int4Weight, Int8Weight, can_pack_dense, can_pack_int4
from ramet.layers.placement import Storage
from ramet.weights import Affine4, NamedWeight

BFLOAT16 = torch.bfloat16
CPU = torch.device("cpu")
SHAPES = [(16, 32), (48, 64), (96, 160), (576, 576)]

pytestmark = pytest.mark.skipif(not has_fast_bfloat16(), reason="packed forms are for a CPU with bfloat16 instructions")


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def four_bit(rows: int, columns: int, seed: int = 0) -> Affine4:
    generator = torch.Generator().manual_seed(seed)
    q = torch.randint(0, 16, (rows, columns), dtype=torch.uint8, generator=generator)
    scale = torch.rand(rows, columns // 32, generator=generator) * 0.02
    return Affine4(q, scale, -8 * scale + torch.randn(scale.shape, generator=generator) * 0.01)


def full(form: Affine4) -> Tensor:
    scale, minimum = (part.repeat_interleave(form.group_size, 1) for part in (form.scale, form.minimum))
    return form.q * scale + minimum


def named(name: str, weight: Tensor, form: Affine4 | None = None) -> NamedWeight:
    return NamedWeight(name, tuple(weight.shape), lambda: weight, lambda: form)


def relative_error(out: Tensor, expected: Tensor) -> float:
    return float((out.float() - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
@pytest.mark.parametrize("num_tokens", [1, 3, 40])
def test_dense_is_the_same_product(rows: int, columns: int, num_tokens: int) -> None:
    assert can_pack_dense()
    weight, x = numbers(rows, columns).to(BFLOAT16), numbers(num_tokens, columns, seed=1).to(BFLOAT16)
    assert relative_error(DenseWeight(weight)(x), x.float() @ weight.float().T) < 2**-8


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
@pytest.mark.parametrize("num_tokens", [1, 3, 8])
def test_int4_is_exact_up_to_scale_and_zero(rows: int, columns: int, num_tokens: int) -> None:
    parts = [four_bit(rows, columns), four_bit(rows, columns, seed=1)]
    x = numbers(num_tokens, columns, seed=1).to(BFLOAT16)
    assert relative_error(Int4Weight(parts)(x), x.float() @ torch.cat([full(part) for part in parts]).T) < 1e-2


@pytest.mark.parametrize(("rows", "columns"), [(32, 32), (96, 160), (576, 576)])
@pytest.mark.parametrize("num_tokens", [1, 3])
def test_int8_keeps_every_weight_within_its_tolerance(rows: int, columns: int, num_tokens: int) -> None:
    weight = numbers(rows, columns).to(BFLOAT16)
    weight[1] = 0
    form = Int8Weight(weight)
    restored = form(torch.eye(columns, dtype=BFLOAT16)).float().T
    limit = weight.float().abs().amax(1, keepdim=True) / 250 + restored.abs() * 2**-8  # and the rounding of what comes out
    assert bool(((restored - weight.float()).abs() <= limit).all())
    x = numbers(num_tokens, columns, seed=1).to(BFLOAT16)
    assert relative_error(form(x), x.float() @ weight.float().T) < 2e-2


def test_what_four_bits_need() -> None:
    form = four_bit(16, 32)
    assert can_pack_int4([form, form], 32)
    assert not can_pack_int4([form, None], 32)
    assert not can_pack_int4([None], 16)
    assert not can_pack_int4([four_bit(20, 32)], 20)
    assert not can_pack_int4([form, Affine4(form.q, form.scale[:, :0], form.minimum[:, :0], 64)], 32)


def linear(packed_weights: str, parts: dict[str, Affine4], *, with_four_bit: bool = True, has_bias: bool = False) -> Linear:
    layer = Linear(
        64, {name: len(part.q) for name, part in parts.items()}, has_bias=has_bias, storage=Storage(BFLOAT16, CPU, packed_weights)
    )
    for name, place in layer.places().items():
        part = parts[name.rpartition(".")[0]]
        if name.endswith("bias"):
            place.store(named(name, torch.ones(place.shape)))
        else:
            place.store(named(name, full(part).to(BFLOAT16), part if with_four_bit else None))
    return layer


@pytest.mark.parametrize("packed_weights", ["off", "auto", "int4", "int8"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_linear_in_every_form(packed_weights: str, has_bias: bool) -> None:
    """Parts stand in their order whatever the order of loading, in the packed form as in the others, below and above the limit."""
    parts = {"q": four_bit(32, 64), "k": four_bit(64, 64, seed=1)}
    layer = linear(packed_weights, parts, has_bias=has_bias)
    for num_tokens in (1, INT8_MAX_TOKENS, INT4_MAX_TOKENS, INT4_MAX_TOKENS + 1, 30):
        x = numbers(num_tokens, 64, seed=2).to(BFLOAT16)
        expected = x.float() @ torch.cat([full(part) for part in parts.values()]).T + (1 if has_bias else 0)
        assert relative_error(layer(x), expected) < 2e-2


def test_packed_form_is_used_for_few_tokens_only() -> None:
    matrix = Matrix(torch.zeros(32, 32, dtype=BFLOAT16))
    ones = Affine4(torch.full((32, 32), 1, dtype=torch.uint8), torch.ones(32, 1), torch.zeros(32, 1))
    matrix.pack("auto", [ones])  # the four-bit form says 1 where the plain weights say 0
    assert float(matrix.multiply(torch.ones(INT4_MAX_TOKENS, 32, dtype=BFLOAT16)).mean()) == 32
    assert float(matrix.multiply(torch.ones(INT4_MAX_TOKENS + 1, 32, dtype=BFLOAT16)).mean()) == 0


def test_int4_is_refused_without_four_bits() -> None:
    with pytest.raises(ConfigError, match=r"packed_weights='int4'.*q\.weight.*Q4_0"):
        linear("int4", {"q": four_bit(32, 64)}, with_four_bit=False)
    with pytest.raises(ConfigError, match="20 rows"):
        linear("int4", {"q": four_bit(20, 64)})
    layer = linear("auto", {"q": four_bit(20, 64)})
    assert layer(torch.zeros(1, 64, dtype=BFLOAT16)).shape == (1, 20)
