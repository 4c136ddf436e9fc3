"""Errors: what went wrong, and by its type, who acts.

    ApiError            the API server answered with a failure; carries its Status
    ServerUnreachable   no usable answer came, after retries
    UserError           a person's input is wrong; carries the next thing to try

May import `objects` and the standard library only.
"""

from __future__ import annotations

import msgspec

from kubeloop.kube.objects import api_types
from kubeloop.kube.objects.api_types import Status, StatusDetails


class UserError(Exception):
    """Wrong input from a person; `hint` is the next thing to try. The CLI prints both, without a traceback."""

    def __init__(self, problem: str, *, hint: str) -> None:
        super().__init__(problem)
        self.hint = hint


class ServerUnreachable(Exception):
    """No answer came, after the retries that the verb allows.

    `maybe_applied`: the server may have seen the request, so a write may have happened (or may still happen).
    """

    def __init__(self, message: str, *, maybe_applied: bool) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied


class UnreadableResponse(ServerUnreachable):
    """An answer came, but it is not what the Kubernetes API promises: a proxy in between, or not an API server."""


class ApiError(Exception):
    """The API server's refusal. `status` is its own words; subclasses are chosen by its reason, then by its code."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message or status.reason or f"the server answered {status.code}")
        self.status = status

    @property
    def code(self) -> int:
        """The HTTP status code."""
        return self.status.code

    @property
    def reason(self) -> str:
        """The machine-readable reason, "" if the server gave none."""
        return self.status.reason

    @property
    def message(self) -> str:
        return self.status.message

    @property
    def retry_after_seconds(self) -> int:
        """Seconds the server asks to wait, 0 if it did not say."""
        return self.status.details.retry_after_seconds if self.status.details else 0

    def has_cause(self, reason: str) -> bool:
        """Whether one of the causes has this reason, such as "NamespaceTerminating" or "DisruptionBudget"."""
        return self.status.details is not None and any(cause.reason == reason for cause in self.status.details.causes)


class BadRequest(ApiError):
    """400: the request itself is malformed. Sending it again cannot help."""


class Unauthorized(ApiError):
    """401: the server does not know who we are."""


class Forbidden(ApiError):
    """403: known, but not allowed; or an admission plugin refuses."""


class NotFound(ApiError):
    """404: no such object, or no such resource."""


class MethodNotAllowed(ApiError):
    """405: the resource does not have this verb."""


class NotAcceptable(ApiError):
    """406: the server has none of the representations asked for."""


class Conflict(ApiError):
    """409: the object changed since we read it. Retry from a fresh read, quietly."""


class AlreadyExists(ApiError):
    """409: an object of that name is there."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old (reason Expired or Gone). List again."""


class RequestEntityTooLarge(ApiError):
    """413: the body is larger than the server takes."""


class UnsupportedMediaType(ApiError):
    """415: the server does not read this content type, often: this kind of patch."""


class Invalid(ApiError):
    """422: validation failed; the causes name the fields."""


class TooManyRequests(ApiError):
    """429: the server is overloaded, or an eviction would break a disruption budget."""


class InternalError(ApiError):
    """500, or any other 5xx without a class of its own."""


class ServiceUnavailable(ApiError):
    """503: the server, or what it depends on, is not ready."""


class ServerTimeout(ApiError):
    """500 or 504: the operation took too long and may have been done (reasons ServerTimeout and Timeout)."""


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


def from_status(status: Status) -> ApiError:
    """The error for a Status of a failure. An unknown reason counts by its code, as clients of the API must."""
    by_reason = _BY_REASON.get(status.reason)
    if by_reason is not None:
        return by_reason(status)
    by_code = _BY_REASON.get(_REASON_OF_CODE.get(status.code, ""))
    if by_code is not None:
        return by_code(status)
    return InternalError(status) if status.code >= 500 else ApiError(status)


def from_response(code: int, body: bytes, *, retry_after_seconds: int = 0) -> ApiError:
    """The error for an HTTP answer that is not a success.

    A body that is no Status (a proxy's page) becomes one; `retry_after_seconds` is the Retry-After header's, and
    stands in the Status if the body does not say.
    """
    try:
        status = api_types.decode(Status, body)
    except msgspec.DecodeError:
        status = Status()
    if status.kind != "Status" or not (status.code or status.reason or status.message):
        text = body[:2048].decode("utf-8", "replace").strip()
        status = Status(status="Failure", message=text or _phrase(code), reason=_REASON_OF_CODE.get(code, ""))
    if not status.code:
        status = msgspec.structs.replace(status, code=code)
    if retry_after_seconds and not (status.details and status.details.retry_after_seconds):
        details = msgspec.structs.replace(status.details or StatusDetails(), retry_after_seconds=retry_after_seconds)
        status = msgspec.structs.replace(status, details=details)
    return from_status(status)


def _phrase(code: int) -> str:
    try:
        from http import HTTPStatus

        return f"the server answered {code} {HTTPStatus(code).phrase}"
    except ValueError:
        return f"the server answered {code}"
