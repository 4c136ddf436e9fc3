"""JSON patch, JSON merge patch and strategic merge patch on plain JSON; nothing given is changed.

Sources: RFC 6902 as evanphx/json-patch reads it, RFC 7386, and apimachinery pkg/util/strategicpatch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON


class PatchError(Exception):
    """The patch does not fit the object, or makes no sense."""


class PatchTestFailed(PatchError):
    """The object is not as the patch wants it to be."""


def invalid_patch_error() -> errors.StatusError:
    """422 in kube-apiserver's words for a JSON patch that cannot be applied."""
    failure = errors.unprocessable("the server rejected our request due to an error in our request")
    failure.details = {}
    return failure


# --- JSON patch -------------------------------------------------------------------------------------------------------


def json_patch(obj: Any, operations: list[JSON | None]) -> Any:
    """Apply RFC 6902 operations in order, all or none. Raises PatchError.

    As the library that Kubernetes uses, an operation without a value puts null, replacing a key that is not there adds
    it, and a test takes what is not there for null.
    """
    for operation in operations:
        obj = _operate(obj, operation)
    return obj


def _operate(obj: Any, operation: JSON | None) -> Any:
    operation = operation or {}
    op, text = operation.get("op"), operation.get("path")
    path = _pointer(text)
    match op:
        case "add":
            with _told("add", text, quoted=True):
                return _put(obj, path, operation.get("value"), insert=True)
        case "replace":
            return _replace(obj, path, operation.get("value"), text)
        case "test":
            with _told("test", text, missing="is missing path"):
                found = _get(obj, path)
            if not _same(found, operation.get("value")):
                raise PatchTestFailed(f"testing value {text} failed: test failed")
            return obj
        case "remove":
            with _told("remove", text, quoted=True):
                return _remove(obj, path)
        case "move" | "copy":
            origin = operation.get("from")
            source = _pointer(origin)
            with _told(op, origin, missing="doc is missing from path"):
                value = _get(obj, source)
                obj = _remove(obj, source) if op == "move" else obj
            with _told(op, text, missing="doc is missing destination path"):
                return _put(obj, path, value, insert=True)
    raise PatchError(f"Unexpected kind: {op}")


def _replace(obj: Any, path: list[str], value: Any, text: Any) -> Any:
    if not path:
        if not isinstance(value, dict | list):
            raise PatchError("replace operation value must be object or array")
        return value
    with _told("replace", text):
        parent = _get(obj, path[:-1])
        if not isinstance(parent, dict | list):
            raise _Nowhere
    try:
        if isinstance(parent, list):
            _index(parent, path[-1])
    except PatchError as error:
        told = f"replace operation does not apply: doc is missing key: {text}: missing value"
        raise PatchError(told) from error
    return _put(obj, path, value, insert=False)


class _Nowhere(PatchError):
    """What a path leads through is not there."""


@contextmanager
def _told(op: str, path: Any, *, missing: str = "doc is missing path", quoted: bool = False) -> Iterator[None]:
    """An operation's errors, in the words of the library that Kubernetes uses."""
    try:
        yield
    except _Nowhere as error:
        shown = f'"{path}"' if quoted else path
        raise PatchError(f"{op} operation does not apply: {missing}: {shown}: missing value") from error
    except PatchError as error:
        raise PatchError(f"error in {op} for path: '{path}': {error}") from error


def _same(one: Any, other: Any) -> bool:
    """Are they the same JSON? In Python 1 == True, too."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _pointer(text: Any) -> list[str]:
    """The keys of a path. What stands before its first slash is passed over, as by the library that Kubernetes uses."""
    if not isinstance(text, str):
        raise PatchError("an operation needs a path")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(items: list[Any], part: str, *, insert: bool = False) -> int:
    """Where `part` points to; a negative one counts from the end, for an insertion from the place after it."""
    if part == "-" and insert:
        return len(items)
    if not _INDEX.fullmatch(part):
        wrong = f'strconv.Atoi: parsing "{part}": invalid syntax'
        raise PatchError(f"value was not a proper array index: '{part}': {wrong}" if insert else wrong)
    index, places = int(part), len(items) + insert
    if not -places <= index < places:
        raise PatchError(f"Unable to access invalid index: {index}: invalid index referenced")
    return index if index >= 0 else index + places


_INDEX = re.compile(r"[-+]?[0-9]+")


def _get(obj: Any, path: list[str]) -> Any:
    """The value there; None for a key that the last object has not."""
    for position, part in enumerate(path):
        if isinstance(obj, dict):
            if part not in obj and position < len(path) - 1:
                raise _Nowhere
            obj = obj.get(part)
        elif isinstance(obj, list):
            obj = obj[_index(obj, part) if position == len(path) - 1 else _step(obj, part)]
        else:
            raise _Nowhere
    return obj


def _step(items: list[Any], part: str) -> int:
    """Where a path goes on."""
    try:
        return _index(items, part)
    except PatchError as error:
        raise _Nowhere from error


def _put(obj: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        raise PatchError("a value cannot be added in place of the whole")
    first, *rest = path
    if isinstance(obj, dict):
        if rest and first not in obj:
            raise _Nowhere
        return {**obj, first: _put(obj[first], rest, value, insert=insert) if rest else value}
    if isinstance(obj, list):
        index = _step(obj, first) if rest else _index(obj, first, insert=insert)
        if rest:
            return [*obj[:index], _put(obj[index], rest, value, insert=insert), *obj[index + 1 :]]
        return [*obj[:index], value, *obj[index + (not insert) :]]
    raise _Nowhere


def _remove(obj: Any, path: list[str]) -> Any:
    if not path:
        raise PatchError("the whole object cannot be removed")
    first, *rest = path
    if isinstance(obj, dict):
        if first not in obj:
            raise _Nowhere if rest else PatchError(f"Unable to remove nonexistent key: {first}: missing value")
        if rest:
            return {**obj, first: _remove(obj[first], rest)}
        return {name: value for name, value in obj.items() if name != first}
    if isinstance(obj, list):
        index = _step(obj, first) if rest else _index(obj, first)
        return [*obj[:index], *([_remove(obj[index], rest)] if rest else []), *obj[index + 1 :]]
    raise _Nowhere


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


class MalformedPatch(PatchError):
    """The patch itself is wrong, whatever it is applied to (400)."""


def strategic_patch(obj: JSON, patch: JSON, struct: schema.StructType | None) -> JSON:
    """Merge by the patch strategies of the type. Raises PatchError."""
    return _merge_map(obj, patch, struct)


def _merge_map(original: JSON, patch: JSON, struct: schema.StructType | None) -> JSON:
    if _DIRECTIVE in patch:
        directive = patch[_DIRECTIVE]
        if directive == "replace":
            return {name: value for name, value in patch.items() if name != _DIRECTIVE}
        if directive == "delete":
            return {}
        raise PatchError(f"unknown patch type: {_as_text(directive)} in map: {format_go_value(patch)}")
    result = _retained(original, patch)
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


def _retained(original: JSON, patch: JSON) -> JSON:
    """A copy of `original` with the keys that the patch retains; with all of them if it does not say."""
    if _RETAIN_KEYS not in patch:
        return dict(original)
    kept = patch[_RETAIN_KEYS]
    if not isinstance(kept, list):
        raise MalformedPatch("invalid patch format of retainKeys")
    for name, value in patch.items():
        is_directive = name == _RETAIN_KEYS or name.startswith((_DELETE_PREFIX, _ORDER_PREFIX))
        if value is not None and not is_directive and name not in kept:
            raise MalformedPatch("invalid patch format of retainKeys")
    return {name: value for name, value in original.items() if name in kept}


def _take(result: JSON, name: str, value: Any) -> None:
    """Put a value of the patch where there was none, without its directives and nulls."""
    kept, keep = _without_directives(value)
    if keep:
        result[name] = kept
    else:
        result.pop(name, None)


def _without_directives(value: Any) -> tuple[Any, bool]:
    """(the value, False if it is nothing but a directive)."""
    if isinstance(value, dict):
        if _DIRECTIVE in value:
            return None, False
        result = {}
        for name, each in value.items():
            if each is None:
                continue
            kept, keep = _without_directives(each)
            if keep:
                result[name] = kept
        return result, True
    if isinstance(value, list):
        return [kept for kept, keep in map(_without_directives, value) if keep], True
    return value, True


def _merge_field(result: JSON, name: str, value: Any, struct: schema.StructType | None, *, deletes: bool) -> None:
    """Merge a value into one of the same type."""
    field = struct.json.get(name) if struct is not None else None
    if isinstance(value, dict):
        if field is not None and field.type.kind == "raw":
            _refuse_deep(result[name], value)
        if field is not None and "replace" in field.patch_strategy:
            result[name] = value
        else:
            result[name] = _merge_map(result[name], value, field.type.struct if field is not None else None)
    elif isinstance(value, list):
        if deletes:
            result[name] = [each for each in result[name] if each not in value]
        elif field is not None and "merge" in field.patch_strategy:
            result[name] = _merge_list(result[name], value, field)
        else:
            result[name] = value
    else:
        result[name] = value


def _refuse_deep(original: JSON, patch: JSON) -> None:
    """Raises PatchError for a patch of what is deeper in an object than its type tells."""
    for name, value in patch.items():
        if isinstance(value, dict | list) and type(original.get(name)) is type(value):
            raise PatchError(f'unable to find api field in struct RawExtension for the json field "{name}"')


def _merge_ordered(result: JSON, patch: JSON, struct: schema.StructType | None) -> set[str]:
    """Merge the lists whose order the patch gives; returns the names in the patch that are dealt with."""
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
        original, given = result.get(name, []), patch.get(name) or []
        _expect_list(original)
        _expect_list(given)
        _check_order(given, order, key)
        if name in result and given:
            merge = field is not None and "merge" in field.patch_strategy
            merged = _merge_list(original, given, field) if merge and field is not None else given
        elif given:
            merged = _without_directives(given)[0]
        elif name in result:
            merged = original
        else:
            continue
        for index, each in enumerate(order if key else ()):
            if not isinstance(each, dict):
                raise PatchError(f"value for key {index} is not a map")
            if key not in each:
                raise PatchError(f"map: {format_go_value(each)} does not contain declared merge key: {key}")
        result[name] = _interleaved(merged, order, original, key)
        done.add(name)
    return done


def remaining_patch(patch: JSON, original: JSON) -> JSON:
    """What kube-apiserver has left of a patch that it has merged: lists whose order it gives are taken out."""
    ordered = {name.removeprefix(_ORDER_PREFIX) for name in patch if name.startswith(_ORDER_PREFIX)}
    left: JSON = {}
    for name, value in patch.items():
        if name in ordered or name.startswith(_ORDER_PREFIX):
            continue
        inner = original.get(name)
        left[name] = remaining_patch(value, inner) if isinstance(value, dict) and isinstance(inner, dict) else value
    return left


def _expect_list(value: Any) -> None:
    if not isinstance(value, list):
        raise PatchError(f"expected a []interface {{}}, but received a {_GO_TYPES[type(value)]}")


_GO_TYPES = {
    dict: "map[string]interface {}", str: "string", bool: "bool", int: "int64", float: "float64",
    type(None): "<nil>",
}  # fmt: skip


def _check_order(given: list[Any], order: list[Any], key: str) -> None:
    """The items of the patch are in its order list, in the same order."""
    if not given or not order:
        return
    rest = iter(_identity(each, key) for each in order)
    for each in given:
        if isinstance(each, dict) and _DIRECTIVE in each:
            continue
        wanted = _identity(each, key)
        if all(name != wanted for name in rest):
            told = f"The order in patch list:\n{format_go_value(given)}\n doesn't match $setElementOrder list:\n"
            raise PatchError(f"{told}{format_go_value(order)}\n")


def _identity(item: Any, key: str) -> Any:
    return item.get(key) if key and isinstance(item, dict) else item


def _merge_list(original: list[Any], patch: list[Any], field: schema.Field) -> list[Any]:
    key = field.patch_merge_key
    if not original and not patch:
        return original
    if not any(isinstance(each, dict) for each in (*original, *patch)):
        if any(isinstance(each, list) for each in (*original, *patch)):
            raise PatchError(f"lists of lists cannot be merged: {field.name}")
        merged = list(dict.fromkeys((*original, *patch)))
        return _interleaved(merged, patch, original, "")
    if not all(isinstance(each, dict) for each in (*original, *patch)):
        raise PatchError(f"list element types are not identical: {format_go_value([original, patch])}")
    if not key:
        raise PatchError(f"cannot merge lists without merge key for {field.name}")
    live, given, replaced = list(original), [], False
    for each in patch:
        directive = each.get(_DIRECTIVE) if isinstance(each, dict) else None
        if directive is None:
            given.append(each)
        elif directive == "delete":
            if key not in each:
                raise PatchError(f"map: {format_go_value(each)} does not contain declared merge key: {key}")
            live = [item for item in live if item.get(key) != each[key]]
        elif directive == "replace":
            replaced = True
        elif directive == "merge":
            raise PatchError("merging lists cannot yet be specified in the patch")
        else:
            raise PatchError(f"unknown patch type: {_as_text(directive)} in map: {format_go_value(each)}")
    if replaced:
        return _interleaved(given, [], given, key)
    merged = list(live)
    element = field.type.element.struct if field.type.element is not None else None
    for each in given:
        if not isinstance(each, dict) or key not in each:
            raise PatchError(f"map: {format_go_value(each)} does not contain declared merge key: {key}")
        index = next((index for index, item in enumerate(merged) if item.get(key) == each[key]), None)
        if index is None:
            merged.append(_without_directives(each)[0])
        else:
            merged[index] = _merge_map(merged[index], each, element)
    return _interleaved(merged, given, live, key)


def _interleaved(items: list[Any], order: list[Any], live: list[Any], key: str) -> list[Any]:
    """Items that `order` names in its order, the others in the order of `live`; both put together by `live`.

    A server's own item goes before the first named one that follows it in the live list.
    """
    wanted = [_identity(each, key) for each in order]
    places = [_identity(each, key) for each in live]

    def place(item: Any) -> int:
        name = _identity(item, key)
        return places.index(name) if name in places else -1

    named = [item for item in items if _identity(item, key) in wanted]
    named.sort(key=lambda item: wanted.index(_identity(item, key)))
    own = sorted((item for item in items if _identity(item, key) not in wanted), key=place)
    result: list[Any] = []
    while own and named:
        first, second = place(own[0]), place(named[0])
        result.append(own.pop(0) if 0 <= first < second else named.pop(0))
    return [*result, *own, *named]


def _as_text(value: Any) -> str:
    """A value as Go prints it with %s."""
    if isinstance(value, str):
        return value
    return f"%!s({'int64' if type(value) is int else type(value).__name__}={format_go_value(value)})"


def format_go_value(value: Any) -> str:
    """A value as Go prints it with %v."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{name}:{format_go_value(value[name])}' for name in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(format_go_value, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def format_go_syntax(value: Any) -> str:
    """A value as Go prints it with %#v."""
    if isinstance(value, dict):
        pairs = ", ".join(f"{format_go_syntax(key)}:{format_go_syntax(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{pairs}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(format_go_syntax, value))}}}"
    return msgspec.json.encode(value).decode()
