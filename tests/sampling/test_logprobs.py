from __future__ import annotations

import pytest
import torch

from ramet.params import LogprobParams
from ramet.sampling import logprobs
from ramet.sampling.logprobs import prompt_logprobs

PARAMS = LogprobParams(True, start_len=0, top_num=3, token_ids=(7, 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("chunk_bytes", [4, 4 * 50 * 4, 64 << 20])
def test_equal_to_log_softmax_in_chunks_of_any_size(dtype: torch.dtype, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "_CHUNK_BYTES", chunk_bytes)
    logits = (torch.randn(11, 50, generator=torch.Generator().manual_seed(1)) * 3).to(dtype)
    targets = [(i * 7) % 50 for i in range(11)]
    expected = logits.double().log_softmax(-1)
    found = prompt_logprobs(logits, targets, PARAMS)
    assert [entry.token_id for entry in found] == targets
    for i, entry in enumerate(found):
        assert entry.logprob == pytest.approx(expected[i, targets[i]].item(), abs=1e-5)
        assert [v for _, v in entry.top] == pytest.approx(expected[i].sort(descending=True).values[:3].tolist(), abs=1e-5)
        assert [v for _, v in entry.top] == pytest.approx([expected[i, t].item() for t, _ in entry.top], abs=1e-5)
        assert entry.picked == (
            (7, pytest.approx(expected[i, 7].item(), abs=1e-5)),
            (0, pytest.approx(expected[i, 0].item(), abs=1e-5)),
        )


def test_equal_alternatives_come_by_id() -> None:
    logits = torch.zeros(2, 5000)
    logits[1, 4321] = 1.0
    first, second = prompt_logprobs(logits, [0, 0], LogprobParams(True, top_num=2))
    assert [i for i, _ in first.top] == [0, 1]
    assert [i for i, _ in second.top] == [4321, 0]


def test_more_alternatives_than_ids_gives_all_and_padded_ids_are_none() -> None:
    logits = torch.tensor([[0.0, 1.0, 5.0]])
    (entry,) = prompt_logprobs(logits, [1], LogprobParams(True, top_num=9), num_valid_ids=2)
    assert [i for i, _ in entry.top] == [1, 0]
    assert entry.logprob == pytest.approx(logits.log_softmax(-1)[0, 1].item())  # over all that the model gives


def test_no_row_gives_nothing() -> None:
    assert prompt_logprobs(torch.zeros(0, 5), [], PARAMS) == []
