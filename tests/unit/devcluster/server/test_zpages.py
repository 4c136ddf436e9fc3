"""/flagz and /statusz: text, objects, deprecated versions and media types that are not available."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import yaml

from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.server.zpages import flagz, statusz

STARTED = datetime(2026, 1, 1, 12, tzinfo=UTC)


def request(accept: str = "") -> ApiRequest:
    return ApiRequest.of("GET", "/flagz", {"Accept": accept} if accept else None)


def kind(name: str, version: str = "v1beta1", media_type: str = "application/json") -> str:
    return f"{media_type};g=config.k8s.io;v={version};as={name}"


def body(response: Response) -> bytes:
    assert isinstance(response.body, bytes)
    return response.body


def test_flagz_text_lists_flags_by_name():
    response = flagz(request(), {"b": "2", "a": "1"})
    assert (response.status, response.content_type.partition(";")[0]) == (200, "text/plain")
    assert body(response).endswith(b"a: 1\nb: 2\n")


@pytest.mark.parametrize("media_type", ["application/json", "application/yaml"])
def test_flagz_object_contains_flags(media_type: str):
    response = flagz(request(kind("Flagz", media_type=media_type)), {"b": "2", "a": "1"})
    decode = msgspec.json.decode if media_type == "application/json" else yaml.safe_load
    content = decode(body(response))
    assert (content["kind"], content["apiVersion"], content["flags"]) == (
        "Flagz",
        "config.k8s.io/v1beta1",
        {"a": "1", "b": "2"},
    )
    assert response.content_type == kind("Flagz", media_type=media_type)


def test_deprecated_version_returns_a_warning():
    (warning,) = [value for name, value in flagz(request(kind("Flagz", "v1alpha1")), {}).headers if name == "Warning"]
    assert warning.startswith('299 - "This version of the flagz endpoint is deprecated')
    assert all(name != "Warning" for name, _ in flagz(request(kind("Flagz")), {}).headers)


@pytest.mark.parametrize("accept", ["text/html", kind("Statusz"), kind("Flagz", "v1")])
def test_unavailable_media_type_is_not_acceptable(accept: str):
    response = flagz(request(accept), {})
    assert (response.status, msgspec.json.decode(body(response))["reason"]) == (406, "NotAcceptable")


def test_statusz_contains_uptime_and_debug_paths():
    paths = ["/", "/apis/apps", "/healthz/ping", "/metrics", "/openapi/v2", "/healthz"]
    now = STARTED + timedelta(hours=27, minutes=5, seconds=9)
    text = body(statusz(request(), STARTED, now, paths)).decode()
    assert "Started: Thu Jan  1 12:00:00 UTC 2026\nUp: 27 hr 05 min 09 sec\n" in text
    assert text.endswith("Paths: /healthz /metrics\n")
    content = msgspec.json.decode(body(statusz(request(kind("Statusz")), STARTED, now, paths)))
    assert (content["startTime"], content["uptimeSeconds"]) == ("2026-01-01T12:00:00Z", 97509)
    assert content["paths"] == ["/healthz", "/metrics"]


def test_statusz_uptime_is_never_negative():
    content = msgspec.json.decode(body(statusz(request(kind("Statusz")), STARTED, STARTED - timedelta(seconds=5), [])))
    assert content["uptimeSeconds"] == 0
