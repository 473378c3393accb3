"""Constraints on the output: text in, byte automaton out, mask out.

`compile.compile_constraint` makes a `base.Compiled` that requests share; each request advances its own `base.Matcher`.
"""
