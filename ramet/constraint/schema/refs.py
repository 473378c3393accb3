"""Where a `$ref` leads."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from urllib.parse import unquote

from ramet.constraint.limits import Source
from ramet.constraint.schema.keywords import Schema
from ramet.constraint.schema.sites import Site


class References:
    """The schemas of one text by pointer and by anchor."""

    def __init__(self, source: Source, schemas: Mapping[str, Schema]) -> None:
        self._source = source
        self._schemas = schemas
        self._anchors: dict[str, str] = {}
        root = schemas["#"]
        self._own_name = root.get("$id") if isinstance(root, dict) else None
        for path, schema in schemas.items():
            keywords = schema if isinstance(schema, dict) else {}
            for keyword in ("$anchor", "$dynamicAnchor"):
                name = keywords.get(keyword)
                if name is None:
                    continue
                if not isinstance(name, str) or self._anchors.setdefault(name, path) != path:
                    raise source.error(f"{path}/{keyword}: {name!r} is no name, or names two schemas")

    def resolve(self, ref: str, path: str) -> str:
        """The pointer of the schema that a reference at `path` means. Raises InvalidConstraint naming the reference when there is none."""
        if ref.partition("#")[0] == self._own_name:
            ref = "#" + ref.partition("#")[2]
        target = unquote(ref)
        if ref.startswith("#") and not ref.startswith("#/") and ref != "#":
            target = self._anchors.get(target[1:], "")
        if target not in self._schemas:
            raise self._source.error(f"{path}/$ref: {ref!r} leads to no schema in this one: {self._way_out(ref)}")
        return target

    def site(self, ref: str, path: str) -> Site:
        """The schema that a reference at `path` means."""
        target = self.resolve(ref, path)
        return Site(target, self._schemas[target])

    @cached_property
    def are_recursive(self) -> bool:
        """Whether some schema comes back to itself, by its parts and references."""
        leads: dict[str, list[str]] = {path: [] for path in self._schemas}
        for path, schema in self._schemas.items():
            if isinstance(schema, dict) and "$ref" in schema:
                leads[path].append(self.resolve(schema["$ref"], path))
            owner = self._owner(path)
            if owner is not None:
                leads[owner].append(path)
        try:
            TopologicalSorter(leads).prepare()
        except CycleError:
            return True
        return False

    def _owner(self, path: str) -> str | None:
        """The schema that has the one at `path` as a part; None for the whole, and for a definition, which nothing has until named."""
        at = path
        while at != "#":
            at = at.rpartition("/")[0]
            if at in self._schemas:
                return None if path[len(at) :].startswith(("/$defs/", "/definitions/")) else at
        return None

    def _way_out(self, ref: str) -> str:
        if not ref.startswith("#"):
            inside = f"#{ref}" if ref.startswith("/") else ""
            return (
                f"write {inside!r}" if inside in self._schemas else "only references within the schema are offered, such as '#/$defs/Name'"
            )
        known = [path for path in self._schemas if path.startswith(("#/$defs/", "#/definitions/"))] + [f"#{name}" for name in self._anchors]
        near = difflib.get_close_matches(ref, known, n=1)
        return f"did you mean {near[0]!r}?" if near else "put it under $defs"
