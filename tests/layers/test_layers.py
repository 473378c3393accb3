"""Small blocks against their formulas."""

from __future__ import annotations

import pytest
import torch

from ramet.layers.activation import GATED_ACTIVATIONS, swiglu
from ramet.layers.norm import RMSNorm
from ramet.layers.placement import Storage
from ramet.layers.rotary import RopeSettings, Rotary
from ramet.weights import NamedWeight

CPU = torch.device("cpu")


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-8)])
@pytest.mark.parametrize("shape", [(1, 24), (5, 24), (5, 3, 24)])
def test_rms_norm(dtype: torch.dtype, tolerance: float, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    norm = RMSNorm(24, 1e-2, Storage(dtype, CPU))
    weight = torch.randn(24, generator=generator).to(dtype)
    norm.places()["weight"].store(NamedWeight("norm.weight", (24,), lambda: weight))
    x = torch.randn(shape, generator=generator).to(dtype)
    before = x.clone()
    full = x.double()
    expected = full / (full.square().mean(-1, keepdim=True) + 1e-2).sqrt() * weight.double()
    torch.testing.assert_close(norm(x).double(), expected, rtol=tolerance, atol=tolerance)
    assert torch.equal(x, before)


def test_swiglu() -> None:
    gate, up = torch.tensor([[0.0, 2.0]]), torch.tensor([[5.0, 3.0]])
    expected = gate / (1 + torch.exp(-gate)) * up
    torch.testing.assert_close(swiglu(torch.cat((gate, up), 1)), expected)
    assert GATED_ACTIVATIONS["silu"] is swiglu


def test_rotation_depends_on_the_distance_only() -> None:
    rotary = Rotary(RopeSettings(16, 10000.0, 64, 64), torch.float32, CPU)
    query, key = torch.randn(1, 1, 16, generator=torch.Generator().manual_seed(0)), torch.ones(1, 1, 16)

    def score(query_position: int, key_position: int) -> float:
        rotated = []
        for heads, position in ((query, query_position), (key, key_position)):
            copy = heads.clone()
            rotary.rotate_(copy, rotary.tables(torch.tensor([position])))
            rotated.append(copy)
        return float((rotated[0] * rotated[1]).sum())

    assert score(9, 4) == pytest.approx(score(35, 30), rel=1e-4)
    assert score(9, 4) != pytest.approx(score(9, 5), rel=1e-2)
    assert score(0, 0) == pytest.approx(float((query * key).sum()), rel=1e-5)


def test_rotation_of_a_slice_leaves_the_rest() -> None:
    rotary = Rotary(RopeSettings(4, 100.0, 64, 64), torch.float32, CPU)
    heads = torch.ones(3, 5, 4)
    rotary.rotate_(heads[:, :2], rotary.tables(torch.tensor([0, 1, 2])))
    assert torch.equal(heads[:, 2:], torch.ones(3, 3, 4)) and torch.equal(heads[0], torch.ones(5, 4))
    assert not torch.equal(heads[1:, :2], torch.ones(2, 2, 4))
    # Pairs are (0, 2) and (1, 3): a rotation of the first by one radian, of the second by a tenth.
    one = torch.tensor(1.0)
    expected = [float(one.cos() - one.sin()), float((one / 10).cos() - (one / 10).sin())]
    assert heads[1, 0, :2].tolist() == pytest.approx(expected, abs=1e-6)
