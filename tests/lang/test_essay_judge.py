"""The example of the paper's Figure 2, on a script."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from ramet.lang.backends.scripted import ScriptedBackend

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "essay_judge.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("essay_judge", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def backend() -> ScriptedBackend:
    return ScriptedBackend(
        {"judgment": lambda prompt, params: f" fine ({prompt.messages[-1]['content'].split()[2]}) END and more", "summary": "All fine."},
        choices=lambda prompt, choices: ("no" if "bread" in prompt.text else "yes") if "yes" in choices else "B",
        chat_template="chatml",
    )


def test_three_essays(example: ModuleType) -> None:
    script = backend()
    states = example.multi_dimensional_judge.run_batch(example.sample_rows(), temperature=0, backend=script)
    outputs = [json.loads(state["output"]) for state in states]
    assert outputs[0] == {
        "topic": "trees",
        "related": True,
        "judgments": {"Clarity": "fine (clarity)", "Originality": "fine (originality)", "Evidence": "fine (evidence)"},
        "summary": "All fine.",
        "grade": "B",
    }
    assert outputs[1]["related"] is True
    assert outputs[2] == {"topic": "ocean tides", "related": False}
    assert all(state.text().endswith(state["output"]) for state in states)
    kinds = [call.kind for call in script.calls]
    assert (kinds.count("select"), kinds.count("generate")) == (5, 8), "the essay off its topic is left early"
    assert script.prefixes[0].startswith("<|im_start|>system") and "Topic" not in script.prefixes[0], "what all rows share comes first"
    assert len(script.prefixes) == 3, "and the prefix of every fork is committed"


def test_the_branches_share_the_whole_prompt(example: ModuleType) -> None:
    script = backend()
    example.multi_dimensional_judge.run(**example.sample_rows()[0], backend=script).sync()
    branches = [call.prompt for call in script.calls if call.prompt.name == "judgment"]
    assert len({prompt.group_id for prompt in branches}) == 1
    assert all(prompt.text.startswith(script.prefixes[0]) for prompt in branches)


def test_essays_are_short(example: ModuleType) -> None:
    assert all(100 <= len(row["essay"].split()) <= 150 for row in example.sample_rows())
