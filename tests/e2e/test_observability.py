"""deploy/observability: dashboard and alerts query existing metrics, and the manifests are valid."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.apiserver.http_api import HttpApi
from support.processes.cli_processes import ROOT, wait_until

FOLDER = ROOT / "deploy" / "observability"
MANIFESTS = ["jaeger.yaml", "tempo.yaml", "otel-collector.yaml"]
PROMQL_KEYWORDS = {"by", "without", "sum", "rate", "increase", "histogram_quantile", "absent", "on", "le"}
EXTRA_LABELS = {"le", "job"}  # added by scraping, or only on histogram buckets


def dashboard() -> dict:
    return json.loads((FOLDER / "grafana-dashboard.json").read_text())


def rules() -> list[dict]:
    (group,) = yaml.safe_load((FOLDER / "prometheus-rules.yaml").read_text())["groups"]
    return group["rules"]


def queries() -> list[str]:
    targets = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", [])]
    return targets + [rule["expr"] for rule in rules()]


def metrics_in(query: str) -> dict[str, set[str]]:
    """Return the metrics of a query with the labels of their selectors."""
    plain = re.sub(r'"[^"]*"', '""', query)
    plain = re.sub(r"\b(by|without)\s*\([^)]*\)", "", plain)
    plain = re.sub(r"\[[^\]]*\]", "", plain)
    metrics: dict[str, set[str]] = {}
    for name, selector in re.findall(r"(?<![\w.])([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\})?(?!\s*[\w(])", plain):
        if name not in PROMQL_KEYWORDS and not re.search(rf"\{{[^}}]*\b{name}\b", plain):
            metrics.setdefault(name, set()).update(re.findall(r"(\w+)\s*[=!]", selector))
    return metrics


# Series (one sample per minute, in promtool's notation) with which each alert fires, and with which it does not.
FIRING = {
    "KubeloopDown": ({}, {'kubeloop_build_info{job="k"}': "1x100"}),
    "KubeloopPodsSlow": (
        {
            'kubeloop_pod_created_to_bound_duration_seconds_bucket{job="k",le="10.0"}': "0+1x100",
            'kubeloop_pod_created_to_bound_duration_seconds_bucket{job="k",le="60.0"}': "0+9x100",
            'kubeloop_pod_created_to_bound_duration_seconds_bucket{job="k",le="+Inf"}': "0+9x100",
        },
        {
            'kubeloop_pod_created_to_bound_duration_seconds_bucket{job="k",le="10.0"}': "0+9x100",
            'kubeloop_pod_created_to_bound_duration_seconds_bucket{job="k",le="+Inf"}': "0+9x100",
        },
    ),
    "KubeloopPodStartSLO": (
        {
            'kubeloop_pod_start_sli_duration_seconds_bucket{job="k",namespace="a",le="5.0"}': "0+98x100",
            'kubeloop_pod_start_sli_duration_seconds_count{job="k",namespace="a"}': "0+100x100",
        },
        {
            'kubeloop_pod_start_sli_duration_seconds_bucket{job="k",namespace="a",le="5.0"}': "0+98x100",
            'kubeloop_pod_start_sli_duration_seconds_count{job="k",namespace="a"}': "0+100x100",
            'kubeloop_pod_start_sli_duration_seconds_bucket{job="k",namespace="b",le="5.0"}': "0+300x100",
            'kubeloop_pod_start_sli_duration_seconds_count{job="k",namespace="b"}': "0+300x100",
        },
    ),
    "KubeloopPodsUnschedulable": (
        {'scheduler_pending_pods{job="k",queue="unschedulable"}': "1x100"},
        {'scheduler_pending_pods{job="k",queue="active"}': "1x100"},
    ),
    "KubeloopSchedulingErrors": (
        {'scheduler_schedule_attempts_total{job="k",result="error"}': "0+1x100"},
        {'scheduler_schedule_attempts_total{job="k",result="scheduled"}': "0+1x100"},
    ),
    "KubeloopReconcilesFail": (
        {'kubeloop_reconcile_errors_total{job="k",controller="deployment"}': "0+60x100"},
        {'kubeloop_reconcile_errors_total{job="k",controller="deployment"}': "0+1x100"},
    ),
    "KubeloopQueueGrows": (
        {'workqueue_depth{job="k",name="pods"}': "2000x100"},
        {'workqueue_depth{job="k",name="pods"}': "10x100"},
    ),
    "KubeloopEventLoopLags": (
        {
            'kubeloop_event_loop_lag_seconds_bucket{job="k",le="0.1"}': "0+90x100",
            'kubeloop_event_loop_lag_seconds_bucket{job="k",le="1.0"}': "0+100x100",
            'kubeloop_event_loop_lag_seconds_bucket{job="k",le="+Inf"}': "0+100x100",
        },
        {
            'kubeloop_event_loop_lag_seconds_bucket{job="k",le="0.1"}': "0+100x100",
            'kubeloop_event_loop_lag_seconds_bucket{job="k",le="+Inf"}': "0+100x100",
        },
    ),
    "KubeloopApiServerErrors": (
        {
            'rest_client_requests_total{job="k",code="503"}': "0+5x100",
            'rest_client_requests_total{job="k",code="<error>"}': "0+5x100",
            'rest_client_requests_total{job="k",code="200"}': "0+100x100",
        },
        {
            'rest_client_requests_total{job="k",code="404"}': "0+50x100",
            'rest_client_requests_total{job="k",code="200"}': "0+100x100",
        },
    ),
    "KubeloopSpansDropped": (
        {'kubeloop_trace_spans_dropped_total{job="k",reason="queue full"}': "0+1x100"},
        {'kubeloop_trace_spans_dropped_total{job="k",reason="queue full"}': "1x100"},
    ),
    "KubeloopWatchGaps": (
        {'kubeloop_observe_watch_gaps_total{job="k",resource="pods"}': "0+1x100"},
        {'kubeloop_observe_watch_gaps_total{job="k",resource="pods"}': "0x50 1x50"},
    ),
    "KubeloopClockSkew": (
        {'kubeloop_observe_clock_skew_seconds{job="k",clock="nodes"}': "-3x100"},
        {'kubeloop_observe_clock_skew_seconds{job="k",clock="nodes"}': "-0.5x100"},
    ),
    "KubeloopTracesGivenUp": (
        {'kubeloop_traces_lost_total{job="k",reason="too many open"}': "0+1x100"},
        {'kubeloop_traces_lost_total{job="k",reason="too many open"}': "1x100"},
    ),
}


def rule_tests() -> Iterator[dict]:
    """Yield the cases of FIRING as tests of promtool: each alert is the only one of the file that is looked at."""
    for alert, cases in FIRING.items():
        for fires, series in zip((True, False), cases, strict=True):
            firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
            samples = [{"labels": "{}", "value": 1}] if fires else []
            yield {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [{"expr": firing, "eval_time": "90m", "exp_samples": samples}],
            }


def test_alerts_fire_when_they_should(tmp_path):
    assert {rule["alert"] for rule in rules() if "alert" in rule} == set(FIRING)
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool, of Prometheus, is not installed")
    tests = tmp_path / "tests.yaml"
    tests.write_text(json.dumps({"rule_files": [str(FOLDER / "prometheus-rules.yaml")], "tests": [*rule_tests()]}))
    result = subprocess.run([promtool, "test", "rules", tests], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def served(web) -> tuple[set[str], dict[str, set[str]]]:
    """Return the names of all series that `up` and `observe` serve, and the labels of those with samples."""
    kubeloop, up, _ = web
    kubeconfig = up.wait_for(r"export KUBECONFIG=(\S+)").group(1)
    names: set[str] = set()
    labels: dict[str, set[str]] = {}
    with kubeloop.running("observe", "--kubeconfig", kubeconfig) as observe:
        pages = [process.wait_for(r"endpoint (http://\S+)").group(1) for process in (up, observe)]
        wait_until(lambda: page(pages[1], "readyz?verbose").endswith("passed\n"), "the pods were listed")
        pod = {"metadata": {"name": "observed"}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
        with contextlib.closing(HttpApi.from_kubeconfig(Path(kubeconfig))) as api:
            api.request("POST", "/api/v1/namespaces/default/pods", pod)
        wait_until(lambda: "phase=" in page(pages[1], "metrics"), "a pod was observed")
        text = "\n".join(page(url, "metrics") for url in pages)
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    for name, inside in re.findall(r"^(\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        labels.setdefault(name, set()).update(re.findall(r'(\w+)="', inside))
    return names, labels


def page(url: str, path: str) -> str:
    try:
        with urllib.request.urlopen(f"{url}/{path}") as response:
            text: str = response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode()
    return text


def test_queried_metrics_are_served_with_the_queried_labels(served):
    names, labels = served
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert len(queries()) > 30
    for query in queries():
        metrics = metrics_in(query)
        assert metrics, query
        assert metrics.keys() <= names | recorded, query
        grouped = {label for group in re.findall(r"\bby\s*\(([^)]*)\)", query) for label in re.findall(r"\w+", group)}
        for name, selected in metrics.items():
            if name in labels:
                assert (selected | grouped) - EXTRA_LABELS <= labels[name], query


def test_dashboard_panels_do_not_overlap():
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(0 <= x < 24 for x, _ in cells)


def test_alerts_have_summary_description_and_severity():
    alerts = [rule for rule in rules() if "alert" in rule]
    assert alerts
    for alert in alerts:
        assert {"summary", "description"} <= alert["annotations"].keys(), alert["alert"]
        assert alert["labels"]["severity"] in ("critical", "warning", "info")
        assert alert["for"]


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_pass_strict_validation(web, needs_kubectl, name):
    _, _, kubectl = web
    output = kubectl("apply", "--validate=strict", "-f", FOLDER / name)
    objects = [obj for obj in yaml.safe_load_all((FOLDER / name).read_text()) if obj]
    assert len(output.splitlines()) == len(objects)
    for obj in objects:
        config = obj.get("data", {}) if obj["kind"] == "ConfigMap" else {}
        for file, content in config.items():
            assert isinstance(yaml.safe_load(content), dict), file
    images = re.findall(r"image: (\S+)", (FOLDER / name).read_text())
    assert images
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images)


def test_services_target_existing_container_ports():
    for name in MANIFESTS:
        objects = [obj for obj in yaml.safe_load_all((FOLDER / name).read_text()) if obj]
        for service in (obj for obj in objects if obj["kind"] == "Service"):
            (workload,) = [
                obj
                for obj in objects
                if obj["kind"] in ("Deployment", "StatefulSet")
                and service["spec"]["selector"].items() <= obj["spec"]["template"]["metadata"]["labels"].items()
            ]
            ports = {
                port["name"]
                for container in workload["spec"]["template"]["spec"]["containers"]
                for port in container["ports"]
            }
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
