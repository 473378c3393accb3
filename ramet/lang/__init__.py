"""The language embedded in Python: a program is a tree of frozen nodes, and someone interprets it.

`nodes` are what a program appends, `api` spells them, `stream` keeps their order, `interpreter` runs them one method a node, `state` is
what the user's function holds, `run` and `batch` start programs. Nothing here runs a model: that is what `backends` are for.
"""
