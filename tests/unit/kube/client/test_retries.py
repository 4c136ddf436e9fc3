"""Retries: which requests may be sent again, and the delays between them."""

from __future__ import annotations

import random

import pytest

from kubeloop.kube.client.retries import RetryPolicy, is_safe_to_retry, retry_wait_seconds
from kubeloop.kube.errors import from_status
from kubeloop.kube.objects.api_types import ApiStatus, convert

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
VERSION = b'{"metadata": {"resourceVersion": "1"}}'
TEST_VERSION = b'[{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}]'


@pytest.mark.parametrize(
    ("method", "content_type", "body", "safe"),
    [
        pytest.param("GET", "", b"", True, id="get"),
        pytest.param("POST", "application/json", VERSION, False, id="create"),
        pytest.param("PUT", "application/json", VERSION, True, id="update with resourceVersion"),
        pytest.param("PUT", "application/json", b'{"metadata": {}}', False, id="update without"),
        pytest.param("PATCH", MERGE, VERSION, True, id="merge patch with resourceVersion"),
        pytest.param("PATCH", MERGE, b"{}", False, id="merge patch without"),
        pytest.param("PATCH", JSON_PATCH, TEST_VERSION, True, id="JSON patch that tests resourceVersion"),
        pytest.param("PATCH", JSON_PATCH, TEST_VERSION.replace(b"test", b"add"), False, id="JSON patch that sets it"),
        pytest.param("PATCH", "application/apply-patch+yaml", b"{}", True, id="server-side apply"),
        pytest.param("DELETE", "application/json", b'{"preconditions": {"uid": "u"}}', True, id="delete with UID"),
        pytest.param("DELETE", "application/json", VERSION, False, id="delete without UID"),
        pytest.param("DELETE", "", b"", False, id="delete without options"),
    ],
)
def test_request_is_safe_to_retry(method, content_type, body, safe):
    assert is_safe_to_retry(method, content_type, body) is safe


@pytest.mark.parametrize(
    ("code", "causes", "seconds"),
    [
        pytest.param(429, [], 7.0, id="throttled"),
        pytest.param(429, [{"reason": "DisruptionBudget"}], None, id="disruption budget"),
        pytest.param(503, [], None, id="unavailable"),
    ],
)
def test_retry_wait_seconds_of_throttled_requests(code, causes, seconds):
    details = {"retryAfterSeconds": 7, "causes": causes}
    error = from_status(convert(ApiStatus, {"code": code, "details": details}))
    assert retry_wait_seconds(error) == seconds


@pytest.mark.parametrize(
    ("failures", "backoff"),
    [
        pytest.param(1, 0.1, id="first failure"),
        pytest.param(3, 0.4, id="doubled for each further one"),
        pytest.param(1000, 5.0, id="at most the cap"),
    ],
)
def test_backoff_varies_by_half(failures, backoff):
    rng = random.Random(1)
    delays = [RetryPolicy().backoff_seconds(failures, rng) for _ in range(1000)]
    assert 0.5 * backoff <= min(delays) < 0.52 * backoff
    assert 1.48 * backoff < max(delays) <= 1.5 * backoff
