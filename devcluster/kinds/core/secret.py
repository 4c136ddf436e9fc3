"""Secrets. Source: pkg/apis/core/validation/validation.go of Kubernetes v1.36."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator

from kubeloop.devcluster.api.selectable_fields import METADATA, fields
from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.columns import AGE, number_of, row, text_of
from kubeloop.devcluster.serializer.go_json_errors import go_json_error
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import config_key

DATA_LIMIT = 1 << 20


def validate_immutable_data(errors: ErrorList, obj: JSON, old: JSON, *names: str) -> None:
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
        errors.check(f"data[{key}]", key, config_key)
        total += len(b64decode(value or ""))
    if total > DATA_LIMIT:
        errors.too_long("data", DATA_LIMIT)
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
    validate_immutable_data(errors, obj, old, "data")
    if obj.get("data") != old.get("data") or _annotations(obj) != _annotations(old):
        validate_secret(errors, obj)


def _annotations(obj: JSON) -> JSON:
    annotations: JSON = obj["metadata"].get("annotations", {})
    return annotations


def _default(obj: JSON) -> None:
    obj.setdefault("type", "Opaque")
    text = obj.pop("stringData", None)
    if text:
        obj["data"] = {
            **obj.get("data", {}),
            **{key: b64encode(value.encode()).decode() for key, value in text.items()},
        }


def _warnings(obj: JSON, _old: JSON | None) -> Iterator[str]:
    """Yield a warning about PEM data that is missing in a TLS secret; the pair is not verified."""
    if obj.get("type") != "kubernetes.io/tls":
        return
    data = obj.get("data", {})
    certificate, key = (b64decode(data.get(name) or "") for name in ("tls.crt", "tls.key"))
    for input_name, pem, marks in (("certificate", certificate, (b"CERTIFICATE",)), ("key", key, (b"PRIVATE KEY",))):
        if b"-----BEGIN " not in pem:
            yield f"tls: failed to find any PEM data in {input_name} input"
            return
        if not any(mark in pem for mark in marks):
            return


STRATEGY = Strategy(
    default=_default,
    validate=validate_secret,
    validate_update=validate_secret_update,
    update_steps="usw",
    validated_as_sent=True,
    warnings=_warnings,
    cells=row(text_of("type"), number_of("data"), AGE),
    selectable_fields=METADATA | fields("type"),
)
