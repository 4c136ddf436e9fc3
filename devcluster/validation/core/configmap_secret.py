"""Validation of ConfigMaps and Secrets. Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from base64 import b64decode

from kubeloop.devcluster.serializer.go_json_errors import go_json_error
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from kubeloop.kube.name_checks import config_key

_DATA_LIMIT = 1 << 20


def validate_config_map(errors: ErrorList, obj: JSON) -> None:
    data, binary = obj.get("data", {}), obj.get("binaryData", {})
    total = 0
    for key, value in sorted(data.items()):
        errors.invalid_each(f"data[{key}]", key, config_key(key))
        if key in binary:
            errors.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        total += len(value.encode())
    for key, value in sorted(binary.items()):
        errors.invalid_each(f"binaryData[{key}]", key, config_key(key))
        total += len(b64decode(value or ""))
    if total > _DATA_LIMIT:
        errors.too_long("[]", _DATA_LIMIT)


def validate_config_map_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    defaults: JSON = {"data": {}}
    _validate_immutable_data(errors, defaults | obj, defaults | old, "data", "binaryData")
    if any(obj.get(name) != old.get(name) for name in ("data", "binaryData")):
        validate_config_map(errors, obj)


def _validate_immutable_data(errors: ErrorList, obj: JSON, old: JSON, *names: str) -> None:
    """Keep `immutable`, and the data with it, once it is set."""
    if not old.get("immutable"):
        return
    detail = "field is immutable when `immutable` is set"
    if not obj.get("immutable"):
        errors.forbidden("immutable", detail)
    for name in names:
        if obj.get(name) != old.get(name):
            errors.forbidden(name, detail)


_SECRET_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def validate_secret(errors: ErrorList, obj: JSON) -> None:
    data, kind = obj.get("data", {}), obj.get("type", "")
    total = 0
    for key, value in sorted(data.items()):
        errors.invalid_each(f"data[{key}]", key, config_key(key))
        total += len(b64decode(value or ""))
    if total > _DATA_LIMIT:
        errors.too_long("data", _DATA_LIMIT)
    if kind == "kubernetes.io/service-account-token":
        if not obj["metadata"].get("annotations", {}).get("kubernetes.io/service-account.name"):
            errors.required("metadata.annotations[kubernetes.io/service-account.name]")
    elif kind == "kubernetes.io/basic-auth":
        if "username" not in data and "password" not in data:
            errors.required("data[username]")
            errors.required("data[password]")
    else:
        for key in _SECRET_KEYS.get(kind, ()):
            if key not in data or (kind == "kubernetes.io/ssh-auth" and not data[key]):
                errors.required(f"data[{key}]")
            elif "docker" in kind and (detail := _json_object_error(b64decode(data[key] or ""))):
                errors.invalid(f"data[{key}]", "<secret contents redacted>", detail)


def _json_object_error(text: bytes) -> str:
    """Return the reason why the text is not a JSON object; "" if it is one."""
    if detail := go_json_error(text):
        return detail
    kind = _JSON_KINDS.get(text.lstrip()[:1], "number")
    return "" if kind in ("object", "null") else f"{_NOT_AN_OBJECT.format(kind)}"


_JSON_KINDS = {b"{": "object", b"[": "array", b'"': "string", b"t": "bool", b"f": "bool", b"n": "null"}
_NOT_AN_OBJECT = "json: cannot unmarshal {} into Go value of type map[string]interface {{}}"


def validate_secret_update(errors: ErrorList, obj: JSON, old: JSON) -> None:
    errors.immutable("type", obj.get("type", ""), old.get("type", ""))
    _validate_immutable_data(errors, obj, old, "data")
    if obj.get("data") != old.get("data") or _annotations(obj) != _annotations(old):
        validate_secret(errors, obj)


def _annotations(obj: JSON) -> JSON:
    annotations: JSON = obj["metadata"].get("annotations", {})
    return annotations
