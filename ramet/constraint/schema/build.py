"""From the text of a schema to the syntax tree of its values, or to what a grammar is made from."""

from __future__ import annotations

from decimal import Decimal
from itertools import combinations
from typing import Any

from ramet.constraint.limits import Source
from ramet.constraint.schema.keywords import ANNOTATIONS, Schema, check_schema
from ramet.constraint.schema.read import Value, read_json
from ramet.constraint.schema.refs import References
from ramet.constraint.schema.sites import Site
from ramet.constraint.schema.spelling import style_of
from ramet.constraint.schema.trees import NOTHING
from ramet.constraint.schema.values import Values
from ramet.constraint.syntax import Alt, Node, Seq


def schema_tree(source: Source) -> Node:
    """The tree of the JSON texts that the schema in `source.text` lets through; `source.kind` says how they are spaced.

    Its parts are shared, so that written out it may be far larger than it is. Raises NeedsGrammar where no finite automaton is enough, and
    InvalidConstraint for what is no schema, not offered, satisfied by no value, or too large.
    """
    schemas, values = _read(source)
    try:
        node = values.node([Site("#", schemas["#"])])
    except RecursionError as error:  # the caller left little room
        raise source.error("values, references and alternatives nest too deep: put less into one another") from error
    if node is NOTHING:
        raise source.error("no value satisfies the schema" + (f": {values.emptied[0]}" if values.emptied else ""))
    # What can match nothing adds no text, but is lowered first: inner nodes before outer ones, so that no recursion goes deep.
    return Alt((Seq((*reversed(values.made), NOTHING)), node))


def schema_for_grammar(source: Source) -> Schema:
    """The schema for a grammar: no annotations, plain numbers, anchors as pointers, anyOf for a oneOf whose options exclude each other.

    Raises InvalidConstraint for what is no schema.
    """
    schemas, values = _read(source)
    paths = {id(schema): path for path, schema in schemas.items() if isinstance(schema, dict)}

    def plain(value: Value) -> Any:
        if isinstance(value, Decimal):
            return float(value)
        if isinstance(value, list):
            return [plain(item) for item in value]
        if not isinstance(value, dict):
            return value
        path = paths.get(id(value))
        if path is None:
            return {key: plain(item) for key, item in value.items()}
        kept = {key: plain(item) for key, item in value.items() if not (key in ANNOTATIONS or key.startswith("x-"))}
        if "$ref" in kept and not (kept["$ref"] == "#" or kept["$ref"].startswith("#/")):
            kept["$ref"] = values.refs.resolve(kept["$ref"], path)
        if "oneOf" in kept and "anyOf" not in kept and _is_exclusive(values, Site(path, value)):
            kept["anyOf"] = kept.pop("oneOf")
        return kept

    found: Schema = plain(schemas["#"])
    return found


def _is_exclusive(values: Values, site: Site) -> bool:
    return all(values.excludes(pair) for pair in combinations(site.listed("oneOf"), 2))


def _read(source: Source) -> tuple[dict[str, Schema], Values]:
    schemas = check_schema(source, read_json(source))
    return schemas, Values(source, References(source, schemas), style_of(source.kind))
