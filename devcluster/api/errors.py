"""API errors: metav1.Status responses with Kubernetes' texts.

Raised anywhere below the REST handlers; the server turns them into responses. Independent of HTTP, except for codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.validation.field_errors import quoted


class StatusError(Exception):
    """An error response. `status` is the metav1.Status, `headers` are sent with it (Retry-After, Allow).

    `list_metadata` is the metadata of the Status: a continue token, if the list can be continued.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = None if details is None else dict(details)
        self.headers = tuple(headers)
        self.list_metadata: JSON = {}

    @property
    def status(self) -> JSON:
        status: JSON = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.list_metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _details(resource: Resource[Any] | None, name: str, kind: str = "", group: str | None = None) -> JSON:
    details: JSON = {}
    if name:
        details["name"] = name
    if resource is not None:
        group = resource.group if group is None else group
        kind = kind or resource.plural
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    return details


def not_found(resource: Resource[Any], name: str) -> StatusError:
    """Return 404, or 400 for a name that cannot be a path segment."""
    if name in (".", "..") or "%" in name:
        problem = f"may not be '{name}'" if name in (".", "..") else "may not contain '%'"
        return bad_request(f"Name parameter invalid: {quoted(name)}: {problem}")
    return StatusError(
        404, "NotFound", f"{resource.group_resource} {quoted(name)} not found", details=_details(resource, name)
    )


def path_not_found() -> StatusError:
    """Return 404 for a path below a served version that names no resource; for other paths the 404 is plain text."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(resource: Resource[Any], name: str) -> StatusError:
    return StatusError(
        409,
        "AlreadyExists",
        f"{resource.group_resource} {quoted(name)} already exists",
        details=_details(resource, name),
    )


def name_not_generated(resource: Resource[Any], name: str) -> StatusError:
    """Return 409 for an object with a generateName whose name is taken."""
    error = already_exists(resource, name)
    error.message += ", the server was not able to generate a unique name for the object"
    error.details = {**(error.details or {}), "retryAfterSeconds": 1}
    error.headers = (("Retry-After", "1"),)
    return error


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(resource: Resource[Any], name: str, reason: str = MODIFIED, *, subresource: str = "") -> StatusError:
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    full = f"{plural}.{resource.group}" if resource.group else plural
    return StatusError(
        409,
        "Conflict",
        f"Operation cannot be fulfilled on {full} {quoted(name)}: {reason}",
        details=_details(resource, name, kind=plural),
    )


def failed_precondition(
    resource: Resource[Any], name: str, field: str, expected: str, actual: str, *, subresource: str = ""
) -> StatusError:
    """Return 409 for a write whose precondition on UID or ResourceVersion (`field`) is not met."""
    return conflict(resource, name, _precondition(field, expected, actual), subresource=subresource)


def failed_storage_precondition(
    resource: Resource[Any], namespace: str, name: str, field: str, expected: str, actual: str, *, dry_run: bool = False
) -> StatusError:
    """Return the 409 of a precondition that kube-apiserver's storage checks. Source: storage.NewInvalidObjError."""
    parts = ("" if dry_run else "/registry", _storage_prefix(resource), namespace, name)
    key = "/".join([parts[0], *filter(None, parts[1:])])
    prefix = f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
    return conflict(resource, name, prefix + _precondition(field, expected, actual))


def _precondition(field: str, expected: str, actual: str) -> str:
    return f"Precondition failed: {field} in precondition: {expected}, {field} in object meta: {actual}"


_STORAGE_PREFIXES = {
    "endpoints": "services/endpoints",
    "ingresses": "ingress",
    "nodes": "minions",
    "replicationcontrollers": "controllers",
    "services": "services/specs",
}
_GROUPS_WITH_PREFIX = ("apiextensions.k8s.io", "apiregistration.k8s.io")


def _storage_prefix(resource: Resource[Any]) -> str:
    """Return the prefix of a resource's keys in etcd. Source: pkg/kubeapiserver/default_storage_factory_builder.go."""
    if type(resource) is not Resource or resource.group in _GROUPS_WITH_PREFIX:  # another type: a custom resource
        return f"{resource.group}/{resource.plural}"
    return _STORAGE_PREFIXES.get(resource.plural, resource.plural)


def kind_conflict(group: str, kind: str, name: str, reason: str) -> StatusError:
    """Return 409 with the kind in place of the resource, as Kubernetes does for failed preconditions."""
    return StatusError(
        409,
        "Conflict",
        f"Operation cannot be fulfilled on {f'{kind}.{group}' if group else kind} {quoted(name)}: {reason}",
        details=_details(None, name, kind=kind, group=group),
    )


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def internal(message: str, *, reason: str = "", details: Mapping[str, Any] | None = None) -> StatusError:
    return StatusError(500, reason, message, details=details)


def timeout(message: str) -> StatusError:
    """Return the error of Kubernetes' NewTimeoutError."""
    return StatusError(504, "Timeout", f"Timeout: {message}", details={})


def internal_error(error: str) -> StatusError:
    """Return the error of Kubernetes' NewInternalError."""
    message = f"Internal error occurred: {error}"
    return internal(message, reason="InternalError", details={"causes": [{"message": error}]})


class NotDurable(StatusError):
    """A write did not take place because the data directory cannot be written."""

    def __init__(self, reason: str) -> None:
        message = f"Internal error occurred: the data directory cannot be written: {reason}"
        super().__init__(500, "InternalError", message, details={"causes": [{"message": message}]})


def name_in_message(obj: JSON) -> str:
    """Return an object's name for an admission message; it may not have been generated yet."""
    metadata = obj["metadata"]
    return str(metadata.get("name") or metadata.get("generateName") or "Unknown")


def forbidden(resource: Resource[Any], name: str, reason: str, *, causes: Sequence[JSON] = ()) -> StatusError:
    details = _details(resource, name)
    if causes:
        details["causes"] = list(causes)
    named = f" {quoted(name)}" if name else ""
    return StatusError(403, "Forbidden", f"{resource.group_resource}{named} is forbidden: {reason}", details=details)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> StatusError:
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


BODY_TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")


def body_too_large(limit_bytes: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit_bytes}")


def unsupported_body() -> StatusError:
    return StatusError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(BODY_TYPES)}",
    )


def unsupported_media_type() -> StatusError:
    """Return 415 for a Content-Type that no handler of the path accepts."""
    return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


_STREAMS = tuple(
    f"{media_type};stream=watch" for media_type in ("application/json", "application/vnd.kubernetes.protobuf")
)


def not_acceptable(*, streams: bool) -> StatusError:
    """Return 406 for an unsupported media type. `streams`: the request may be a watch."""
    media_types = ", ".join((*BODY_TYPES, *_STREAMS) if streams else BODY_TYPES)
    return StatusError(
        406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {media_types}", details={}
    )


def only_acceptable(media_type: str) -> StatusError:
    """Return 406 for a path with a single media type."""
    return StatusError(
        406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {media_type}", details={}
    )


def no_such_stream() -> StatusError:
    """Return 406 for a watch in a format that cannot be streamed."""
    return StatusError(406, "NotAcceptable", f"only the following media types are accepted: {', '.join(_STREAMS)}")


def form_not_acceptable(message: str = "") -> StatusError:
    """Return 406 for a supported media type with an unsupported conversion (as=...)."""
    accepted = f"only the following media types are accepted: {', '.join(BODY_TYPES)}"
    return StatusError(406, "NotAcceptable", message or accepted)


def expired(message: str = "The resourceVersion for the provided list is too old.") -> StatusError:
    return StatusError(410, "Expired", message)


def too_large_revision(requested: int, current: int) -> StatusError:
    """Return 504 for a revision that is newer than the store's. Source: storage.NewTooLargeResourceVersionError."""
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {requested}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        headers=[("Retry-After", "1")],
    )


def too_many_requests(message: str, *, retry_after_seconds: int, causes: Sequence[JSON] = ()) -> StatusError:
    details: JSON = {}
    if causes:
        details["causes"] = list(causes)
    headers = []
    if retry_after_seconds:
        details["retryAfterSeconds"] = retry_after_seconds
        headers.append(("Retry-After", str(retry_after_seconds)))
    return StatusError(429, "TooManyRequests", message, details=details, headers=headers)


def unprocessable(message: str) -> StatusError:
    """Return 422 without an object's name, as for patches that do not fit."""
    return StatusError(422, "Invalid", message, details={})


def invalid(group: str, kind: str, name: str, causes: Iterable[JSON]) -> StatusError:
    """Return 422 with one cause per invalid field; a cause is {"reason", "message", "field"} as in metav1.StatusCause.

    Source: errors.NewInvalid and field.ErrorList.ToAggregate, which drops duplicate messages.
    """
    causes = list(causes)
    messages = list(dict.fromkeys(f"{cause['field'] or '[]'}: {cause['message']}" for cause in causes))
    message = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    qualified = f"{kind}.{group}" if group else kind
    details = _details(None, name, kind=kind, group=group)
    details["causes"] = [{name: text for name, text in cause_.items() if text} for cause_ in causes]
    return StatusError(422, "Invalid", f"{qualified} {quoted(name)} is invalid: {message}", details=details)


def cause(reason: str, field: str, message: str) -> JSON:
    """Return a metav1.StatusCause of a field error, with a reason such as "FieldValueInvalid"."""
    return {"reason": reason, "message": message, "field": field}


def options_invalid(kind: str, causes: Iterable[JSON]) -> StatusError:
    """Return 422 for invalid ListOptions, CreateOptions, DeleteOptions, ..."""
    return invalid("meta.k8s.io", kind, "", causes)
