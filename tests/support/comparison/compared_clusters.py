"""A controller under kube-controller-manager and under kubeloop, each alone on its own kube-apiserver.

The test is user and kubelet of both clusters. The order of writes is read afterwards from the watch cache: every
version of some objects since the start.
"""

from __future__ import annotations

import difflib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.processes.cli_processes import Kubeloop

JSON = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
QUIET_SECONDS, TIMEOUT_SECONDS = 3.0, 60.0
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?![a-z0-9-])")
_VOLATILE = {
    "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "lastTransitionTime", "lastProbeTime",
    "managedFields", "startTime", "completionTime", "startedAt", "finishedAt", "generateName",
}  # fmt: skip
_TRACES = {"tracing.k8s.io/traceparent", "kubeloop.dev/pod-trace"}  # annotations of pods, only by kubeloop, documented


class ComparedCluster:
    """User of one cluster. paths: the collections of the namespace x whose versions are compared."""

    def __init__(self, server: RealApiServer, paths: Sequence[str]) -> None:
        self.server = server
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
        self._start_versions = {path: server.request("GET", path)["metadata"]["resourceVersion"] for path in paths}

    def objects(self, path: str) -> list[JSON]:
        items: list[JSON] = self.server.request("GET", path)["items"]
        return items

    def patch(self, path: str, **fields: Any) -> None:
        self.server.request("PATCH", path, fields, content_type=MERGE_PATCH)

    def wait(self, condition: Callable[[], bool], description: str) -> None:
        end = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            assert time.monotonic() < end, f"not within {TIMEOUT_SECONDS:g} s: {description}"
            time.sleep(0.2)

    def settle(self) -> None:
        """Wait until no object changes. A sync follows the event of a pod after a second."""
        last, since = None, time.monotonic()
        end = since + TIMEOUT_SECONDS
        while time.monotonic() - since < QUIET_SECONDS:
            items = (item for path in self._start_versions for item in self.objects(path))
            versions = [item["metadata"]["resourceVersion"] for item in items]
            if versions != last:
                last, since = versions, time.monotonic()
            assert time.monotonic() < end, "the objects keep changing"
            time.sleep(0.2)

    def events(self) -> list[str]:
        """Return the events, each text once: "name type reason: message"."""
        texts = (
            f"{event['involvedObject']['name']} {event['type']} {event['reason']}: {event['message']}"
            for event in self.objects("/api/v1/namespaces/x/events")
        )
        return sorted({stable(text) for text in texts})

    def versions(self, path: str) -> list[tuple[str, JSON]]:
        """Return (event type, object) of each change of a collection since the start."""
        events = self.server.changes(path, self._start_versions[path])
        return [(event["type"], event["object"]) for event in events]


def stable(value: Any) -> Any:
    """Return the value without fields and texts that differ between two clusters."""
    if isinstance(value, dict):
        fields = {name: stable(item) for name, item in value.items() if name not in _VOLATILE | _TRACES}
        return fields if fields.get("annotations") else {name: fields[name] for name in fields if name != "annotations"}
    if isinstance(value, str):
        return _SUFFIX.sub("-*", _UID.sub("UID", value))
    return [stable(item) for item in value] if isinstance(value, list) else value


def assert_same_state(
    folder: Path,
    controllers: tuple[str, str],
    state_of: Callable[[RealApiServer], JSON],
    *,
    feature_gates: str = "",
    flags: Mapping[str, str] | None = None,
) -> JSON:
    """Assert that both clusters end in the same state, and return it.

    controllers: names for --controllers of kube-controller-manager and of kubeloop. state_of: runs the scenario.
    feature_gates: of all components. flags: additional ones of kube-apiserver.
    """
    needs_binaries("kube-controller-manager")
    gates = f"--feature-gates={feature_gates}"
    flags = {**(flags or {}), "feature-gates": feature_gates}

    def run_kubernetes() -> JSON:
        with real_apiserver(folder / "kubernetes", flags) as server:
            selected = f"--controllers={controllers[0]}"
            server.start_component("kube-controller-manager", selected, "--leader-elect=false", gates)
            return state_of(server)

    def run_kubeloop() -> JSON:
        arguments = (f"--controllers={controllers[1]}", "--trace-journal=", gates)
        with (
            real_apiserver(folder / "kubeloop", flags) as server,
            Kubeloop(folder / "kubeloop").running("run", f"--kubeconfig={server.kubeconfig}", *arguments),
        ):
            return state_of(server)

    with ThreadPoolExecutor(2) as executor:
        states = [future.result() for future in [executor.submit(run_kubernetes), executor.submit(run_kubeloop)]]
    real, ours = (json.dumps(state, indent=1, sort_keys=True).splitlines() for state in states)
    report = "\n".join(difflib.unified_diff(real, ours, "Kubernetes", "kubeloop", lineterm="", n=4))
    assert not report, report[:20_000]
    return states[0]
