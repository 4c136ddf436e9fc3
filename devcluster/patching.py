"""JSON patch, JSON merge patch and strategic merge patch on plain JSON; nothing given is changed.

Sources: RFC 6902 as evanphx/json-patch reads it, RFC 7386, and apimachinery pkg/util/strategicpatch.
"""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster import errors
from kubeloop.kube import schema

JSON = dict[str, Any]


class PatchError(Exception):
    """The patch does not fit the object, or makes no sense."""


def refused() -> errors.StatusError:
    """422 in kube-apiserver's words for a JSON patch that cannot be applied."""
    failure = errors.unprocessable("the server rejected our request due to an error in our request")
    failure.details = {}
    return failure


# --- JSON patch -------------------------------------------------------------------------------------------------------


def json_patch(obj: Any, operations: Any) -> Any:
    """Apply RFC 6902 operations in order, all or none. Raises PatchError."""
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise PatchError("a JSON patch is a list of operations")
    for operation in operations:
        obj = _operate(obj, operation)
    return obj


def _operate(obj: Any, operation: JSON) -> Any:
    op = operation.get("op")
    path = _pointer(operation.get("path"))
    match op:
        case "add" | "replace" | "test":
            if "value" not in operation and op != "test":
                raise PatchError(f"{op} needs a value")
            value = operation.get("value")
            if op == "test":
                if _get(obj, path, missing_is_null=True) != value:
                    raise PatchError("testing value failed")
                return obj
            if op == "replace":
                _get(obj, path)
            return _put(obj, path, value, insert=op == "add")
        case "remove":
            return _remove(obj, path)
        case "move":
            source = _pointer(operation.get("from"))
            return _put(_remove(obj, source), path, _get(obj, source), insert=True)
        case "copy":
            return _put(obj, path, _get(obj, _pointer(operation.get("from"))), insert=True)
    raise PatchError(f"unexpected kind: {op}")


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchError("a path begins with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(items: list[Any], part: str, *, insert: bool = False) -> int:
    if part == "-" and insert:
        return len(items)
    try:
        index = int(part)
    except ValueError:
        raise PatchError(f"{part} is no index") from None
    if not -len(items) <= index <= len(items) - (not insert):
        raise PatchError(f"index {part} is out of bounds")
    return index if index >= 0 else index + len(items)


def _get(obj: Any, path: list[str], *, missing_is_null: bool = False) -> Any:
    for part in path:
        if isinstance(obj, dict):
            if part not in obj:
                if missing_is_null and part == path[-1]:
                    return None
                raise PatchError(f"missing path {part}")
            obj = obj[part]
        elif isinstance(obj, list):
            obj = obj[_index(obj, part)]
        else:
            raise PatchError(f"missing path {part}")
    return obj


def _put(obj: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    first, *rest = path
    if isinstance(obj, dict):
        if rest and first not in obj:
            raise PatchError(f"missing path {first}")
        return {**obj, first: _put(obj[first], rest, value, insert=insert) if rest else value}
    if isinstance(obj, list):
        index = _index(obj, first, insert=insert and not rest)
        if rest:
            return [*obj[:index], _put(obj[index], rest, value, insert=insert), *obj[index + 1 :]]
        return [*obj[:index], value, *obj[index + (not insert) :]]
    raise PatchError(f"missing path {first}")


def _remove(obj: Any, path: list[str]) -> Any:
    if not path:
        raise PatchError("the whole object cannot be removed")
    first, *rest = path
    if isinstance(obj, dict):
        if first not in obj:
            raise PatchError(f"missing path {first}")
        if rest:
            return {**obj, first: _remove(obj[first], rest)}
        return {name: value for name, value in obj.items() if name != first}
    if isinstance(obj, list):
        index = _index(obj, first)
        return [*obj[:index], *([_remove(obj[index], rest)] if rest else []), *obj[index + 1 :]]
    raise PatchError(f"missing path {first}")


# --- merge patch ------------------------------------------------------------------------------------------------------


def merge_patch(obj: Any, patch: Any) -> Any:
    """RFC 7386: null removes, maps merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(obj) if isinstance(obj, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


# --- strategic merge patch --------------------------------------------------------------------------------------------

_DIRECTIVE = "$patch"
_RETAIN_KEYS = "$retainKeys"
_DELETE_PREFIX = "$deleteFromPrimitiveList/"
_ORDER_PREFIX = "$setElementOrder/"


def strategic_patch(obj: JSON, patch: JSON, struct: schema.StructType | None) -> JSON:
    """Merge by the patch strategies of the type. Raises PatchError for directives that make no sense."""
    merged = _merge_map(obj, patch, struct)
    return merged if merged is not None else {}


def _merge_map(obj: JSON, patch: JSON, struct: schema.StructType | None) -> JSON | None:
    """None: the patch deletes the map."""
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return _plain({name: value for name, value in patch.items() if name != _DIRECTIVE})
    if directive == "delete":
        return None
    if directive not in (None, "merge"):
        raise PatchError(f"unknown patch type: {directive}")
    result = dict(obj)
    if _RETAIN_KEYS in patch:
        kept = patch[_RETAIN_KEYS]
        if not isinstance(kept, list):
            raise PatchError("invalid patch format of retainKeys list")
        unlisted = [name for name in patch if not name.startswith("$") and name not in kept]
        if unlisted:
            raise PatchError("retainKeys list must contains all fields present in the patch")
        result = {name: value for name, value in result.items() if name in kept}
    for name, doomed in patch.items():
        if name.startswith(_DELETE_PREFIX):
            field = name.removeprefix(_DELETE_PREFIX)
            if field in result:
                result[field] = [each for each in result[field] if each not in doomed]
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        _merge_field(result, name, value, patch.get(_ORDER_PREFIX + name), struct)
    for name, order in patch.items():
        field = name.removeprefix(_ORDER_PREFIX)
        if name.startswith(_ORDER_PREFIX) and field not in patch and isinstance(result.get(field), list):
            _, key = schema.merge_key(struct, field) if struct is not None else ((), "")
            result[field] = _ordered(result[field], order, key, set())
    return result


def _merge_field(result: JSON, name: str, value: Any, order: Any, struct: schema.StructType | None) -> None:
    field = struct.json.get(name) if struct is not None else None
    if value is None:
        result.pop(name, None)
    elif isinstance(value, dict):
        inner = field.type.struct if field is not None else None
        replaced = field is not None and "replace" in field.patch_strategy
        old = result.get(name)
        merged = _merge_map({} if replaced or not isinstance(old, dict) else old, value, inner)
        if merged is None:
            result.pop(name, None)
        else:
            result[name] = merged
    elif isinstance(value, list) and field is not None and "merge" in field.patch_strategy:
        old = result.get(name)
        result[name] = _merge_list(old if isinstance(old, list) else [], value, order, field)
    else:
        result[name] = _plain(value)


def _merge_list(old: list[Any], patch: list[Any], order: Any, field: schema.Field) -> list[Any]:
    key = field.patch_merge_key
    element = field.type.element.struct if field.type.element is not None else None
    if not key:
        merged = [*old, *(each for each in patch if each not in old)]
        return _ordered(merged, order, key, {*map(str, patch)}) if order is not None else merged
    if any(isinstance(each, dict) and each.get(_DIRECTIVE) == "replace" for each in patch):
        return [_plain(each) for each in patch if not (isinstance(each, dict) and _DIRECTIVE in each)]
    result: list[Any] = list(old)
    touched = set()
    for each in patch:
        if not isinstance(each, dict) or (key not in each and _DIRECTIVE not in each):
            raise PatchError(f"map: {each} does not contain declared merge key: {key}")
        same = [index for index, item in enumerate(result) if isinstance(item, dict) and item.get(key) == each.get(key)]
        if each.get(_DIRECTIVE) == "delete":
            result = [item for index, item in enumerate(result) if index not in same]
            continue
        touched.add(str(each[key]))
        if same:
            merged_item = _merge_map(result[same[0]], each, element)
            result[same[0]] = merged_item
        else:
            result.append(_merge_map({}, each, element))
    return _ordered(result, order, key, touched) if order is not None else result


def _ordered(items: list[Any], order: Any, key: str, patched: set[str]) -> list[Any]:
    """Bring the items that `order` names into its order; the others keep their place relative to each other.

    Items the patch does not name stand where the live list had them, before the first named item that followed.
    """
    if not isinstance(order, list):
        raise PatchError("$setElementOrder must be a list")

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted = [identity(each) for each in order]
    rank = {str(name): index for index, name in enumerate(wanted)}
    named = sorted((item for item in items if str(identity(item)) in rank), key=lambda item: rank[str(identity(item))])
    result: list[Any] = []
    position = {id(item): index for index, item in enumerate(items)}
    rest = [item for item in items if str(identity(item)) not in rank]
    for item in named:
        # an item that is new has no place in the live list yet, so nothing is moved before it
        if str(identity(item)) not in patched or position[id(item)] < len(items) - len(patched):
            while rest and position[id(rest[0])] < position[id(item)]:
                result.append(rest.pop(0))
        result.append(item)
    return [*result, *rest]


def _plain(value: Any) -> Any:
    """A value of the patch as it becomes part of the object: without directives and nulls."""
    if isinstance(value, dict):
        return {
            name: _plain(member) for name, member in value.items() if member is not None and not name.startswith("$")
        }
    if isinstance(value, list):
        return [_plain(each) for each in value if not (isinstance(each, dict) and each.get(_DIRECTIVE) == "delete")]
    return value
