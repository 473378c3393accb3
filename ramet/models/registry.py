"""Architectures, by the class name that a Hugging Face config carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ramet.errors import UnsupportedModel
from ramet.models.family import Family
from ramet.registry import Registry

FAMILIES: Final[Registry[Family]] = Registry("architecture")
FAMILIES.add("LlamaForCausalLM", "ramet.models.llama:LLAMA")
FAMILIES.add("MistralForCausalLM", "ramet.models.mistral:MISTRAL")
FAMILIES.add("Qwen2ForCausalLM", "ramet.models.qwen:QWEN2")
FAMILIES.add("Qwen3ForCausalLM", "ramet.models.qwen:QWEN3")


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a Hugging Face config; raises UnsupportedModel naming its architectures and the known ones."""
    named = config.get("architectures") or []
    for name in named:
        if name in FAMILIES:
            return FAMILIES.get(name)
    raise UnsupportedModel(f"architectures={named!r}: none is implemented; known: {', '.join(FAMILIES.names())}")
