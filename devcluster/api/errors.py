"""Failures as the API server tells them: a metav1.Status in Kubernetes' own words.

Raised anywhere below the REST handlers; `server.py` turns them into answers. Knows nothing of HTTP beyond codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource


class StatusError(Exception):
    """An answer that is a failure. `status` is the metav1.Status, `headers` go with it (Retry-After, Allow).

    `list_metadata` is the Status' own metadata: a continue token, if there is one to go on with.
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


def quoted(text: str) -> str:
    """Go's %q."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_quoted_character, text))}"'


_ESCAPED = {
    '"': r"\"", "\\": "\\\\", "\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v",
}  # fmt: skip


def _quoted_character(char: str) -> str:
    if char in _ESCAPED:
        return _ESCAPED[char]
    if char.isprintable():
        return char
    number = ord(char)
    if number < 0x80:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def not_found(resource: Resource[Any], name: str) -> StatusError:
    """404; 400 for what can be nobody's name, as it is no segment of a path."""
    if name in (".", "..") or "%" in name:
        told = f"may not be '{name}'" if name in (".", "..") else "may not contain '%'"
        return bad_request(f"Name parameter invalid: {quoted(name)}: {told}")
    return StatusError(
        404, "NotFound", f"{resource.group_resource} {quoted(name)} not found", details=_details(resource, name)
    )


def path_not_found() -> StatusError:
    """A path below a served version that names no resource; outside of those the answer is plain text."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(resource: Resource[Any], name: str) -> StatusError:
    return StatusError(
        409,
        "AlreadyExists",
        f"{resource.group_resource} {quoted(name)} already exists",
        details=_details(resource, name),
    )


def name_not_generated(resource: Resource[Any], name: str) -> StatusError:
    """409 for an object with a generateName whose name is taken, whoever chose it."""
    refusal = already_exists(resource, name)
    refusal.message += ", the server was not able to generate a unique name for the object"
    refusal.details = {**(refusal.details or {}), "retryAfterSeconds": 1}
    refusal.headers = (("Retry-After", "1"),)
    return refusal


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(resource: Resource[Any], name: str, why: str = MODIFIED, *, subresource: str = "") -> StatusError:
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    full = f"{plural}.{resource.group}" if resource.group else plural
    return StatusError(
        409,
        "Conflict",
        f"Operation cannot be fulfilled on {full} {quoted(name)}: {why}",
        details=_details(resource, name, kind=plural),
    )


def failed_precondition(
    resource: Resource[Any], name: str, field: str, given: str, found: str, *, subresource: str = ""
) -> StatusError:
    """409 for a write that is meant for another object, or for another version of it. field: UID or ResourceVersion."""
    why = f"Precondition failed: {field} in precondition: {given}, {field} in object meta: {found}"
    return conflict(resource, name, why, subresource=subresource)


def kind_conflict(group: str, kind: str, name: str, why: str) -> StatusError:
    """Conflicts that Kubernetes words with the kind instead of the resource (failed preconditions)."""
    return StatusError(
        409,
        "Conflict",
        f"Operation cannot be fulfilled on {f'{kind}.{group}' if group else kind} {quoted(name)}: {why}",
        details=_details(None, name, kind=kind, group=group),
    )


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def internal(message: str, *, reason: str = "", details: Mapping[str, Any] | None = None) -> StatusError:
    return StatusError(500, reason, message, details=details)


def internal_error(why: str) -> StatusError:
    """What NewInternalError makes of an error of Go."""
    told = f"Internal error occurred: {why}"
    return internal(told, reason="InternalError", details={"causes": [{"message": why}]})


class NotDurable(StatusError):
    """A write that did not take place because the data directory cannot be written."""

    def __init__(self, why: str) -> None:
        message = f"Internal error occurred: the data directory cannot be written: {why}"
        super().__init__(500, "InternalError", message, details={"causes": [{"message": message}]})


def name_in_message(obj: JSON) -> str:
    """As admission tells it of an object whose name may not have been generated yet."""
    metadata = obj["metadata"]
    return str(metadata.get("name") or metadata.get("generateName") or "Unknown")


def forbidden(resource: Resource[Any], name: str, why: str, *, causes: Sequence[JSON] = ()) -> StatusError:
    details = _details(resource, name)
    if causes:
        details["causes"] = list(causes)
    named = f" {quoted(name)}" if name else ""
    return StatusError(403, "Forbidden", f"{resource.group_resource}{named} is forbidden: {why}", details=details)


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


def unsupported_patch() -> StatusError:
    return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


_STREAMS = tuple(f"{each};stream=watch" for each in ("application/json", "application/vnd.kubernetes.protobuf"))


def not_acceptable(*, streams: bool) -> StatusError:
    """406 for media types that are not made. `streams`: what is asked for may be a watch."""
    made = ", ".join((*BODY_TYPES, *_STREAMS) if streams else BODY_TYPES)
    return StatusError(406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {made}", details={})


def only_acceptable(made: str) -> StatusError:
    """406 where one media type alone is made."""
    return StatusError(406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {made}", details={})


def no_such_stream() -> StatusError:
    """406 for a watch in a form that is no stream."""
    return StatusError(406, "NotAcceptable", f"only the following media types are accepted: {', '.join(_STREAMS)}")


def form_not_acceptable(message: str = "") -> StatusError:
    """406 for a media type that is made, in a form (as=...) that is not, or not of what was asked for."""
    accepted = f"only the following media types are accepted: {', '.join(BODY_TYPES)}"
    return StatusError(406, "NotAcceptable", message or accepted)


def expired(message: str = "The resourceVersion for the provided list is too old.") -> StatusError:
    return StatusError(410, "Expired", message)


def too_large_revision(asked: int, current: int) -> StatusError:
    """504: the caller has seen a revision that this server has not. Source: storage.NewTooLargeResourceVersionError."""
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
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


def unprocessable(message: str, causes: Sequence[JSON] = ()) -> StatusError:
    """422 without an object's name, as patches that do not fit get it."""
    return StatusError(422, "Invalid", message, details={"causes": list(causes)} if causes else {})


def invalid(group: str, kind: str, name: str, causes: Iterable[JSON]) -> StatusError:
    """422 with one cause per wrong field; each cause is {"reason", "message", "field"} as metav1.StatusCause.

    Source: errors.NewInvalid and field.ErrorList.ToAggregate, which names an error that occurs twice only once.
    """
    causes = list(causes)
    texts = list(dict.fromkeys(f"{cause['field'] or '[]'}: {cause['message']}" for cause in causes))
    told = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified = f"{kind}.{group}" if group else kind
    details = _details(None, name, kind=kind, group=group)
    details["causes"] = [{name: text for name, text in each.items() if text} for each in causes]
    return StatusError(422, "Invalid", f"{qualified} {quoted(name)} is invalid: {told}", details=details)


def cause(reason: str, field: str, message: str) -> JSON:
    """One metav1.StatusCause, as a field error becomes it: reason "FieldValueInvalid" and its like."""
    return {"reason": reason, "message": message, "field": field}


def options_invalid(kind: str, causes: Iterable[JSON]) -> StatusError:
    """Wrong ListOptions, CreateOptions, DeleteOptions, ..."""
    return invalid("meta.k8s.io", kind, "", causes)
