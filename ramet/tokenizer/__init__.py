"""Text to ids to bytes and back."""

from __future__ import annotations

from ramet.tokenizer.chat import apply_chat_template
from ramet.tokenizer.incremental import IncrementalDetokenizer
from ramet.tokenizer.load import load_tokenizer
from ramet.tokenizer.token_bytes import TokenBytes
from ramet.tokenizer.tokenizer import Tokenizer

__all__ = ["IncrementalDetokenizer", "TokenBytes", "Tokenizer", "apply_chat_template", "load_tokenizer"]
