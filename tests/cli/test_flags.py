from __future__ import annotations

import dataclasses

import pytest
import typer
from typer.testing import CliRunner

from ramet.cli.flags import SAMPLING_DOCS, engine_flags, sampling_flags, with_flags
from ramet.config import Config
from ramet.params import SamplingParams


def parse(*arguments: str) -> tuple[int, dict[str, dict[str, object]], str]:
    """What a command with both groups of flags receives for these arguments."""
    seen: dict[str, dict[str, object]] = {}
    app = typer.Typer()

    @app.command()
    @with_flags(options=engine_flags(), sampling=sampling_flags())
    def command(*, options: dict[str, object], sampling: dict[str, object]) -> None:
        seen.update(options=options, sampling=sampling)

    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, seen, result.output


def test_every_option_and_parameter_has_one_flag() -> None:
    engine, sampling = [flag.name for flag in engine_flags()], [flag.name for flag in sampling_flags()]
    assert engine == list(Config().to_options())
    assert sampling == [field.name for field in dataclasses.fields(SamplingParams)] == list(SAMPLING_DOCS)
    assert not set(engine) & set(sampling)


@pytest.mark.parametrize(
    ("arguments", "options", "sampling"),
    [
        ([], {}, {}),
        (["--model", "m"], {"model_path": "m"}, {}),
        (["--model-path", "m"], {"model_path": "m"}, {}),
        (["--max-total-tokens", "64"], {"max_total_tokens": 64}, {}),
        (["--mem-fraction-static", "0.25"], {"mem_fraction_static": 0.25}, {}),
        (["--disable-radix-cache"], {"disable_radix_cache": True}, {}),
        (["--no-disable-radix-cache"], {"disable_radix_cache": False}, {}),
        (["--fairness-budget", "12"], {"fairness_budget": 12}, {}),
        (["--fairness-budget", "none"], {"fairness_budget": None}, {}),
        (["--temperature", "0"], {}, {"temperature": 0.0}),
        (["--stop", "a", "--stop", "b"], {}, {"stop": ("a", "b")}),
        (["--stop-token-ids", "3", "--stop-token-ids", "4"], {}, {"stop_token_ids": (3, 4)}),
        (["--logit-bias", "7=-2.5"], {}, {"logit_bias": {"7": -2.5}}),
        (["--no-skip-special-tokens"], {}, {"skip_special_tokens": False}),
    ],
)
def test_flags_give_the_fields_that_were_named(arguments: list[str], options: dict[str, object], sampling: dict[str, object]) -> None:
    exit_code, seen, output = parse(*arguments)
    assert exit_code == 0, output
    assert seen == {"options": options, "sampling": sampling}
    Config.from_options(seen["options"])
    SamplingParams.from_mapping(seen["sampling"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--max-total-tokens", "many"], "max-total-tokens"),
        (["--fairness-budget", "many"], "fairness-budget"),
        (["--logit-bias", "7"], "logit-bias"),
        (["--temprature", "0"], "--temperature"),
    ],
)
def test_wrong_flags_are_refused_by_name(arguments: list[str], told: str) -> None:
    exit_code, seen, output = parse(*arguments)
    assert exit_code == 2
    assert not seen
    assert told in output
