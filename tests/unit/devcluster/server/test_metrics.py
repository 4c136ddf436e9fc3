"""Counts of requests, with the labels of kube-apiserver."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.server.metrics import BYTES, SECONDS
from support.apiserver.api_requests import InProcessApi
from support.apiserver.apiserver_metrics import labels, samples

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi()


async def test_requests_are_counted_by_resource_verb_and_code(api: InProcessApi):
    body = {"metadata": {"name": "a"}}
    for path, code in ((CONFIG_MAPS, 201), (CONFIG_MAPS, 409), (f"{CONFIG_MAPS}?dryRun=All", 409)):
        assert api("POST", path, body)[0] == code
    api("GET", CONFIG_MAPS)
    api("GET", "/api/v1/configmaps")
    api("GET", f"{CONFIG_MAPS}/a")
    applied = {"apiVersion": "v1", "kind": "ConfigMap", **body}
    api("PATCH", f"{CONFIG_MAPS}/a?fieldManager=m", applied, "application/apply-patch+yaml")
    api("DELETE", f"{CONFIG_MAPS}?labelSelector=none")
    api("GET", "/healthz")
    metrics = samples(api)
    system = {"system_client": ""}
    for expected, count in (
        (labels("configmaps", "POST", "resource", code="201", **system), 1),
        (labels("configmaps", "POST", "resource", code="409", **system), 1),
        (labels("configmaps", "POST", "resource", code="409", **{**system, "dry_run": "All"}), 1),
        (labels("configmaps", "LIST", "namespace", code="200", **system), 1),
        (labels("configmaps", "LIST", "cluster", code="200", **system), 1),
        (labels("configmaps", "GET", "resource", code="200", **system), 1),
        (labels("configmaps", "APPLY", "resource", code="200", **system), 1),
        (labels("configmaps", "DELETECOLLECTION", "namespace", code="200", **system), 1),
        (labels("", "GET", "", "/healthz", code="200", component="", version="", **system), 1),
    ):
        assert metrics[f"apiserver_request_total{expected}"] == count
    created = labels("configmaps", "POST", "resource")
    assert metrics[f"apiserver_request_duration_seconds_count{created}"] == 2
    bounds = [
        name for name in metrics if name.startswith("apiserver_request_duration_seconds_bucket") and 'LIST"' in name
    ]
    assert len(bounds) == 2 * (len(SECONDS) + 1)
    listed = labels("configmaps", "LIST", "namespace").replace('dry_run="",', "")
    assert metrics[f"apiserver_response_sizes_count{listed}"] == 1
    sizes = [name for name in metrics if name.startswith("apiserver_response_sizes_bucket") and "/healthz" in name]
    assert len(sizes) == len(BYTES) + 1


async def test_unknown_paths_and_media_types_add_no_series(api: InProcessApi):
    def odd(number: int) -> int:
        api("GET", f"/made/up/{number}")
        api("PATCH", f"{CONFIG_MAPS}/a", {}, f"application/x-{number}")
        return len(samples(api))

    odd(0)
    assert {odd(number) for number in range(1, 5)} == {odd(5)}
