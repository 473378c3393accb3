"""Chat templates: texts of turns, the registry, and the rules from a model's path."""

from __future__ import annotations

from typing import Any

import pytest

from ramet.errors import ConfigError, InvalidParams, UnknownChatTemplate
from ramet.lang.chat import ChatTemplate, ChatTemplates
from ramet.lang.chat_templates import chat_templates, get_chat_template, get_chat_template_by_model_path

U = {"role": "user", "content": "u"}
A = {"role": "assistant", "content": "a"}
S = {"role": "system", "content": "s"}
DEFAULT = {"role": "system", "content": None}


@pytest.mark.parametrize(
    ("name", "messages", "text"),
    [
        ("default", [S, U, A], "SYSTEM:s\nUSER:u\nASSISTANT:a\n"),
        ("default", [DEFAULT, U], "USER:u\n"),
        ("claude", [U, A], "\n\nHuman: u\n\nAssistant:a"),
        ("chatml", [S, U], "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"),
        ("qwen", [DEFAULT], "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"),
        ("llama-2-chat", [S, U, A, U], "[INST] <<SYS>>\ns\n<</SYS>>\n\nu [/INST]a </s><s>[INST] u [/INST]"),
        ("llama-2-chat", [U, A, U], "[INST] u [/INST]a </s><s>[INST] u [/INST]"),
        ("llama-2-chat", [DEFAULT, U], "[INST] u [/INST]"),
        ("llama-2-chat", [U, U], "[INST] u [/INST][INST] u [/INST]"),
        ("mistral", [U, A], "[INST] u [/INST]a </s><s>"),
        ("llama-3-instruct", [U], "<|start_header_id|>user<|end_header_id|>\n\nu<|eot_id|>"),
        ("janus-pro", [U, A], "<｜User｜>u<｜Assistant｜>a<｜end▁of▁sentence｜>"),
        ("yi-1.5", [U, A], "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"),
        ("dbrx-instruct", [U], "\n<|im_start|>user\nu<|im_end|>"),
        ("glm-4v", [S, U], "<|system|>\ns\n<|user|>\nu\n"),
        ("granite-3-instruct", [U], "<|start_of_role|>user<|end_of_role|>u<|end_of_text|>"),
    ],
)
def test_prompts(name: str, messages: list[dict[str, Any]], text: str) -> None:
    assert get_chat_template(name).get_prompt(messages) == text


def test_long_default_prompts_have_the_published_length() -> None:
    assert len(get_chat_template("vicuna_v1.1").default_system_prompt or "") == 154
    assert len(get_chat_template("dbrx-instruct").default_system_prompt or "") == 1040


@pytest.mark.parametrize("name", chat_templates.names())
def test_every_template_knows_the_three_roles(name: str) -> None:
    template = get_chat_template(name)
    assert set(template.role_prefix_and_suffix) == {"system", "user", "assistant"}
    with pytest.raises(InvalidParams, match="tool"):
        template.get_prefix_and_suffix("tool", [])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-R1-Base", "default"),
        ("OrionStarAI/Orion-14B", "claude"),
        ("deepseek-ai/Janus-Pro-7B", "janus-pro"),
        ("databricks/dbrx-instruct", "dbrx-instruct"),
        ("lmsys/vicuna-7b-v1.5", "vicuna_v1.1"),
        ("liuhaotian/llava-v1.5-7b", "vicuna_v1.1"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-chat"),
        ("codellama/CodeLlama-7b-Instruct-hf", "llama-2-chat"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mistral"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3-instruct"),
        ("meta-llama/Llama-3.1-8B", "default"),
        ("TinyLlama/TinyLlama-1.1B", "chatml"),
        ("Qwen/Qwen2-VL-7B-Instruct", "qwen2-vl"),
        ("THUDM/glm-4.1v-9b", "glm-4v"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen"),
        ("lmms-lab/llava-onevision-qwen2-7b-chat", "chatml-llava"),
        ("liuhaotian/llava-v1.6-34b", "chatml-llava"),
        ("01-ai/Yi-VL-6B", "yi-vl"),
        ("01-ai/Yi-1.5-6B-Chat", "yi-1.5"),
        ("google/gemma-4-9b-it", "gemma-4-it"),
        ("google/gemma-2b-it", "gemma-it"),
        ("google/gemma-3-1b", "gemma-it"),
        ("openbmb/MiniCPM-V-2_6", "minicpmv"),
        ("openbmb/MiniCPM-o-2_6", "minicpmo"),
        ("CohereForAI/c4ai-command-r-v01", "c4ai-command-r"),
        ("ibm/granite-3.1-8b-instruct", "granite-3-instruct"),
        ("OpenGVLab/InternVL2_5-8B", "internvl-2-5"),
        ("internlm/Intern-S1", "interns1"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "chatml"),
        ("smollm-135m", "chatml"),
        ("gpt2", "default"),
    ],
)
def test_paths(path: str, name: str) -> None:
    assert get_chat_template_by_model_path(path).name == name


def test_own_templates_and_own_rules() -> None:
    templates = ChatTemplates([ChatTemplate("default", None, {"user": ("", "")})])
    templates.register(ChatTemplate("mine", None, {"user": ("<", ">")}))
    assert templates.get("mine").get_prompt([U]) == "<u>" and templates.names() == ("default", "mine")

    @templates.register_matching_function
    def rule(path: str) -> str | None:
        return "mine" if "llama-2" in path else None

    assert templates.find("llama-2-chat") == rule("llama-2-chat") == "mine"
    assert templates.find("vicuna") == "vicuna_v1.1"


def test_an_unknown_name_is_also_a_key_error() -> None:
    with pytest.raises(KeyError) as caught:
        get_chat_template("nope")
    assert isinstance(caught.value, UnknownChatTemplate | ConfigError) and "chatml" in str(caught.value)
