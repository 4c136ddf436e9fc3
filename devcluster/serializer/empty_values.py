"""What a client sends empty and decoding drops, where Go tells an empty list or map from none."""

from __future__ import annotations

from typing import Any


def restore_empty_values(obj: Any, sent: Any) -> Any:
    """`obj` with the empty lists and maps that `sent` has where `obj` has nothing; shares everything else with it."""
    if isinstance(obj, dict) and isinstance(sent, dict):
        added = {}
        for name, value in sent.items():
            here = obj.get(name)
            if here is None and value in ([], {}):
                added[name] = value
            elif here is not None and value and (inner := restore_empty_values(here, value)) is not here:
                added[name] = inner
        return {**obj, **added} if added else obj
    if isinstance(obj, list) and isinstance(sent, list) and len(obj) == len(sent):
        items = [restore_empty_values(*pair) for pair in zip(obj, sent, strict=True)]
        return items if any(one is not other for one, other in zip(items, obj, strict=True)) else obj
    return obj
