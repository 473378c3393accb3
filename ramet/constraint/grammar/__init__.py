"""Constraints that are not regular languages: recursive JSON Schemas, EBNF, Lark and structural tags, through the library llguidance.

`matcher.GrammarConstraint` is a `base.Compiled` like the automaton's; it takes a grammar in llguidance's form, which the other files write.
"""
