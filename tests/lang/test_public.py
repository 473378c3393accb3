"""The public names: all there, with the published signatures, and cheap to import."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
import types

import pytest

import ramet
from ramet.lang.run import SglFunction
from ramet.lang.state import ProgramState, ProgramStateGroup

PUBLISHED = """
function gen gen_int gen_string select image video system user assistant user_begin user_end assistant_begin assistant_end
system_begin system_end separate_reasoning token_length_normalized greedy_token_selection unconditional_likelihood_normalized
set_default_backend flush_cache global_config get_server_info Engine __version__
"""
BEYOND = "exact_likelihood"

SAMPLING = """max_new_tokens=128 n=1 stop=None stop_token_ids=None stop_regex=None temperature=1.0 top_p=1.0 top_k=-1 min_p=0.0
frequency_penalty=0.0 presence_penalty=0.0 ignore_eos=False return_logprob=None logprob_start_len=None top_logprobs_num=None
return_text_in_logprobs=None"""
TYPED = """name max_tokens n stop stop_token_ids stop_regex temperature top_p top_k min_p frequency_penalty presence_penalty ignore_eos
return_logprob logprob_start_len top_logprobs_num return_text_in_logprobs"""


def test_all_is_what_there_is() -> None:
    assert sorted(ramet.__all__) == sorted([*PUBLISHED.split(), *BEYOND.split()])
    is_there = importlib.util.find_spec("ramet.execute") is not None
    for name in ramet.__all__:
        if name != "Engine" or is_there:
            assert getattr(ramet, name) is not None
    public = {
        name
        for name, value in vars(ramet).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and getattr(value, "__module__", "ramet").startswith("ramet")
    }
    assert public - {"annotations", "TYPE_CHECKING"} <= set(ramet.__all__)
    assert ramet.__version__ == "0.1.0" and set(ramet.__all__) <= set(dir(ramet))
    with pytest.raises(AttributeError, match="no attribute 'OpenAI'"):
        ramet.OpenAI  # noqa: B018


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            ramet.gen,
            "name max_tokens min_tokens n stop stop_token_ids stop_regex temperature top_p top_k min_p frequency_penalty presence_penalty "
            "ignore_eos return_logprob logprob_start_len top_logprobs_num return_text_in_logprobs "
            "dtype choices choices_method regex json_schema "
            "ebnf lark structural_tag exact",  # these beyond the published ones
        ),
        (ramet.gen_int, TYPED),
        (ramet.gen_string, TYPED),
        (ramet.select, "name=None choices=None temperature=0.0 choices_method exact=False"),
        (ramet.function, "func=None num_api_spec_tokens=None"),
        (ramet.image, "expr"),
        (ramet.video, "path num_frames"),
        (ramet.separate_reasoning, "expr=None model_type=None"),
        (SglFunction.run, f"self args {SAMPLING} stream=False backend=None use_thread=True kwargs"),
        (
            SglFunction.run_batch,
            f"self batch_kwargs {SAMPLING} backend=None num_threads=auto progress_bar=False generator_style=False return_errors=False",
        ),
        (ProgramState.fork, "self size=1 position_ids_offset=None"),
        (ProgramState.text_async_iter, "self var_name=None return_meta_data=False"),
        (ProgramState.get_meta_info, "self name timeout=None"),
        (ProgramStateGroup.join, "self mode=gather_variable"),
    ],
)
def test_published_signatures(function: object, expected: str) -> None:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    wanted = expected.split()
    assert [parameter.name for parameter in parameters] == [item.split("=")[0] for item in wanted]
    for parameter, item in zip(parameters, wanted, strict=True):
        if "=" in item:
            assert str(parameter.default) == item.split("=")[1]


def test_importing_the_language_loads_no_torch() -> None:
    code = (
        "import sys, ramet, ramet.lang.backends.scripted; print(any(m in sys.modules for m in ('torch', 'numpy', 'transformers', 'tqdm')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
