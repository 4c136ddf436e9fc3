"""`kubeloop observe` beside kube-apiserver, kube-controller-manager and kube-scheduler: one exact trace per pod.

Edges of phases are compared with the API's own timestamps, which have whole seconds, and edges that come from the
arrival of a watch event with the audit log, which has microseconds. The limit for arrivals includes the time for which
processes wait for a CPU, which is measured meanwhile: on a quiet machine the test is strict, on a loaded one it holds.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.comparison.fake_kubelet import fake_kubelet, make_node
from support.comparison.real_apiserver import needs_binaries, real_apiserver
from support.comparison.scenario import deployment
from support.processes.cli_processes import Kubeloop, wait_until
from support.processes.scheduling_delay import SchedulingDelay
from support.traces.otlp import Collector, ReceivedSpan, by_trace

DEPLOYMENTS, REPLICAS = 10, 50
PODS = DEPLOYMENTS * REPLICAS
SECOND_NS = 1_000_000_000
PHASES = ["schedule", "start sandbox", "image pull", "container start"]
MS = 1_000_000
TIMESTAMP_TOLERANCE_NS = 1_100_000_000
AUDIT_TOLERANCE_NS = 50_000_000
SIZE = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"}
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # only the response to a create has the generated name
        {"level": "RequestResponse", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods"]}]},
        {"level": "Metadata", "resources": [{"group": "", "resources": ["pods/binding", "pods/status"]}]},
        {"level": "None"},
    ],
}


class Observed(NamedTuple):
    """Exported traces, and the audit log of the API server.

    traces: the spans of each pod by its UID, the root first. audit: when a request was received and answered (ns), by
    verb, subresource and the pod's name. delay: for which processes had to wait for a CPU meanwhile.
    """

    traces: dict[str, list[ReceivedSpan]]
    pods: dict[str, Any]
    audit: dict[tuple[str, str, str], tuple[int, int]]
    delay: SchedulingDelay


def roots(collector: Collector) -> list[ReceivedSpan]:
    return [span for span in collector.spans() if not span.parent_id]


def audit_events(log: Path) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Return when each request was received and answered (ns)."""
    events = {}
    for line in log.read_text().splitlines():
        event = json.loads(line)
        reference = event["objectRef"]
        name = reference.get("name") or event["responseObject"]["metadata"]["name"]
        times = (event["requestReceivedTimestamp"], event["stageTimestamp"])
        events.setdefault((event["verb"], reference.get("subresource", ""), name), tuple(map(nanoseconds, times)))
    return events


def nanoseconds(timestamp: str) -> int:
    return round(datetime.fromisoformat(timestamp).timestamp() * 1e6) * 1000


@pytest.fixture(scope="module")
def observed(tmp_path_factory) -> Iterator[Observed]:
    """500 pods of ten Deployments, created, scheduled and started while they are observed."""
    needs_binaries("kube-controller-manager", "kube-scheduler")
    folder = tmp_path_factory.mktemp("observed")
    policy, log = folder / "policy.json", folder / "audit.log"
    policy.write_text(json.dumps(AUDIT_POLICY))
    flags = {"audit-policy-file": str(policy), "audit-log-path": str(log)}
    with real_apiserver(folder / "server", flags) as server, fake_kubelet(server, reports_containers=True):
        for number in range(6):
            make_node(server, f"node-{number}", size=SIZE)
        controllers = "--controllers=*,-node-lifecycle-controller"
        server.start_component("kube-controller-manager", controllers, "--leader-elect=false")
        server.start_component("kube-scheduler", "--leader-elect=false")
        delay = SchedulingDelay()
        with Collector().running() as collector:
            environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
            observe = Kubeloop(folder).running("observe", f"--kubeconfig={server.kubeconfig}", **environment)
            with observe as running, delay.sampled():
                running.wait_for("endpoint")
                for number in range(DEPLOYMENTS):
                    body = deployment(f"web-{number}", REPLICAS, container={"resources": {}})
                    server.request("POST", "/apis/apps/v1/namespaces/default/deployments", body)
                wait_until(lambda: len(roots(collector)) >= PODS, f"{PODS} pods are traced")
            pods = server.request("GET", "/api/v1/namespaces/default/pods")["items"]
            traces = {
                spans[0].attributes["k8s.pod.uid"]: sorted(spans, key=lambda span: (bool(span.parent_id), span.start))
                for spans in by_trace(collector.spans()).values()
            }
            assert len(traces) == len(roots(collector))
            yield Observed(traces, {pod["metadata"]["uid"]: pod for pod in pods}, audit_events(log), delay)


def test_each_pod_has_one_complete_trace(observed):
    assert len(observed.pods) == PODS
    assert sorted(observed.traces) == sorted(observed.pods)
    for uid, spans in observed.traces.items():
        root, *phases = spans
        owner = root.attributes["kubeloop.owner.kind"], root.attributes["kubeloop.owner.name"]
        assert owner == ("Deployment", observed.pods[uid]["metadata"]["labels"]["app"])
        assert root.attributes["kubeloop.outcome"] == "ready"
        names = [span.name for span in phases]
        assert set(names) - {"start readiness"} <= set(PHASES)  # phases without length are left out
        assert "image pull" in names
        assert phases[0].start == root.start
        assert max(span.end for span in phases) == root.end
        for before, after in pairwise(phases):  # without gaps
            assert before.start <= after.start <= before.end <= after.end, names


def test_edges_agree_with_the_timestamps_of_the_api(observed):
    for uid, (root, *phases) in observed.traces.items():
        pod = observed.pods[uid]
        conditions = {condition["type"]: condition for condition in pod["status"]["conditions"]}
        (container,) = pod["status"]["containerStatuses"]
        ends = {span.name: span.end for span in phases}
        for edge_ns, timestamp in (
            (root.start, pod["metadata"]["creationTimestamp"]),
            (ends.get("schedule", root.start), conditions["PodScheduled"]["lastTransitionTime"]),
            (ends.get("container start", ends["image pull"]), container["state"]["running"]["startedAt"]),
            (root.end, conditions["Ready"]["lastTransitionTime"]),
        ):
            assert abs(edge_ns - nanoseconds(timestamp)) <= TIMESTAMP_TOLERANCE_NS, (root, timestamp)


def edge_of(name: str, root: ReceivedSpan, phases: list[ReceivedSpan]) -> tuple[int, int]:
    """Return time and uncertainty (ns) of an edge of a trace."""
    if name == "created":
        return root.start, root.attributes.get("kubeloop.start.uncertainty_ms", 0) * MS
    last = phases[0] if name == "bound" else max(phases, key=lambda span: span.end)
    return last.end, last.attributes.get("kubeloop.end.uncertainty_ms", 0) * MS


@pytest.mark.parametrize(
    ("edge", "verb", "subresource"),
    [("created", "create", ""), ("bound", "create", "binding"), ("ready", "patch", "status")],
)
def test_edges_agree_with_the_audit_log(observed, edge, verb, subresource):
    delays_ns = []
    for root, *phases in observed.traces.values():
        if edge == "bound" and phases[0].name != "schedule":
            continue  # it was bound when it was first observed
        received_ns, answered_ns = observed.audit[verb, subresource, root.attributes["k8s.pod.name"]]
        time_ns, uncertainty_ns = edge_of(edge, root, phases)
        assert time_ns - uncertainty_ns <= answered_ns + MS
        if time_ns % SECOND_NS:  # not the end of the second of a timestamp, but an arrival or microseconds of an Event
            assert received_ns <= time_ns + MS
            delays_ns.append(time_ns - answered_ns)
    assert len(delays_ns) > PODS / 2
    # for kube-apiserver to send the event, for kubeloop to read it, and for the turn of its event loop before
    waits_ns, longest_waits_ns = 3 * observed.delay.percentile_ns(99), 3 * max(observed.delay.delays_ns)
    percentiles = statistics.quantiles(delays_ns, n=100)
    assert percentiles[89] <= AUDIT_TOLERANCE_NS + waits_ns
    assert percentiles[98] <= AUDIT_TOLERANCE_NS + longest_waits_ns
