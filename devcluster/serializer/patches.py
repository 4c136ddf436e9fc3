"""JSON patch, JSON merge patch and strategic merge patch on JSON values. The arguments are not modified.

Sources: RFC 6902 as implemented by evanphx/json-patch, RFC 7386, and apimachinery pkg/util/strategicpatch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.languages.go_text import go_print
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.integers import parse_integer


class PatchError(Exception):
    """The patch is invalid or does not fit the object."""


class PatchTestFailed(PatchError):
    """A `test` operation of a JSON patch failed."""


def invalid_patch_error() -> errors.StatusError:
    """Return kube-apiserver's 422 for a JSON patch that cannot be applied."""
    failure = errors.unprocessable("the server rejected our request due to an error in our request")
    failure.details = {}
    return failure


# --- JSON patch -------------------------------------------------------------------------------------------------------


def json_patch(obj: Any, operations: list[JSON | None]) -> Any:
    """Apply RFC 6902 operations in order, all or none. Raises PatchError.

    As in evanphx/json-patch, an operation without a value uses null, `replace` of a missing key adds it, and `test`
    treats a missing key as null. The total size of copied values is limited, because copies of copies double it.
    """
    copied_bytes = 0
    for operation in operations:
        if operation and operation.get("op") == "copy":
            with _json_patch_errors("copy", operation.get("from"), missing="doc is missing from path"):
                copied_bytes += len(msgspec.json.encode(_get(obj, _pointer(operation.get("from")))))
            if copied_bytes > _MAX_COPIED_BYTES:
                size = f"the accumulated size increase of copy is {copied_bytes}"
                raise PatchError(f"Unable to complete the copy, {size}, exceeding the limit {_MAX_COPIED_BYTES}")
        obj = _operate(obj, operation)
    return obj


_MAX_COPIED_BYTES = 3 << 20  # kube-apiserver's JSONPatchMaxCopyBytes


def _operate(obj: Any, operation: JSON | None) -> Any:
    operation = operation or {}
    op, text = operation.get("op"), operation.get("path")
    path = _pointer(text)
    match op:
        case "add":
            with _json_patch_errors("add", text, quoted=True):
                return _put(obj, path, operation.get("value"), insert=True)
        case "replace":
            return _replace(obj, path, operation.get("value"), text)
        case "test":
            with _json_patch_errors("test", text, missing="is missing path"):
                value = _get(obj, path)
            if not _equal_json(value, operation.get("value")):
                raise PatchTestFailed(f"testing value {text} failed: test failed")
            return obj
        case "remove":
            with _json_patch_errors("remove", text, quoted=True):
                return _remove(obj, path)
        case "move" | "copy":
            origin = operation.get("from")
            source = _pointer(origin)
            with _json_patch_errors(op, origin, missing="doc is missing from path"):
                value = _get(obj, source)
                obj = _remove(obj, source) if op == "move" else obj
            with _json_patch_errors(op, text, missing="doc is missing destination path"):
                return _put(obj, path, value, insert=True)
    raise PatchError(f"Unexpected kind: {op}")


def _replace(obj: Any, path: list[str], value: Any, text: Any) -> Any:
    if not path:
        if not isinstance(value, dict | list):
            raise PatchError("replace operation value must be object or array")
        return value
    with _json_patch_errors("replace", text):
        parent = _get(obj, path[:-1])
        if not isinstance(parent, dict | list):
            raise _MissingPath
    try:
        if isinstance(parent, list):
            _index(parent, path[-1])
    except PatchError as error:
        message = f"replace operation does not apply: doc is missing key: {text}: missing value"
        raise PatchError(message) from error
    return _put(obj, path, value, insert=False)


class _MissingPath(PatchError):
    """An intermediate element of a path does not exist."""


@contextmanager
def _json_patch_errors(
    op: str, path: Any, *, missing: str = "doc is missing path", quoted: bool = False
) -> Iterator[None]:
    """Translate path errors of an operation to the messages of evanphx/json-patch."""
    try:
        yield
    except _MissingPath as error:
        quoted_path = f'"{path}"' if quoted else path
        raise PatchError(f"{op} operation does not apply: {missing}: {quoted_path}: missing value") from error
    except PatchError as error:
        raise PatchError(f"error in {op} for path: '{path}': {error}") from error


def _equal_json(one: Any, other: Any) -> bool:
    """Return True if two JSON values are equal; Python's == equates 1 and True."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal_json(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal_json, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _pointer(text: Any) -> list[str]:
    """Return the keys of a JSON pointer. Like evanphx/json-patch, ignore anything before the first slash."""
    if not isinstance(text, str):
        raise PatchError("an operation needs a path")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(items: list[Any], part: str, *, insert: bool = False) -> int:
    """Return the list index for `part`; negative ones count from the end, for an insertion from after the end."""
    if part == "-" and insert:
        return len(items)
    if not _INDEX.fullmatch(part):
        problem = f'strconv.Atoi: parsing "{part}": invalid syntax'
        raise PatchError(f"value was not a proper array index: '{part}': {problem}" if insert else problem)
    index, places = parse_integer(part), len(items) + insert
    if not -places <= index < places:
        raise PatchError(f"Unable to access invalid index: {index}: invalid index referenced")
    return index if index >= 0 else index + places


_INDEX = re.compile(r"[-+]?[0-9]+")


def _get(obj: Any, path: list[str]) -> Any:
    """Return the value at `path`, or None if the last object lacks the last key."""
    for position, part in enumerate(path):
        if isinstance(obj, dict):
            if part not in obj and position < len(path) - 1:
                raise _MissingPath
            obj = obj.get(part)
        elif isinstance(obj, list):
            obj = obj[_index(obj, part) if position == len(path) - 1 else _step(obj, part)]
        else:
            raise _MissingPath
    return obj


def _step(items: list[Any], part: str) -> int:
    """Return the index of an intermediate path element. Raises _MissingPath."""
    try:
        return _index(items, part)
    except PatchError as error:
        raise _MissingPath from error


def _put(obj: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        raise PatchError("a value cannot be added in place of the whole")
    first, *rest = path
    if isinstance(obj, dict):
        if rest and first not in obj:
            raise _MissingPath
        return {**obj, first: _put(obj[first], rest, value, insert=insert) if rest else value}
    if isinstance(obj, list):
        index = _step(obj, first) if rest else _index(obj, first, insert=insert)
        if rest:
            return [*obj[:index], _put(obj[index], rest, value, insert=insert), *obj[index + 1 :]]
        return [*obj[:index], value, *obj[index + (not insert) :]]
    raise _MissingPath


def _remove(obj: Any, path: list[str]) -> Any:
    if not path:
        raise PatchError("the whole object cannot be removed")
    first, *rest = path
    if isinstance(obj, dict):
        if first not in obj:
            raise _MissingPath if rest else PatchError(f"Unable to remove nonexistent key: {first}: missing value")
        if rest:
            return {**obj, first: _remove(obj[first], rest)}
        return {name: value for name, value in obj.items() if name != first}
    if isinstance(obj, list):
        index = _step(obj, first) if rest else _index(obj, first)
        return [*obj[:index], *([_remove(obj[index], rest)] if rest else []), *obj[index + 1 :]]
    raise _MissingPath


# --- merge patch ------------------------------------------------------------------------------------------------------


def merge_patch(obj: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386): null removes, objects merge, other values replace."""
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


class MalformedPatch(PatchError):
    """The patch itself is invalid, for any object (400)."""


def strategic_patch(obj: JSON, patch: JSON, struct: schema.StructType | None) -> JSON:
    """Apply a strategic merge patch with the patch strategies of the type. Raises PatchError."""
    return _merge_map(obj, patch, struct)


def _merge_map(original: JSON, patch: JSON, struct: schema.StructType | None) -> JSON:
    if _DIRECTIVE in patch:
        directive = patch[_DIRECTIVE]
        if directive == "replace":
            return {name: value for name, value in patch.items() if name != _DIRECTIVE}
        if directive == "delete":
            return {}
        raise PatchError(f"unknown patch type: {_format_go_string(directive)} in map: {go_print(patch)}")
    result = _retain_keys(original, patch)
    done = _merge_ordered(result, patch, struct)
    for name, value in patch.items():
        if name in done or name == _RETAIN_KEYS:
            continue
        key, deletes = name, name.startswith(_DELETE_PREFIX)
        if deletes:
            key = name.removeprefix(_DELETE_PREFIX)
        if value is None:
            result.pop(key, None)
        elif key not in result or not isinstance(result[key], type(value)):
            if not deletes:
                _take(result, key, value)
        else:
            _merge_field(result, key, value, struct, deletes=deletes)
    return result


def _retain_keys(original: JSON, patch: JSON) -> JSON:
    """Return a copy of `original` with the keys of the $retainKeys directive, or all keys without one."""
    if _RETAIN_KEYS not in patch:
        return dict(original)
    retained = patch[_RETAIN_KEYS]
    if not isinstance(retained, list):
        raise MalformedPatch("invalid patch format of retainKeys")
    for name, value in patch.items():
        is_directive = name == _RETAIN_KEYS or name.startswith((_DELETE_PREFIX, _ORDER_PREFIX))
        if value is not None and not is_directive and name not in retained:
            raise MalformedPatch("invalid patch format of retainKeys")
    return {name: value for name, value in original.items() if name in retained}


def _take(result: JSON, name: str, value: Any) -> None:
    """Set a value of the patch for a key that was unset, without its directives and nulls."""
    cleaned, keep = _without_directives(value)
    if keep:
        result[name] = cleaned
    else:
        result.pop(name, None)


def _without_directives(value: Any) -> tuple[Any, bool]:
    """Return (the value without directives and nulls, False if nothing is left)."""
    if isinstance(value, dict):
        if _DIRECTIVE in value:
            return None, False
        result = {}
        for name, member in value.items():
            if member is None:
                continue
            cleaned, keep = _without_directives(member)
            if keep:
                result[name] = cleaned
        return result, True
    if isinstance(value, list):
        return [cleaned for cleaned, keep in map(_without_directives, value) if keep], True
    return value, True


def _merge_field(result: JSON, name: str, value: Any, struct: schema.StructType | None, *, deletes: bool) -> None:
    """Merge a value of the patch into a current value of the same type."""
    field = struct.json.get(name) if struct is not None else None
    if isinstance(value, dict):
        if field is not None and field.type.kind == "raw":
            _reject_nested_patch(result[name], value)
        if field is not None and "replace" in field.patch_strategy:
            result[name] = value
        else:
            result[name] = _merge_map(result[name], value, field.type.struct if field is not None else None)
    elif isinstance(value, list):
        if deletes:
            result[name] = [item for item in result[name] if item not in value]
        elif field is not None and "merge" in field.patch_strategy:
            result[name] = _merge_list(result[name], value, field)
        else:
            result[name] = value
    else:
        result[name] = value


def _reject_nested_patch(original: JSON, patch: JSON) -> None:
    """Raise PatchError if the patch merges into an object whose fields the type does not declare."""
    for name, value in patch.items():
        if isinstance(value, dict | list) and type(original.get(name)) is type(value):
            raise PatchError(f'unable to find api field in struct RawExtension for the json field "{name}"')


def _merge_ordered(result: JSON, patch: JSON, struct: schema.StructType | None) -> set[str]:
    """Merge the lists that have a $setElementOrder directive; return the patch's keys that were processed."""
    done: set[str] = set()
    for directive, order in patch.items():
        if not directive.startswith(_ORDER_PREFIX):
            continue
        name = directive.removeprefix(_ORDER_PREFIX)
        done.add(directive)
        _expect_list(order)
        field = struct.json.get(name) if struct is not None else None
        if field is None and struct is not None:
            raise PatchError(f'unable to find api field in struct {struct.go_name} for the json field "{name}"')
        key = field.patch_merge_key if field is not None else ""
        original, patch_items = result.get(name, []), patch.get(name) or []
        _expect_list(original)
        _expect_list(patch_items)
        _check_order(patch_items, order, key)
        if name in result and patch_items:
            merge = field is not None and "merge" in field.patch_strategy
            merged = _merge_list(original, patch_items, field) if merge and field is not None else patch_items
        elif patch_items:
            merged = _without_directives(patch_items)[0]
        elif name in result:
            merged = original
        else:
            continue
        for index, item in enumerate(order if key else ()):
            if not isinstance(item, dict):
                raise PatchError(f"value for key {index} is not a map")
            if key not in item:
                raise PatchError(f"map: {go_print(item)} does not contain declared merge key: {key}")
        result[name] = _interleaved(merged, order, original, key)
        done.add(name)
    return done


def remaining_patch(patch: JSON, original: JSON) -> JSON:
    """Return what kube-apiserver's error shows of an already merged patch: without lists that it has ordered."""
    ordered = {name.removeprefix(_ORDER_PREFIX) for name in patch if name.startswith(_ORDER_PREFIX)}
    remaining: JSON = {}
    for name, value in patch.items():
        if name in ordered or name.startswith(_ORDER_PREFIX):
            continue
        inner = original.get(name)
        remaining[name] = (
            remaining_patch(value, inner) if isinstance(value, dict) and isinstance(inner, dict) else value
        )
    return remaining


def _expect_list(value: Any) -> None:
    if not isinstance(value, list):
        raise PatchError(f"expected a []interface {{}}, but received a {_GO_TYPES[type(value)]}")


_GO_TYPES = {
    dict: "map[string]interface {}", str: "string", bool: "bool", int: "int64", float: "float64",
    type(None): "<nil>",
}  # fmt: skip


def _check_order(patch_items: list[Any], order: list[Any], key: str) -> None:
    """Check that the items of the patch appear in its $setElementOrder list, in the same order."""
    if not patch_items or not order:
        return
    rest = iter(_identity(item, key) for item in order)
    for item in patch_items:
        if isinstance(item, dict) and _DIRECTIVE in item:
            continue
        identity = _identity(item, key)
        if all(name != identity for name in rest):
            message = f"The order in patch list:\n{go_print(patch_items)}\n doesn't match $setElementOrder list:\n"
            raise PatchError(f"{message}{go_print(order)}\n")


def _identity(item: Any, key: str) -> Any:
    return item.get(key) if key and isinstance(item, dict) else item


def _merge_list(original: list[Any], patch: list[Any], field: schema.Field) -> list[Any]:
    key = field.patch_merge_key
    if not original and not patch:
        return original
    if not any(isinstance(item, dict) for item in (*original, *patch)):
        if any(isinstance(item, list) for item in (*original, *patch)):
            raise PatchError(f"lists of lists cannot be merged: {field.name}")
        merged = list(dict.fromkeys((*original, *patch)))
        return _interleaved(merged, patch, original, "")
    if not all(isinstance(item, dict) for item in (*original, *patch)):
        raise PatchError(f"list element types are not identical: {go_print([original, patch])}")
    if not key:
        raise PatchError(f"cannot merge lists without merge key for {field.name}")
    current, additions, replaced = list(original), [], False
    for item_patch in patch:
        directive = item_patch.get(_DIRECTIVE) if isinstance(item_patch, dict) else None
        if directive is None:
            additions.append(item_patch)
        elif directive == "delete":
            if key not in item_patch:
                raise PatchError(f"map: {go_print(item_patch)} does not contain declared merge key: {key}")
            current = [item for item in current if item.get(key) != item_patch[key]]
        elif directive == "replace":
            replaced = True
        elif directive == "merge":
            raise PatchError("merging lists cannot yet be specified in the patch")
        else:
            raise PatchError(f"unknown patch type: {_format_go_string(directive)} in map: {go_print(item_patch)}")
    if replaced:
        return _interleaved(additions, [], additions, key)
    merged = list(current)
    element = field.type.element.struct if field.type.element is not None else None
    for item_patch in additions:
        if not isinstance(item_patch, dict) or key not in item_patch:
            raise PatchError(f"map: {go_print(item_patch)} does not contain declared merge key: {key}")
        index = next((index for index, item in enumerate(merged) if item.get(key) == item_patch[key]), None)
        if index is None:
            merged.append(_without_directives(item_patch)[0])
        else:
            merged[index] = _merge_map(merged[index], item_patch, element)
    return _interleaved(merged, additions, current, key)


def _interleaved(items: list[Any], order: list[Any], current: list[Any], key: str) -> list[Any]:
    """Return the items in `order`, interleaved with the other items, which keep the order of `current`.

    An item that is not in `order` precedes the first ordered item that follows it in the current list.
    """
    ordered_identities = [_identity(item, key) for item in order]
    current_identities = [_identity(item, key) for item in current]

    def place(item: Any) -> int:
        name = _identity(item, key)
        return current_identities.index(name) if name in current_identities else -1

    named = [item for item in items if _identity(item, key) in ordered_identities]
    named.sort(key=lambda item: ordered_identities.index(_identity(item, key)))
    server_items = sorted((item for item in items if _identity(item, key) not in ordered_identities), key=place)
    result: list[Any] = []
    while server_items and named:
        first, second = place(server_items[0]), place(named[0])
        result.append(server_items.pop(0) if 0 <= first < second else named.pop(0))
    return [*result, *server_items, *named]


def _format_go_string(value: Any) -> str:
    """Format a value like Go's %s."""
    if isinstance(value, str):
        return value
    return f"%!s({'int64' if type(value) is int else type(value).__name__}={go_print(value)})"


def format_go_syntax(value: Any) -> str:
    """Format a value like Go's %#v."""
    if isinstance(value, dict):
        pairs = ", ".join(f"{format_go_syntax(key)}:{format_go_syntax(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{pairs}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(format_go_syntax, value))}}}"
    return go_print(value) if isinstance(value, float) else msgspec.json.encode(value).decode()
