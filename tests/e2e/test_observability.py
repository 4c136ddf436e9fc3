"""deploy/observability: dashboard and alerts query existing metrics, and the manifests are valid."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from support.cli_processes import ROOT, wait_until
from support.http_api import HttpApi

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
