"""JSON Schema (draft 2020-12) to a syntax tree over the texts of its values.

read -> keywords (shape, names) -> terms (references and alternatives resolved) -> values (one node a type) -> the byte automaton.
"""
