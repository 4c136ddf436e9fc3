"""Query of list and watch requests."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.handlers.reading.list_options import ListOptions, parse_list_options, parse_resource_version
from kubeloop.kube.objects.resources import PODS

FORBIDDEN_MATCH = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden"


def options(query: str, name: str = "") -> ListOptions:
    return parse_list_options(ApiRequest.of("GET", f"/x?{query}"), get_served_resource(PODS), "ns", name)


@pytest.mark.parametrize(("text", "version"), [("", None), ("0", 0), ("7", 7)])
def test_resource_version(text: str, version: int | None):
    assert parse_resource_version(text) == version


def test_options_of_a_list():
    parsed = options("limit=5&resourceVersion=7&resourceVersionMatch=Exact&fieldSelector=metadata.name=a")
    assert (parsed.limit, parsed.resource_version, parsed.match, parsed.name) == (5, 7, "Exact", "a")
    assert (parsed.watch, parsed.send_initial_events, parsed.timeout_seconds) == (False, None, None)


@pytest.mark.parametrize(
    ("query", "send", "match"),
    [
        ("watch=1", True, "NotOlderThan"),
        ("watch=1&resourceVersion=0", True, "NotOlderThan"),
        ("watch=1&resourceVersion=7", None, ""),
    ],
)
def test_watch_without_a_version_starts_with_the_present_state(query: str, send: bool | None, match: str):
    parsed = options(f"{query}&timeoutSeconds=30", name="p")
    assert (parsed.send_initial_events, parsed.match) == (send, match)
    assert (parsed.timeout_seconds, parsed.name) == (30, "p")


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("limit=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (f"limit={1 << 63}", 400, f'strconv.ParseInt: parsing "{1 << 63}": value out of range'),
        pytest.param(
            f"limit={'9' * 5000}",
            400,
            f'strconv.ParseInt: parsing "{"9" * 5000}": value out of range',
            id="more digits than int() accepts",
        ),
        ("sendInitialEvents=1", 422, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        ("resourceVersionMatch=Exact", 422, f"{FORBIDDEN_MATCH} unless resourceVersion is provided"),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            422,
            'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
        (
            "resourceVersionMatch=x&resourceVersion=1",
            422,
            'resourceVersionMatch: Unsupported value: "x": supported values: "Exact", "NotOlderThan", ""',
        ),
        (
            "watch=1&resourceVersionMatch=NotOlderThan",
            422,
            f"{FORBIDDEN_MATCH} for watch unless sendInitialEvents is provided",
        ),
        (
            "watch=1&sendInitialEvents=1&resourceVersion=1",
            422,
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "resourceVersion=x",
            400,
            'invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": '
            "invalid syntax",
        ),
        (
            "watch=1&resourceVersion=x",
            500,
            'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax',
        ),
    ],
)
def test_invalid_options(query: str, code: int, message: str):
    with pytest.raises(StatusError) as raised:
        options(query)
    assert (raised.value.code, raised.value.message.removeprefix('ListOptions.meta.k8s.io "" is invalid: ')) == (
        code,
        message,
    )
