"""Errors by type, which decides the handling.

    ApiError            the API server returned a failure; carries its Status
    ServerUnreachable   no usable response after retries

Imports msgspec and `objects` only.
"""

from __future__ import annotations

import msgspec

from kubeloop.kube.objects import api_types
from kubeloop.kube.objects.api_types import ApiStatus, StatusDetails


class ServerUnreachable(Exception):
    """No response after the retries that the verb allows.

    `maybe_applied`: the server may have seen the request, so a write may have happened (or may still happen).
    """

    def __init__(self, message: str, *, maybe_applied: bool) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied


class UnreadableResponse(ServerUnreachable):
    """The response is not one of the Kubernetes API: from a proxy, or from a server that is not an API server."""


class ApiError(Exception):
    """Failure returned by the API server, with its Status. The subclass depends on the reason, then on the code."""

    def __init__(self, status: ApiStatus) -> None:
        super().__init__(status.message or status.reason or f"the server returned {status.code}")
        self.status = status

    @property
    def code(self) -> int:
        """The HTTP status code."""
        return self.status.code

    @property
    def reason(self) -> str:
        """Machine-readable reason, "" if the server sent none."""
        return self.status.reason

    @property
    def message(self) -> str:
        return self.status.message

    @property
    def retry_after_seconds(self) -> int:
        """Seconds to wait before a retry, 0 if the server sent none."""
        return self.status.details.retry_after_seconds if self.status.details else 0

    def has_cause(self, reason: str) -> bool:
        """Return True if a cause has this reason, such as "NamespaceTerminating" or "DisruptionBudget"."""
        return self.status.details is not None and any(cause.reason == reason for cause in self.status.details.causes)


class BadRequest(ApiError):
    """400: the request is malformed. Do not retry."""


class Unauthorized(ApiError):
    """401: the server does not accept the credentials."""


class Forbidden(ApiError):
    """403: the user is not allowed to do this, or an admission plugin rejects the request."""


class NamespaceTerminating(Forbidden):
    """403: the namespace is being deleted; nothing can be created in it."""


class NotFound(ApiError):
    """404: no such object, or no such resource."""


class MethodNotAllowed(ApiError):
    """405: the resource does not support this verb."""


class NotAcceptable(ApiError):
    """406: the server supports none of the requested media types."""


class Conflict(ApiError):
    """409: the object changed since it was read. Read it again and retry."""


class ApplyConflict(Conflict):
    """409: another field manager has a field of a server-side apply without force."""


class AlreadyExists(ApiError):
    """409: an object of this name exists."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old (reason Expired or Gone). List again."""


class RequestEntityTooLarge(ApiError):
    """413: the body exceeds the server's limit."""


class UnsupportedMediaType(ApiError):
    """415: the server does not support this content type, usually a type of patch."""


class Invalid(ApiError):
    """422: validation failed; the causes name the fields."""


class TooManyRequests(ApiError):
    """429: the server is overloaded, or an eviction would break a disruption budget."""


class DisruptionBudgetExceeded(TooManyRequests):
    """429: the eviction would break a disruption budget."""


class InternalError(ApiError):
    """500, or another 5xx without a class of its own."""


class ServiceUnavailable(ApiError):
    """503: the server, or one that it depends on, is not ready."""


class ServerTimeout(ApiError):
    """500 or 504: the operation timed out and may have been done (reasons ServerTimeout and Timeout)."""


_BY_REASON: dict[str, type[ApiError]] = {
    "BadRequest": BadRequest,
    "Unauthorized": Unauthorized,
    "Forbidden": Forbidden,
    "NotFound": NotFound,
    "MethodNotAllowed": MethodNotAllowed,
    "NotAcceptable": NotAcceptable,
    "Conflict": Conflict,
    "AlreadyExists": AlreadyExists,
    "Gone": Gone,
    "Expired": Gone,
    "RequestEntityTooLarge": RequestEntityTooLarge,
    "UnsupportedMediaType": UnsupportedMediaType,
    "Invalid": Invalid,
    "TooManyRequests": TooManyRequests,
    "InternalError": InternalError,
    "ServiceUnavailable": ServiceUnavailable,
    "ServerTimeout": ServerTimeout,
    "Timeout": ServerTimeout,
}

_BY_CAUSE: dict[str, type[ApiError]] = {
    "NamespaceTerminating": NamespaceTerminating,
    "FieldManagerConflict": ApplyConflict,
    "DisruptionBudget": DisruptionBudgetExceeded,
}

_REASON_OF_CODE: dict[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def is_namespace_terminating(error: Exception) -> bool:
    """Return True if the server rejected a create because the namespace is terminating: no retry can succeed."""
    return isinstance(error, ApiError) and error.has_cause("NamespaceTerminating")


def from_status(status: ApiStatus) -> ApiError:
    """Return the error for a failure Status. An unknown reason is treated by its code, as API clients must."""
    by_reason = _BY_REASON.get(status.reason)
    if by_reason is not None:
        for cause in status.details.causes if status.details is not None else ():
            by_cause = _BY_CAUSE.get(cause.reason)
            if by_cause is not None and issubclass(by_cause, by_reason):
                return by_cause(status)
        return by_reason(status)
    by_code = _BY_REASON.get(_REASON_OF_CODE.get(status.code, ""))
    if by_code is not None:
        return by_code(status)
    return InternalError(status) if status.code >= 500 else ApiError(status)


def from_response(code: int, body: bytes, *, retry_after_seconds: int = 0) -> ApiError:
    """Return the error for an HTTP response that is not a success.

    A body that is not a Status (a proxy's page) is converted to one; `retry_after_seconds` of the Retry-After header is
    used if the Status has none.
    """
    try:
        status = api_types.decode(ApiStatus, body)
    except msgspec.DecodeError:
        status = ApiStatus()
    if status.kind != "Status" or not (status.code or status.reason or status.message):
        text = body[:2048].decode("utf-8", "replace").strip()
        status = ApiStatus(status="Failure", message=text or _phrase(code), reason=_REASON_OF_CODE.get(code, ""))
    if not status.code:
        status = msgspec.structs.replace(status, code=code)
    if retry_after_seconds and not (status.details and status.details.retry_after_seconds):
        details = msgspec.structs.replace(status.details or StatusDetails(), retry_after_seconds=retry_after_seconds)
        status = msgspec.structs.replace(status, details=details)
    return from_status(status)


def _phrase(code: int) -> str:
    try:
        from http import HTTPStatus

        return f"the server returned {code} {HTTPStatus(code).phrase}"
    except ValueError:
        return f"the server returned {code}"
