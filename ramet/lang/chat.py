"""Chat templates: how a turn is written into the text of a prompt, and which template a model wants."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ramet.errors import InvalidParams, UnknownChatTemplate


class ChatTemplateStyle(Enum):
    """PLAIN: every turn stands alone. LLAMA2: the system turn is written inside the first user turn."""

    PLAIN = "plain"
    LLAMA2 = "llama2"


@dataclass(frozen=True)
class ChatTemplate:
    """The text before and after a turn of each role, and the strings at which a reply ends.

    A system message whose content is None means the default system prompt, or nothing where there is none.
    """

    name: str
    default_system_prompt: str | None
    role_prefix_and_suffix: Mapping[str, tuple[str, str]]
    stop_str: tuple[str, ...] = ()
    image_token: str = "<image>"
    style: ChatTemplateStyle = ChatTemplateStyle.PLAIN

    def get_prefix_and_suffix(self, role: str, hist_messages: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
        """The text around a turn that follows `hist_messages`.

        Raises InvalidParams for a role that the template does not know.
        """
        if role not in self.role_prefix_and_suffix:
            raise InvalidParams("role", role, f"the chat template {self.name} knows {', '.join(self.role_prefix_and_suffix)}")
        prefix, suffix = self.role_prefix_and_suffix[role]
        if self.style is ChatTemplateStyle.LLAMA2:
            if role == "system" and not hist_messages:
                return self.role_prefix_and_suffix["user"][0] + prefix, suffix
            if role == "user" and len(hist_messages) == 1 and hist_messages[0]["role"] == "system":
                return "", suffix  # the system turn has opened this user turn
        return prefix, suffix

    def get_prompt(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The text of whole messages (`role`, `content`); what is written does not end with an open turn."""
        written: list[Mapping[str, Any]] = []
        text = ""
        for message in messages:
            role, content = message["role"], message["content"]
            if role == "system" and content is None:
                content = self.default_system_prompt
                if content is None:
                    continue
            prefix, suffix = self.get_prefix_and_suffix(role, written)
            text += f"{prefix}{content}{suffix}"
            written.append({"role": role, "content": content})
        return text


MatchingFunction = Callable[[str], str | None]

# Built-in rules for a model's path, first match wins: (pattern, template, pattern that must not match).
_PATH_RULES: tuple[tuple[str, str, str | None], ...] = (
    (r"deepseek-(v3|r1)", "deepseek-v3", r"base"),
    (r"orion", "claude", None),
    (r"janus", "janus-pro", None),
    (r"dbrx.*instruct|instruct.*dbrx", "dbrx-instruct", None),
    (r"vicuna|llava-v1\.5|llava-next-video-7b", "vicuna_v1.1", None),
    (r"llama-2.*chat|codellama.*instruct", "llama-2-chat", None),
    (r"pixtral|(mistral|mixtral).*instruct", "mistral", None),
    (r"llama-3.*instruct", "llama-3-instruct", None),
    (r"tinyllama", "chatml", None),
    (r"qwen.*vl", "qwen2-vl", None),
    (r"glm[-_]?4(\.\d+)?v", "glm-4v", None),
    (r"qwen.*(chat|instruct)", "qwen", r"llava"),
    (r"llava-v1\.6-34b|llava-v1\.6-yi-34b|llava-next-video-34b|llava-onevision-qwen2", "chatml-llava", None),
    (r"yi-vl", "yi-vl", None),
    (r"yi-1\.5.*chat", "yi-1.5", None),
    (r"gemma-4.*it", "gemma-4-it", None),
    (r"(gemma.*it)|(gemma-3)", "gemma-it", None),
    (r"minicpm-v", "minicpmv", None),
    (r"minicpm-o", "minicpmo", None),
    (r"c4ai-command-r", "c4ai-command-r", None),
    (r"granite.*instruct", "granite-3-instruct", None),
    (r"internvl2_5", "internvl-2-5", None),
    (r"intern-s1", "interns1", None),
    (r"smollm", "chatml", None),
)


class ChatTemplates:
    """The known templates by name, and the functions that find one for a model's path."""

    def __init__(self, templates: Sequence[ChatTemplate]) -> None:
        self._by_name = {template.name: template for template in templates}
        self._matchers: list[MatchingFunction] = []

    def register(self, template: ChatTemplate) -> None:
        """Add a template; one of the same name is replaced."""
        self._by_name[template.name] = template

    def register_matching_function(self, function: MatchingFunction) -> MatchingFunction:
        """Add a function from a model's path to a template name or None. Those added first are asked first, before the built-in rules."""
        self._matchers.append(function)
        return function

    def get(self, name: str) -> ChatTemplate:
        """The template of this name; raises UnknownChatTemplate (also a KeyError)."""
        if name not in self._by_name:
            raise UnknownChatTemplate("chat_template", name, f"unknown; known: {', '.join(sorted(self._by_name))}")
        return self._by_name[name]

    def find(self, model_path: str) -> str:
        """The name of the template for a model's path; `default` when nothing matches."""
        for function in self._matchers:
            name = function(model_path)
            if name is not None:
                return name
        for pattern, name, but_not in _PATH_RULES:
            if re.search(pattern, model_path, re.IGNORECASE) and not (but_not and re.search(but_not, model_path, re.IGNORECASE)):
                return name
        return "default"

    def names(self) -> tuple[str, ...]:
        """The known names, sorted."""
        return tuple(sorted(self._by_name))
