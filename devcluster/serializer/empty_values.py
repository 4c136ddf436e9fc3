"""Empty lists and maps of a request, which decoding drops although Go distinguishes empty from nil."""

from __future__ import annotations

from typing import Any


def restore_empty_values(obj: Any, sent: Any) -> Any:
    """Return `obj` with the empty lists and maps of `sent` that `obj` lacks; other values are shared with `obj`."""
    if isinstance(obj, dict) and isinstance(sent, dict):
        added = {}
        for name, value in sent.items():
            current = obj.get(name)
            if current is None and value in ([], {}):
                added[name] = value
            elif current is not None and value and (inner := restore_empty_values(current, value)) is not current:
                added[name] = inner
        return {**obj, **added} if added else obj
    if isinstance(obj, list) and isinstance(sent, list) and len(obj) == len(sent):
        items = [restore_empty_values(*pair) for pair in zip(obj, sent, strict=True)]
        return items if any(one is not other for one, other in zip(items, obj, strict=True)) else obj
    return obj
