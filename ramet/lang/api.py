"""How programs are spelled: the functions that make nodes and programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ramet.errors import InvalidParams, UnsupportedNode
from ramet.lang.choices import ChoicesSamplingMethod, exact_likelihood, token_length_normalized
from ramet.lang.connect import as_backend, find_backend
from ramet.lang.nodes import ExprList, Gen, Image, Node, RoleBegin, RoleEnd, Select, Video, as_node
from ramet.lang.run import SglFunction
from ramet.lang.settings import global_config


def function(func: Callable[..., Any] | None = None, num_api_spec_tokens: int | None = None) -> Any:
    """Make a program of a function whose first parameter is `s`; usable bare or with arguments.

    Raises InvalidParams when the first parameter has another name.
    """
    if func is not None:
        return SglFunction(func, num_api_spec_tokens)
    return lambda f: SglFunction(f, num_api_spec_tokens)


def set_default_backend(backend: Any) -> None:
    """Use this backend, or engine, wherever none is given; None takes it away. Raises InvalidParams for anything else."""
    global_config.default_backend = None if backend is None else as_backend(backend)


def flush_cache(backend: Any = None) -> bool:
    """Drop what the backend has cached; False where there is no backend or nothing to drop."""
    chosen = find_backend(backend)
    return False if chosen is None else chosen.flush_cache()


def get_server_info(backend: Any = None) -> dict[str, Any] | None:
    """What the backend tells about itself; None where there is no backend."""
    chosen = find_backend(backend)
    return None if chosen is None else chosen.get_server_info()


def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | list[str] | None = None,
    stop_token_ids: list[int] | None = None,
    stop_regex: str | list[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
    dtype: type | str | None = None,
    choices: list[str] | None = None,
    choices_method: ChoicesSamplingMethod | None = None,
    regex: str | None = None,
    json_schema: Any = None,
    ebnf: str | None = None,
    lark: str | None = None,
    structural_tag: str | Mapping[str, Any] | None = None,
    exact: bool = False,
) -> Gen | Select:
    """Ask the model for text and store it under `name`; None means the value of the run.

    The text matches one constraint at most: `dtype` (int, float, str or bool, which gives a text that parses), `regex`, `json_schema` (a
    JSON text, a mapping, a pydantic model, a dataclass or another type), `ebnf`, `lark` or `structural_tag` (a JSON text or a mapping).
    With `choices` it is a select, and only `temperature` (0), `choices_method` and `exact` go with them.

    Raises InvalidParams for a value out of range or a contradiction, InvalidPattern (also a re.error) for a bad regex.
    """
    sampling = {
        "max_new_tokens": max_tokens,
        "min_new_tokens": min_tokens,
        "n": n,
        "stop": stop,
        "stop_token_ids": stop_token_ids,
        "stop_regex": stop_regex,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "frequency_penalty": frequency_penalty,
        "presence_penalty": presence_penalty,
        "ignore_eos": ignore_eos,
        "return_logprob": return_logprob,
        "logprob_start_len": logprob_start_len,
        "top_logprobs_num": top_logprobs_num,
        "return_text_in_logprobs": return_text_in_logprobs,
        "dtype": dtype,
        "regex": regex,
        "json_schema": json_schema,
        "ebnf": ebnf,
        "lark": lark,
        "structural_tag": structural_tag,
    }
    if choices is not None:
        for field, value in sampling.items():
            if value is not None:
                raise InvalidParams(field, value, "has no meaning for a choice; leave it out")
        return select(name, choices, temperature or 0.0, choices_method or token_length_normalized, exact)
    if choices_method is not None:
        raise InvalidParams("choices_method", choices_method, "give choices with it")
    if exact is not False:
        raise InvalidParams("exact", exact, "give choices with it")
    return Gen(name, temperature=temperature, **sampling)


def gen_int(
    name: str | None = None,
    max_tokens: int | None = None,
    n: int | None = None,
    stop: str | list[str] | None = None,
    stop_token_ids: list[int] | None = None,
    stop_regex: str | list[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
) -> Gen:
    """`gen` of an integer, over at the first blank: `int(s[name])`, unless `max_tokens` leaves a sign alone. Raises what `gen` raises."""
    return _typed_gen("int", locals())


def gen_string(
    name: str | None = None,
    max_tokens: int | None = None,
    n: int | None = None,
    stop: str | list[str] | None = None,
    stop_token_ids: list[int] | None = None,
    stop_regex: str | list[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
) -> Gen:
    """`gen` of letters, digits and blanks, with double quotes around them in the text too. Raises what `gen` raises."""
    return _typed_gen("str", locals())


def _typed_gen(dtype: str, arguments: dict[str, Any]) -> Gen:
    node = gen(**arguments, dtype=dtype)
    assert isinstance(node, Gen), "a gen without choices is a Gen"
    return node


def select(
    name: str | None = None,
    choices: list[str] | None = None,
    temperature: float = 0.0,
    choices_method: ChoicesSamplingMethod = token_length_normalized,
    exact: bool = False,
) -> Select:
    """Let the model choose one of `choices` and store it under `name`.

    `exact` takes the option that the model would most probably write (`ramet.lang.choices.exact_likelihood`), and the meta info has the
    probability of each among the options. Raises InvalidParams without choices, and for `exact` with another method.
    """
    if choices is None:
        raise InvalidParams("choices", choices, "give a list of at least one option")
    if not isinstance(exact, bool):
        raise InvalidParams("exact", exact, "must be true or false")
    if exact:
        if choices_method not in (token_length_normalized, exact_likelihood):
            raise InvalidParams("choices_method", choices_method, "cannot be combined with exact: give one of them")
        choices_method = exact_likelihood
    return Select(name, choices, temperature, choices_method)  # type: ignore[arg-type]  # Select makes a tuple of them


def image(expr: Any) -> Image:
    """An image: a path, bytes or a PIL image."""
    return Image(expr)


def video(path: str, num_frames: int) -> Video:
    """`num_frames` frames of a video file."""
    return Video(path, num_frames)


def system(expr: str | Node | None = None) -> ExprList:
    """A system turn."""
    return _turn("system", expr)


def user(expr: str | Node | None = None) -> ExprList:
    """A user turn."""
    return _turn("user", expr)


def assistant(expr: str | Node | None = None) -> ExprList:
    """An assistant turn."""
    return _turn("assistant", expr)


def _turn(role: str, expr: str | Node | None) -> ExprList:
    node = as_node("" if expr is None else expr, role)
    return RoleBegin(role) + node + RoleEnd(role)


def system_begin() -> RoleBegin:
    """Open a system turn."""
    return RoleBegin("system")


def system_end() -> RoleEnd:
    """Close a system turn."""
    return RoleEnd("system")


def user_begin() -> RoleBegin:
    """Open a user turn."""
    return RoleBegin("user")


def user_end() -> RoleEnd:
    """Close a user turn."""
    return RoleEnd("user")


def assistant_begin() -> RoleBegin:
    """Open an assistant turn."""
    return RoleBegin("assistant")


def assistant_end() -> RoleEnd:
    """Close an assistant turn."""
    return RoleEnd("assistant")


def separate_reasoning(expr: str | Node | None = None, model_type: str | None = None) -> ExprList:
    """Would split a reply into reasoning and answer; refused in this version with UnsupportedNode."""
    raise UnsupportedNode(f"separate_reasoning(model_type={model_type!r})", "language", "reasoning parsers are not part of this version")
