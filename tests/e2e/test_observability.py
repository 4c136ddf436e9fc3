"""deploy/observability: dashboard and alerts ask for what /metrics has, and the cluster takes the manifests."""

from __future__ import annotations

import json
import re
import urllib.request

import pytest
import yaml

from support.cli_processes import ROOT

FOLDER = ROOT / "deploy" / "observability"
MANIFESTS = ["jaeger.yaml", "tempo.yaml", "otel-collector.yaml"]
WORDS = {"by", "without", "sum", "rate", "increase", "histogram_quantile", "absent", "on", "le"}
LATER = {"le", "job"}  # labels that scraping adds, or that only histograms' buckets have


def dashboard() -> dict:
    return json.loads((FOLDER / "grafana-dashboard.json").read_text())


def rules() -> list[dict]:
    (group,) = yaml.safe_load((FOLDER / "prometheus-rules.yaml").read_text())["groups"]
    return group["rules"]


def queries() -> list[str]:
    targets = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", [])]
    return targets + [rule["expr"] for rule in rules()]


def metrics_in(query: str) -> dict[str, set[str]]:
    """Names of metrics, each with the labels that it is selected by."""
    plain = re.sub(r'"[^"]*"', '""', query)
    plain = re.sub(r"\b(by|without)\s*\([^)]*\)", "", plain)
    plain = re.sub(r"\[[^\]]*\]", "", plain)
    found: dict[str, set[str]] = {}
    for name, selector in re.findall(r"(?<![\w.])([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\})?(?!\s*[\w(])", plain):
        if name not in WORDS and not re.search(rf"\{{[^}}]*\b{name}\b", plain):
            found.setdefault(name, set()).update(re.findall(r"(\w+)\s*[=!]", selector))
    return found


@pytest.fixture(scope="module")
def served(web) -> tuple[set[str], dict[str, set[str]]]:
    """Names of series that a running process has, and the labels of those that have samples."""
    _, up, _ = web
    url = up.wait_for(r"endpoint (http://\S+)").group(1)
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    labels: dict[str, set[str]] = {}
    for name, inside in re.findall(r"^(\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        labels.setdefault(name, set()).update(re.findall(r'(\w+)="', inside))
    return names, labels


def test_every_metric_of_dashboard_and_alerts_is_served_with_the_labels_asked_for(served):
    names, labels = served
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert len(queries()) > 30
    for query in queries():
        asked = metrics_in(query)
        assert asked, query
        assert asked.keys() <= names | recorded, query
        grouped = {each for group in re.findall(r"\bby\s*\(([^)]*)\)", query) for each in re.findall(r"\w+", group)}
        for name, selected in asked.items():
            if name in labels:
                assert (selected | grouped) - LATER <= labels[name], query


def test_the_dashboard_is_one_that_grafana_lays_out_without_overlap():
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


def test_every_alert_says_what_to_do():
    alerts = [rule for rule in rules() if "alert" in rule]
    assert alerts
    for alert in alerts:
        assert {"summary", "description"} <= alert["annotations"].keys(), alert["alert"]
        assert alert["labels"]["severity"] in ("critical", "warning", "info")
        assert alert["for"]


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_cluster_takes_the_manifests_strictly(web, needs_kubectl, name):
    _, _, kubectl = web
    told = kubectl("apply", "--validate=strict", "-f", FOLDER / name)
    objects = [each for each in yaml.safe_load_all((FOLDER / name).read_text()) if each]
    assert len(told.splitlines()) == len(objects)
    for each in objects:
        config = each.get("data", {}) if each["kind"] == "ConfigMap" else {}
        for file, content in config.items():
            assert isinstance(yaml.safe_load(content), dict), file
    images = re.findall(r"image: (\S+)", (FOLDER / name).read_text())
    assert images
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images)


def test_services_lead_to_ports_that_their_pods_have():
    for name in MANIFESTS:
        objects = [each for each in yaml.safe_load_all((FOLDER / name).read_text()) if each]
        for service in (each for each in objects if each["kind"] == "Service"):
            (workload,) = [
                each
                for each in objects
                if each["kind"] in ("Deployment", "StatefulSet")
                and service["spec"]["selector"].items() <= each["spec"]["template"]["metadata"]["labels"].items()
            ]
            ports = {
                port["name"]
                for container in workload["spec"]["template"]["spec"]["containers"]
                for port in container["ports"]
            }
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
