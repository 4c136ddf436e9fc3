"""Times, seconds and durations at the limits of their Go types: the same responses as kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.devcluster.api.request import PROTOBUF_TYPE
from kubeloop.devcluster.serializer.protobuf import codec
from kubeloop.kube.values.times import parse_time, time_text
from support.apiserver.api_response import ApiResponse
from support.apiserver.http_api import HttpApi, ServerPair, server_pair
from support.comparison.differential import comparable

JSON = dict[str, Any]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
TEMPLATES = "/api/v1/namespaces/default/podtemplates"
PODS = "/api/v1/namespaces/default/pods"
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
CONTAINERS = [{"name": "main", "image": "example.com/main"}]


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[ServerPair]:
    with server_pair(tmp_path_factory.mktemp("limits")) as servers:
        yield servers


def responses(servers: ServerPair, method: str, path: str, body: Any = None, **options: str) -> list[JSON]:
    def send(server: HttpApi) -> ApiResponse:
        return server.request(method, path, body, **options)

    return [comparable(send(server)) for server in servers[:2]]


TIMES = [
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00.000001Z",
    "0001-01-01T00:00:00+14:00",
    "0999-12-31T23:59:59Z",
    "1969-12-31T23:59:59Z",
    "2026-02-29T00:00:00Z",
    "2026-13-01T00:00:00Z",
    "2026-00-01T00:00:00Z",
    "2026-01-01T1:00:00Z",
    "2026-01-01T24:00:00Z",
    "2026-01-01T23:60:00Z",
    "2026-01-01T23:00:60Z",
    "2026-01-01T00:00:00,5Z",
    "2026-01-01T00:00:00+24:60",
    "2026-01-01T00:00:00+25:00",
    "2026-01-01T00:00:00-00:61",
    "2026-01-01T00:00:00z",
    "2026-01-01t00:00:00Z",
    "2026-01-01T00:00:00Z ",
    '2026-01-01T00:00:00é"Z',
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-12:00",
    "10000-01-01T00:00:00Z",
    "-001-01-01T00:00:00Z",
    "",
]


@pytest.mark.parametrize("time", TIMES)
def test_time_in_json(servers, time):
    template = {"metadata": {"deletionTimestamp": time, "creationTimestamp": time}, "spec": {"containers": CONTAINERS}}
    body = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "times"}, "template": template}
    real, ours = responses(servers, "POST", f"{TEMPLATES}?dryRun=All", body)
    assert ours == real


@pytest.mark.parametrize(
    "time",
    [
        *(time.replace("00Z", "00.123456Z").replace("59Z", "59.999999Z") for time in TIMES),
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00.1Z",
        "2026-01-01T00:00:00.1234567Z",
        "2026-01-01T00:00:00.+12345Z",
        "2026-01-01T00:00:00.-12345Z",
        "0001-01-01T00:00:00.000000Z",
    ],
)
def test_micro_time_in_json(servers, time):
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "times"}}
    real, ours = responses(servers, "POST", f"{LEASES}?dryRun=All", body | {"spec": {"renewTime": time}})
    assert ours == real


SECONDS = [
    -(2**63),
    -(2**62),
    -62_167_219_201,
    -62_135_596_801,
    -62_135_596_800,
    -30_610_224_001,  # the year 999
    -1,
    253_402_300_799,
    253_402_300_800,
    2**62,
    2**63 - 1,
]


@pytest.mark.parametrize("seconds", SECONDS)
def test_time_in_protobuf(servers, seconds):
    time, micro_time = time_text(seconds), time_text(seconds, 999_999)
    template = {"metadata": {"deletionTimestamp": time}, "spec": {"containers": CONTAINERS}}
    objects = [
        (TEMPLATES, {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "times"}, "template": template}),
        (
            LEASES,
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "times"},
                "spec": {"renewTime": micro_time},
            },
        ),
    ]
    for path, obj in objects:
        body = codec.encode(obj)
        options = {"content_type": PROTOBUF_TYPE, "accept": "application/json"}
        real, ours = responses(servers, "POST", f"{path}?dryRun=All", body, **options)
        assert ours == real
        assert real["status"] == 201


@pytest.mark.parametrize(
    "schedule",
    [
        "@every 99999999999h",
        "@every 2562047h47m16.854775807s",
        "@every 1d",
        "@every 1h1",
        "@every",
        "@every ",
        "@every -5s",
        '@every 1"',
        "*/99999999999999999999 * * * *",
        "*/9223372036854775807 * * * *",
        "99999999999999999999 * * * *",
        "-99999999999999999999 * * * *",
        "* * * * -5",
        "9223372036854775807 * * * *",
    ],
)
def test_schedule(servers, schedule):
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}}}
    body = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "times"},
        "spec": {"schedule": schedule, "jobTemplate": template},
    }
    real, ours = responses(servers, "POST", f"{CRON_JOBS}?dryRun=All", body)
    assert ours == real


@pytest.mark.parametrize("seconds", [0, 1, 9_223_372_036, 9_223_372_037, 10**12, 2**63 - 1, -1, -(2**63)])
def test_deletion_with_grace_period(servers, seconds):
    """The time of the deletion is that of Go, and a second deletion may shorten it."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "slow"},
        "spec": {
            "nodeName": "missing",
            "terminationGracePeriodSeconds": seconds,
            "automountServiceAccountToken": False,
            "containers": CONTAINERS,
        },
    }

    def deletions(server: HttpApi) -> list[Any]:
        created = server.request("POST", PODS, pod)
        if created.status != 201:
            return [created.status, created.content["message"]]
        results: list[Any] = []
        for query in ("", "?gracePeriodSeconds=9223372035", "?gracePeriodSeconds=5", "?gracePeriodSeconds=0"):
            response = server.request("DELETE", f"{PODS}/slow{query}")
            metadata = response.content.get("metadata", {}) if response.status < 300 else {}
            deleted = metadata.get("deletionTimestamp")
            results.append(
                (
                    response.status,
                    metadata.get("deletionGracePeriodSeconds"),
                    deleted and round((parse_time(deleted) - datetime.now(UTC)) / timedelta(seconds=30)),
                )
            )
        return results

    real, ours = (deletions(server) for server in servers[:2])
    assert ours == real
