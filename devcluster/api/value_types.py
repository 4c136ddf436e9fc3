"""Types of values for field ownership and server-side apply: what a map or list may contain, and what owns its parts.

`managedfields.go_types` has those of Kubernetes' Go types, `apiextensions.value_types` those of a custom resource's
schema. Source: sigs.k8s.io/structured-merge-diff schema/elements.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ValueType:
    """The type of a value. This class itself is that of values without a schema: maps by member, lists as a whole.

    kind: "map", "list", "any", or the kind of a scalar in a schema.TypeRef. is_atomic: a map is owned as a whole.
    is_open: a map may have members that `fields` does not declare. list_type: "map" or "set" if items have owners, else
    "". list_keys: names of an item's keys, sorted. default: of a key.
    """

    kind: str = "any"
    is_atomic: bool = False
    is_open: bool = True
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    default: Any = None

    @property
    def fields(self) -> Mapping[str, ValueType]:
        """Declared fields of a map."""
        return {}

    @property
    def members(self) -> ValueType:
        """Type of the members of a map that are not declared."""
        return UNTYPED

    @property
    def items(self) -> ValueType:
        """Type of the items of a list."""
        return UNTYPED

    def member(self, name: str) -> ValueType:
        """Return the type of a member of a map."""
        return self.fields.get(name) or self.members


UNTYPED = ValueType()
