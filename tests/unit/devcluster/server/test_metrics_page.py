"""/metrics: families of kube-apiserver in Prometheus' text format, and process metrics."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kubeloop.devcluster.admission.webhooks.webhook_metrics import WebhookMetrics
from kubeloop.devcluster.authorization.access_metrics import AccessMetrics
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.server.metrics import RequestMetrics
from kubeloop.devcluster.server.metrics_page import metrics_response
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from support.apiserver.api_requests import InProcessApi, request
from support.apiserver.apiserver_metrics import labels, samples
from support.objects.role_bindings import CLUSTER_BINDINGS, CLUSTER_ROLES, binding, role

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi()


async def test_families_have_the_types_of_kube_apiserver(api: InProcessApi):
    api("GET", CONFIG_MAPS)
    status, text = api("GET", "/metrics")
    assert status == 200
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert {name: kind for name, kind in types.items() if not name.startswith("process_")} == {
        "apiserver_current_inflight_requests": "gauge",
        "apiserver_flowcontrol_nominal_limit_seats": "gauge",
        "apiserver_longrunning_requests": "gauge",
        "apiserver_request_duration_seconds": "histogram",
        "apiserver_request_sli_duration_seconds": "histogram",
        "apiserver_request_total": "counter",
        "apiserver_requested_deprecated_apis": "gauge",
        "apiserver_resource_objects": "gauge",
        "apiserver_response_sizes": "histogram",
        "apiserver_storage_objects": "gauge",
        "authentication_attempts": "counter",
        "authorization_attempts_total": "counter",
        "authorization_duration_seconds": "histogram",
        "kubernetes_feature_enabled": "gauge",
        "kubernetes_healthcheck": "gauge",
    }
    assert len(list(text_string_to_metric_families(text))) == len(types)


async def test_histogram_buckets_are_cumulative_with_bounds_as_in_go(api: InProcessApi):
    api("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"a": "x" * 2000}})
    api("GET", f"{CONFIG_MAPS}/a")
    api("GET", f"{CONFIG_MAPS}/b")
    buckets = [
        (line.partition('le="')[2].partition('"')[0], float(line.rpartition(" ")[2]))
        for line in api("GET", "/metrics")[1].splitlines()
        if line.startswith("apiserver_response_sizes_bucket") and 'resource="configmaps"' in line
    ]
    assert buckets == [
        ("1000", 1), ("10000", 2), ("100000", 2), ("1e+06", 2), ("1e+07", 2), ("1e+08", 2), ("1e+09", 2), ("+Inf", 2),
    ]  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="process metrics are read from /proc")
async def test_process_metrics_are_served(api: InProcessApi):
    metrics = samples(api)
    assert metrics["process_resident_memory_bytes"] > 1e6
    assert metrics["process_virtual_memory_bytes"] > metrics["process_resident_memory_bytes"]
    assert metrics["process_cpu_seconds_total"] > 0
    assert metrics["process_start_time_seconds"] > 1e9
    assert 0 < metrics["process_open_fds"] < metrics["process_max_fds"]


async def test_reset_clears_the_counts_of_requests(api: InProcessApi):
    api("GET", CONFIG_MAPS)
    assert api("DELETE", "/metrics/slis") == (200, "metrics reset\n")
    assert [name for name in samples(api) if "configmaps" in name and name.startswith("apiserver_request_total")]
    assert api("DELETE", "/metrics") == (200, "metrics reset\n")
    assert not [name for name in samples(api) if "configmaps" in name and name.startswith("apiserver_request_total")]


def test_prometheus_client_is_imported_when_metrics_are_read():
    program = (
        "import sys; import kubeloop.devcluster.server.apiserver, kubeloop.devcluster.authentication.authenticator;"
        "assert not {'prometheus_client', 'jwt'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


async def test_objects_watches_and_deprecated_apis_are_measured(api: InProcessApi):
    before = samples(api)['apiserver_storage_objects{resource="configmaps"}']
    api("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
    api("GET", "/api/v1/endpoints")
    watch = api.respond("GET", f"{CONFIG_MAPS}?watch=1")
    metrics = samples(api)
    assert metrics['apiserver_storage_objects{resource="configmaps"}'] == before + 1
    assert metrics['apiserver_resource_objects{group="apps",resource="deployments"}'] == 0
    assert (
        metrics[
            f"apiserver_longrunning_requests{labels('configmaps', 'WATCH', 'namespace')}".replace('dry_run="",', "")
        ]
        == 1
    )
    deprecated = 'group="",removed_release="",resource="endpoints",subresource="",version="v1"'
    assert metrics[f"apiserver_requested_deprecated_apis{{{deprecated}}}"] == 1
    await watch.body.aclose()
    assert not [name for name in samples(api) if name.startswith("apiserver_longrunning_requests{")]


async def test_failed_authentication_is_counted():
    api = InProcessApi(token="right")
    api("GET", "/api/v1/nodes", authorization="Bearer wrong")
    text = api("GET", "/metrics", authorization="Bearer right")[1]
    assert 'authentication_attempts{result="failure"} 1.0\n' in text
    assert api("GET", "/metrics")[0] == 403


async def test_authorization_and_impersonation_are_counted():
    api = InProcessApi()
    api.create(CLUSTER_ROLES, role("pods", {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}))
    api.create(CLUSTER_BINDINGS, binding("pods", "pods", "alice"))
    for path in ("/api/v1/pods", "/api/v1/pods", "/api/v1/secrets"):
        api("GET", path, impersonate_user="alice")
    settings = {"impersonate_user": "alice", "impersonate_group": "system:masters"}
    api("GET", "/api/v1/pods", **settings)
    api("GET", "/api/v1/pods", authorization="Bearer unknown")  # 401
    values = samples(api)
    assert values['authorization_attempts_total{result="allowed"}'] == 5  # two creates, two lists, one of masters
    assert values['authorization_attempts_total{result="no-opinion"}'] == 1
    assert values['authorization_duration_seconds_count{result="allowed"}'] == 5
    decisions = 'apiserver_authorization_decisions_total{decision="allowed",name="rbac",type="RBAC"}'
    assert values[decisions] == 2
    mode = 'decision="allowed",mode="user-info"'
    assert values[f"apiserver_impersonation_attempts_total{{{mode}}}"] == 3
    assert values['apiserver_impersonation_attempts_total{decision="allowed",mode="legacy"}'] == 1
    assert values[f"apiserver_impersonation_authorization_attempts_total{{{mode}}}"] > 3
    assert values[f"apiserver_impersonation_attempts_duration_seconds_count{{{mode}}}"] == 3
    api("DELETE", "/metrics")
    assert decisions not in samples(api)


async def test_refused_impersonation_is_no_authorization():
    api = InProcessApi(
        token="right", settings=ServingSettings(static_tokens={"alices": {"username": "alice", "groups": []}})
    )
    assert api("GET", "/api/v1/pods", authorization="Bearer alices", impersonate_user="bob")[0] == 403
    text = api("GET", "/metrics", authorization="Bearer right")[1]
    assert 'apiserver_impersonation_attempts_total{decision="denied",mode=""} 1.0' in text
    assert "no-opinion" not in text


def test_slis_page_has_health_checks_only():
    store = ObjectStore(seconds=lambda: 0.0)
    response = metrics_response(
        request("GET", "/metrics/slis"),
        RequestMetrics(),
        store,
        WebhookMetrics(),
        AccessMetrics(),
        (),
        DEFAULT_FEATURE_GATES,
        began=12.5,
        seats={},
    )
    assert b'kubernetes_healthcheck{name="ping",type="livez"} 1.0\n' in response.body
    assert response.body.count(b"# TYPE") == 1
    assert response.headers == [("Process-Start-Time-Unix", "12")]


async def test_feature_gates_are_a_metric_and_a_flag():
    api = InProcessApi(settings=ServingSettings(feature_gates=FeatureGates({"MemoryQoS": True})))
    values = samples(api)
    assert values['kubernetes_feature_enabled{name="MemoryQoS",stage="ALPHA"}'] == 1
    assert values['kubernetes_feature_enabled{name="SidecarContainers",stage=""}'] == 1
    assert values['kubernetes_feature_enabled{name="GangScheduling",stage="ALPHA"}'] == 0
    assert "feature-gates: MemoryQoS=true" in api("GET", "/flagz", accept="text/plain")[1]
