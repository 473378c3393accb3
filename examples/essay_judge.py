"""The paper's Figure 2, a judge that branches, solves and merges: one essay, three dimensions, one grade.

    python examples/essay_judge.py --model smollm2-135m

Every branch continues the same prompt, so the runtime computes the essay once.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import ramet as sgl

DIMENSIONS = {
    "Clarity": "Is the writing clear and easy to follow?",
    "Originality": "Does the writer have ideas of their own?",
    "Evidence": "Does the writer support the claims with facts or examples?",
}
GRADES = ["A", "B", "C", "D"]
ESSAYS = (("trees", "trees.txt"), ("school uniforms", "uniforms.txt"), ("ocean tides", "off_topic.txt"))
# Two solved examples: a small model only answers the question below when it has seen how. Every essay shares them.
EXAMPLES = (
    ("bees", "Bees visit flowers and carry pollen from one to the next. Without bees many fruits would not grow.", "yes"),
    ("volcanoes", "My sister learned to ride a bicycle last summer. She fell twice and laughed.", "no"),
)


def first_question(topic: str, essay: str) -> str:
    """What is asked first about an essay."""
    return f"Essay:\n{essay}\n\nIs this essay about {topic}? Answer yes or no."


@sgl.function
def multi_dimensional_judge(s: Any, topic: str, essay: str) -> None:
    """Judge an essay about a topic; the result is JSON in `s["output"]`, and at the end of the text."""
    s += sgl.system("You are a teacher who judges short essays. You answer in a few plain words.")
    for known_topic, known_essay, answer in EXAMPLES:
        s += sgl.user(first_question(known_topic, known_essay)) + sgl.assistant(answer)
    s += sgl.user(first_question(topic, essay))
    s += sgl.assistant(sgl.select("related", choices=["yes", "no"]))
    if s["related"] == "no":
        s["output"] = json.dumps({"topic": topic, "related": False})
        s += s["output"]
        return

    forks = s.fork(len(DIMENSIONS))
    for fork, (dimension, question) in zip(forks, DIMENSIONS.items(), strict=True):
        fork += sgl.user(f"Judge the {dimension.lower()} of the essay. {question} Answer in one sentence, then write END.")
        fork += sgl.assistant(sgl.gen("judgment", stop="END", max_tokens=40))
    forks.join()

    judgments = dict(zip(DIMENSIONS, (text.strip() for text in s["judgment"]), strict=True))
    notes = "\n".join(f"{dimension}: {judgment}" for dimension, judgment in judgments.items())
    s += sgl.user(f"Here are three judgments of the essay.\n{notes}\n\nSum them up in one sentence.")
    s += sgl.assistant(sgl.gen("summary", stop=["\n", "END"], max_tokens=48))
    s += sgl.user("Give the essay a grade: A is best, D is worst. Answer with one letter.")
    s += sgl.assistant(sgl.select("grade", choices=GRADES))
    s["output"] = json.dumps(
        {"topic": topic, "related": True, "judgments": judgments, "summary": s["summary"].strip(), "grade": s["grade"]}
    )
    s += s["output"]


def sample_rows() -> list[dict[str, str]]:
    """The three sample essays as rows; the last one misses its topic."""
    folder = Path(__file__).parent / "data"
    return [{"topic": topic, "essay": (folder / name).read_text(encoding="utf-8").strip()} for topic, name in ESSAYS]


def main(arguments: list[str] | None = None) -> None:
    """Judge the sample essays on a model in this process and write one line of JSON for each."""
    parser = argparse.ArgumentParser(description="Judge three sample essays.")
    parser.add_argument("--model", default="smollm2-135m", help="a folder, a GGUF file, a Hub id, or smollm2-135m")
    options = parser.parse_args(arguments)
    with sgl.Engine(model_path=options.model) as engine:
        for state in multi_dimensional_judge.run_batch(sample_rows(), temperature=0, backend=engine):
            sys.stdout.write(state["output"] + "\n")


if __name__ == "__main__":
    main()
