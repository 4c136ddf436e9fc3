"""Requests under faults: their targets, and what a story says of their bodies."""

from __future__ import annotations

import pytest

from kubeloop.testing.faults.requests import RequestTarget, header_of, json_of


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/namespaces/default/pods/web/status", ("pods", "web", "status")),
        ("/apis/apps/v1/deployments", ("deployments", "", "")),
        ("/api/v1/namespaces/default", ("namespaces", "default", "")),
        ("/api/v1/namespaces/default/finalize", ("namespaces", "default", "finalize")),
        ("/version", ("", "", "")),
    ],
)
def test_target_of_a_path(path: str, target: tuple[str, str, str]):
    assert RequestTarget.of(path) == target


@pytest.mark.parametrize(
    ("body", "name", "message"),
    [
        (b'{"kind":"Pod","metadata":{"name":"web","labels":{"a":"b"}},"spec":{}}', "web", ""),
        (b'{"kind":"Status","metadata":{},"message":"not found"}', "", "not found"),
        (b"", "", ""),
        (b"[1]", "", ""),
        (b"k8s\0\xff", "", ""),
    ],
)
def test_name_and_message_in_a_body(body: bytes, name: str, message: str):
    header = header_of(body)
    assert (header.metadata.name, header.message) == (name, message)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"k8s\0\xff"])
def test_body_without_an_object_is_empty(body: bytes):
    assert json_of(body) == {}
