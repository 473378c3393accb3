"""Chat templates of models, rendered in a sandbox."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from ramet.errors import InvalidRequest
from ramet.tokenizer import Tokenizer, apply_chat_template

HI = [{"role": "user", "content": "Hi <b> é"}]


def with_template(trained: Tokenizer, template: str | None) -> Tokenizer:
    return Tokenizer(trained._backend, bos_token_id=1, eos_token_ids=(0,), chat_template=template)


def test_smollm2(smollm2: Tokenizer) -> None:
    system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    turn = "<|im_start|>user\nHi <b> é<|im_end|>\n"
    assert apply_chat_template(smollm2, HI) == f"{system}{turn}<|im_start|>assistant\n"
    assert apply_chat_template(smollm2, HI, add_generation_prompt=False) == system + turn
    own = [{"role": "system", "content": "Be brief."}, *HI]
    assert apply_chat_template(smollm2, own, add_generation_prompt=False) == f"<|im_start|>system\nBe brief.<|im_end|>\n{turn}"


@pytest.mark.parametrize(
    ("template", "options", "expected"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", {}, "<|user|>Hi <b> é<|end|>"),
        ("{% for m in messages %}\n    {{ m.role }}\n{% endfor %}", {}, "    user\n"),
        ("{{ messages | tojson }}", {}, '[{"role": "user", "content": "Hi <b> é"}]'),
        ("{{ [1] | tojson(indent=1) }}", {}, "[\n 1\n]"),
        ("{{ tools is defined }} {{ tools }}", {"tools": ["t"]}, "True ['t']"),
        ("{{ enable_thinking }}", {"enable_thinking": False}, "False"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", {}, "1"),
        ("{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% else %}fixed{% endif %}", {}, "fixed"),
        ("{{ strftime_now('%d %b %Y') }}", {"now": datetime(2024, 7, 26)}, "26 Jul 2024"),
    ],
)
def test_what_templates_may_use(trained: Tokenizer, template: str, options: dict[str, Any], expected: str) -> None:
    assert apply_chat_template(with_template(trained, template), HI, **options) == expected


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (None, "this model has no chat template"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for %}", "refuses these messages"),
        ("{{ messages[0].content.x.y }}", "refuses these messages"),
        ("{{ messages[0].content + 1 }}", "refuses these messages"),
        ("{{ 1 / 0 }}", "refuses these messages"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ range(10000000) | list }}", "refuses these messages"),
    ],
)
def test_refused(trained: Tokenizer, template: str | None, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        apply_chat_template(with_template(trained, template), HI)
