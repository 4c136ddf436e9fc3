"""What may be sent again after a failure, and when.

429                          every verb: the server did nothing. Not for a disruption budget's refusal, which is an
                             answer and no congestion
5xx, time-out, lost answer   GET, HEAD: always. PUT, PATCH: if the body pins metadata.resourceVersion (a second
                             application is then a Conflict), or is a server-side apply. DELETE: if the options pin
                             the uid. POST: never
no connection                every verb: the server cannot have seen the request
"""

from __future__ import annotations

import random

import msgspec

from kubeloop.kube.errors import ApiError


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often, and how long to wait in between.

    tries             tries in all of a request that fails (5xx, no answer)
    throttled_tries   waits in all for a server that answers 429 (client-go: 10)
    base_seconds      wait before the second try; doubled for each further one
    cap_seconds       longest wait that is our own choice; a Retry-After may be longer
    """

    tries: int = 5
    throttled_tries: int = 10
    base_seconds: float = 0.1
    cap_seconds: float = 5.0

    def backoff_seconds(self, failures: int, rng: random.Random) -> float:
        """Wait after so many failures in a row: 0.5 to 1.5 times the doubled base, so that clients spread out."""
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
    """Whether a request that the server may have carried out can be sent again without doing harm."""
    if method in {"GET", "HEAD"}:
        return True
    if method == "POST":
        return False
    if content_type == "application/apply-patch+yaml":
        return True
    try:
        if content_type == "application/json-patch+json":
            operations = msgspec.json.decode(body, type=list[_Operation])
            return any(each.op == "test" and each.path == "/metadata/resourceVersion" for each in operations)
        pinned = msgspec.json.decode(body, type=_Pinned)
    except msgspec.DecodeError:
        return False
    return bool(pinned.preconditions.uid if method == "DELETE" else pinned.metadata.resource_version)


def retry_wait_seconds(error: ApiError) -> float | None:
    """Seconds a refusing server asks to wait before the same request, any verb, is sent again; None: do not."""
    if error.code == 429 and not error.has_cause("DisruptionBudget"):
        return float(error.retry_after_seconds)
    return None
