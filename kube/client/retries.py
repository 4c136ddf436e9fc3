"""Retries: which failed requests are sent again, and when.

429                             every verb: the server did nothing. Not if a disruption budget rejects an eviction
5xx, time-out, lost response    GET, HEAD: always. PUT, PATCH: if the body pins metadata.resourceVersion (a second
                                application is then a Conflict), or is a server-side apply. DELETE: if the options
                                pin the uid. POST: never
no connection                   every verb: the server cannot have seen the request
"""

from __future__ import annotations

import random

import msgspec

from kubeloop.kube.errors import ApiError


class RetryPolicy(msgspec.Struct, frozen=True):
    """Number of tries, and delays between them.

    tries             tries of a request that fails (5xx, no response), including the first
    throttled_tries   retries after responses of 429 (client-go: 10)
    base_seconds      delay before the second try; doubled for each further one
    cap_seconds       maximum of the backoff; a Retry-After may be longer
    """

    tries: int = 5
    throttled_tries: int = 10
    base_seconds: float = 0.1
    cap_seconds: float = 5.0

    def backoff_seconds(self, failures: int, rng: random.Random) -> float:
        """Return the delay after `failures` in a row: 0.5 to 1.5 times the backoff, so that clients spread out."""
        return min(self.cap_seconds, self.base_seconds * 2.0 ** min(failures - 1, 30)) * (0.5 + rng.random())


class _ObjectMeta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Preconditions(msgspec.Struct, frozen=True):
    uid: str = ""


class _Pinned(msgspec.Struct):
    metadata: _ObjectMeta = _ObjectMeta()
    preconditions: _Preconditions = _Preconditions()


class _Operation(msgspec.Struct):
    op: str = ""
    path: str = ""


def is_safe_to_retry(method: str, content_type: str, body: bytes) -> bool:
    """Return True if a request that the server may have carried out can be sent again without harm."""
    if method in {"GET", "HEAD"}:
        return True
    if method == "POST":
        return False
    if content_type == "application/apply-patch+yaml":
        return True
    try:
        if content_type == "application/json-patch+json":
            operations = msgspec.json.decode(body, type=list[_Operation])
            return any(
                operation.op == "test" and operation.path == "/metadata/resourceVersion" for operation in operations
            )
        pinned = msgspec.json.decode(body, type=_Pinned)
    except msgspec.DecodeError:
        return False
    return bool(pinned.preconditions.uid if method == "DELETE" else pinned.metadata.resource_version)


def retry_wait_seconds(error: ApiError) -> float | None:
    """Return the Retry-After of a throttled request, which may be retried for any verb; None: do not retry."""
    if error.code == 429 and not error.has_cause("DisruptionBudget"):
        return float(error.retry_after_seconds)
    return None
