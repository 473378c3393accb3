"""Logits to token ids, and the decision that a text has ended."""
