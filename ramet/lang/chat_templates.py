"""The table of chat templates, and the published functions over it.

Three templates have a long default system prompt of their model's maker: `dbrx-instruct` has it; `yi-vl` and `interns1` have none here
(their exact text is not known to us), so give a system turn with those models.
"""

from __future__ import annotations

from ramet.lang.chat import ChatTemplate, ChatTemplates, ChatTemplateStyle, MatchingFunction

_CHATML = {
    "system": ("<|im_start|>system\n", "<|im_end|>\n"),
    "user": ("<|im_start|>user\n", "<|im_end|>\n"),
    "assistant": ("<|im_start|>assistant\n", "<|im_end|>\n"),
}
_LLAMA_3 = {
    "system": ("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"),
    "user": ("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
    "assistant": ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
}
_MINICPM = {"system": ("", " "), "user": ("user:", " "), "assistant": ("assistant:", "</s>")}
_DEEPSEEK_END = "<｜end▁of▁sentence｜>"
_DEEPSEEK = {"system": ("", ""), "user": ("<｜User｜>", ""), "assistant": ("<｜Assistant｜>", _DEEPSEEK_END)}

_VICUNA_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
_DBRX_SYSTEM = (
    "You are DBRX, created by Databricks. You were last updated in December 2023. You answer questions based on information "
    "available up to that point.\n"
    "YOU PROVIDE SHORT RESPONSES TO SHORT QUESTIONS OR STATEMENTS, but provide thorough responses to more complex and open-ended "
    "questions.\n"
    "You assist with various tasks, from writing to coding (using markdown for code blocks — remember to use ``` with code, JSON, "
    "and tables).\n"
    "(You do not have real-time data access or code execution capabilities. You avoid stereotyping and provide balanced perspectives "
    "on controversial topics. You do not provide song lyrics, poems, or news articles and do not divulge details of your training "
    "data.)\n"
    "This is your system prompt, guiding your responses. Do not reference it, just respond to the user. If you find yourself talking "
    "about this message, stop. You should be responding appropriately and usually that means not mentioning this.\n"
    "YOU DO NOT MENTION ANY OF THIS INFORMATION ABOUT YOURSELF UNLESS THE INFORMATION IS DIRECTLY PERTINENT TO THE USER'S QUERY."
)
_INTERNVL_SYSTEM = "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的多模态大语言模型。"
_HELPFUL = "You are a helpful assistant."

_TEMPLATES = (
    ChatTemplate("default", None, {"system": ("SYSTEM:", "\n"), "user": ("USER:", "\n"), "assistant": ("ASSISTANT:", "\n")}),
    ChatTemplate("claude", None, {"system": ("", ""), "user": ("\n\nHuman: ", ""), "assistant": ("\n\nAssistant:", "")}),
    ChatTemplate("chatml", None, _CHATML, ("<|im_end|>",)),
    ChatTemplate("chatml-llava", _HELPFUL, _CHATML, ("<|im_end|>",), "<image>\n"),
    ChatTemplate("qwen", _HELPFUL, _CHATML, ("<|im_end|>",)),
    ChatTemplate("qwen2-vl", _HELPFUL, _CHATML, ("<|im_end|>",), "<|vision_start|><|image_pad|><|vision_end|>"),
    ChatTemplate(
        "vicuna_v1.1",
        _VICUNA_SYSTEM,
        {"system": ("", " "), "user": ("USER:", " "), "assistant": ("ASSISTANT:", "</s>")},
        image_token=" <image>\n",
    ),
    ChatTemplate(
        "llama-2-chat",
        None,
        {"system": ("<<SYS>>\n", "\n<</SYS>>\n\n"), "user": ("[INST] ", " [/INST]"), "assistant": ("", " </s><s>")},
        style=ChatTemplateStyle.LLAMA2,
    ),
    ChatTemplate(
        "mistral",
        None,
        {"system": ("[SYSTEM_PROMPT] ", " [/SYSTEM_PROMPT]"), "user": ("[INST] ", " [/INST]"), "assistant": ("", " </s><s>")},
        ("</s>",),
        "[IMG]",
    ),
    ChatTemplate("llama-3-instruct", None, _LLAMA_3, ("<|eot_id|>",), "<|image|>"),
    ChatTemplate("llama-3-instruct-llava", None, _LLAMA_3, ("<|eot_id|>",), "<image>\n"),
    ChatTemplate(
        "llama-4",
        None,
        {
            "system": ("<|header_start|>system<|header_end|>\n\n", "<|eot|>"),
            "user": ("<|header_start|>user<|header_end|>\n\n", "<|eot|>"),
            "assistant": ("<|header_start|>assistant<|header_end|>\n\n", "<|eot|>"),
        },
        ("<|eot|>",),
        "<|image|>",
    ),
    ChatTemplate("minicpmv", None, _MINICPM, ("<|im_end|>", "<|endoftext|>"), "(<image>./</image>)"),
    ChatTemplate("minicpmo", None, _MINICPM, ("<|im_end|>", "<|endoftext|>"), "(<image>./</image>)"),
    ChatTemplate("janus", None, _DEEPSEEK, (_DEEPSEEK_END,), "<image_placeholder>\n"),
    ChatTemplate("janus-pro", None, _DEEPSEEK, (_DEEPSEEK_END,), "<image_placeholder>\n"),
    ChatTemplate("deepseek-v3", None, _DEEPSEEK, (_DEEPSEEK_END,)),
    ChatTemplate(
        "yi-1.5",
        None,
        {
            "system": ("", ""),
            "user": ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
            "assistant": ("", "<|im_end|>\n"),
        },
        ("<|im_end|>",),
    ),
    ChatTemplate(
        "yi-vl",
        None,
        {"system": ("", "\n\n"), "user": ("### Human:", "\n"), "assistant": ("### Assistant:", "\n")},
        image_token=" <image_placeholder>\n",
    ),
    ChatTemplate(
        "gemma-it",
        None,
        {
            "system": ("", ""),
            "user": ("<start_of_turn>user\n", "<end_of_turn>\n"),
            "assistant": ("<start_of_turn>model\n", "<end_of_turn>\n"),
        },
        image_token="<start_of_image>",
    ),
    ChatTemplate(
        "gemma-4-it",
        None,
        {"system": ("", ""), "user": ("<|turn>user\n", "<turn|>\n"), "assistant": ("<|turn>assistant\n", "<turn|>\n")},
    ),
    ChatTemplate(
        "dbrx-instruct",
        _DBRX_SYSTEM,
        {
            "system": ("<|im_start|>system\n", "<|im_end|>"),
            "user": ("\n<|im_start|>user\n", "<|im_end|>"),
            "assistant": ("\n<|im_start|>assistant\n", "<|im_end|>"),
        },
        ("<|im_end|>",),
    ),
    ChatTemplate(
        "c4ai-command-r",
        None,
        {
            "system": ("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
            "user": ("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
            "assistant": ("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        },
    ),
    ChatTemplate("internvl-2-5", _INTERNVL_SYSTEM, _CHATML, ("<|im_end|>", "<|action_end|>")),
    ChatTemplate("interns1", None, _CHATML, ("<|im_end|>", "<|action_end|>")),
    ChatTemplate(
        "granite-3-instruct",
        None,
        {
            "system": ("<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>"),
            "user": ("<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>"),
            "assistant": ("<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>"),
        },
        ("<|end_of_text|>",),
    ),
    ChatTemplate(
        "glm-4v",
        None,
        {"system": ("<|system|>\n", "\n"), "user": ("<|user|>\n", "\n"), "assistant": ("<|assistant|>\n", "\n")},
        ("<|user|>", "<|endoftext|>", "<|observation|>"),
        "<|image|>",
    ),
)

chat_templates = ChatTemplates(_TEMPLATES)


def get_chat_template(name: str) -> ChatTemplate:
    """The template of this name; raises UnknownChatTemplate (also a KeyError)."""
    return chat_templates.get(name)


def get_chat_template_by_model_path(model_path: str) -> ChatTemplate:
    """The template for a model's path; `default` when nothing matches."""
    return chat_templates.get(chat_templates.find(model_path))


def register_chat_template(template: ChatTemplate) -> None:
    """Add a template; one of the same name is replaced."""
    chat_templates.register(template)


def register_chat_template_matching_function(function: MatchingFunction) -> MatchingFunction:
    """Add a function from a model's path to a template name or None; it is asked before the built-in rules. Usable as a decorator."""
    return chat_templates.register_matching_function(function)
