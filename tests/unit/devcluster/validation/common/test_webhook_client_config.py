"""URLs, Services and review versions of webhooks."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.webhook_client_config import (
    validate_review_versions,
    validate_webhook_service,
    validate_webhook_url,
)


def _messages(errors: ErrorList) -> list[str]:
    return [f"{error['field']}: {error['message']}" for error in errors]


@pytest.mark.parametrize(
    ("url", "messages"),
    [
        ("https://a/b", []),
        ("http://a", ["p: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]"]),
        ("https://", ['p: Invalid value: "": host must be specified; desired format: https://host[/path]']),
        ("https://u@a", ['p: Invalid value: "u": user information is not permitted in the URL']),
        ("https://a?b", ['p: Invalid value: "b": query parameters are not permitted in the URL']),
        ("https://a#b", ['p: Invalid value: "b": fragments are not permitted in the URL']),
    ],
)  # fmt: skip
def test_url_of_a_webhook(url: str, messages: list[str]):
    errors = ErrorList()
    validate_webhook_url(errors, url, "p")
    assert _messages(errors) == messages


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({}, []),
        ({"name": "", "namespace": ""}, ["p.name: Required value", "p.namespace: Required value"]),
        ({"port": 0}, ["p.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive"]),
        ({"path": "//"}, ['p.path: Invalid value: "//": segment[0] may not be empty']),
        ({"path": "a"}, ["p.path: Invalid value: \"a\": must start with a '/'",
                         'p.path: Invalid value: "a": segment[0] may not be empty']),
        ({"path": "/a//b"}, ['p.path: Invalid value: "/a//b": segment[1] may not be empty']),
    ],
)  # fmt: skip
def test_service_of_a_webhook(change: dict[str, Any], messages: list[str]):
    errors = ErrorList()
    validate_webhook_service(errors, {"name": "a", "namespace": "b", **change}, "p")
    assert _messages(errors) == messages


@pytest.mark.parametrize(
    ("versions", "messages"),
    [
        (["v2", "v1"], []),
        ([], ["p: Required value: d"]),
        (["v1", "v1"], ['p[1]: Invalid value: "v1": duplicate version']),
        (["v2"], ['p: Invalid value: ["v2"]: must include at least one of v1, v1beta1']),
    ],
)
def test_review_versions_of_a_webhook(versions: list[str], messages: list[str]):
    errors = ErrorList()
    validate_review_versions(errors, versions, "p", "d")
    assert _messages(errors) == messages
