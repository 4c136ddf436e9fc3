"""Jobs under kube-controller-manager and under kubeloop: the same objects, events and order of writes.

Each controller runs alone on its own kube-apiserver; the test is user and kubelet. The order of writes is read
afterwards from the watch cache: every version of the Jobs and of their pods since the start.
"""

from __future__ import annotations

import difflib
import json
import re
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

from support.cli_processes import Kubeloop
from support.real_apiserver import RealApiServer, needs_binaries, real_apiserver

JSON = dict[str, Any]
JOBS, PODS = "/apis/batch/v1/namespaces/x/jobs", "/api/v1/namespaces/x/pods"
MERGE_PATCH = "application/merge-patch+json"
INDEX = "batch.kubernetes.io/job-completion-index"
FINALIZER = "batch.kubernetes.io/job-tracking"
QUIET_SECONDS, TIMEOUT_SECONDS = 3.0, 60.0
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?![a-z0-9-])")
VOLATILE = {
    "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "lastTransitionTime", "lastProbeTime",
    "managedFields", "startTime", "completionTime", "startedAt", "finishedAt", "generateName",
}  # fmt: skip
TRACES = {"tracing.k8s.io/traceparent", "kubeloop.io/pod-trace"}  # annotations of pods, only by kubeloop, documented

INDEXED: JSON = {"completionMode": "Indexed"}
DISRUPTED: JSON = {"type": "DisruptionTarget", "status": "True"}
SPECS: dict[str, JSON] = {
    "plain": {"completions": 3, "parallelism": 2},
    "queue": {"parallelism": 2},
    "indexed": {**INDEXED, "completions": 3, "parallelism": 3},
    "limit": {"backoffLimit": 1, "parallelism": 2, "completions": 2},
    "per-index": {**INDEXED, "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 1},
    "max-failed": {
        **INDEXED, "completions": 4, "parallelism": 3, "backoffLimitPerIndex": 0, "maxFailedIndexes": 0,
    },
    "fail-job": {
        "parallelism": 2,
        "completions": 2,
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]},
    },
    "ignore": {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [DISRUPTED]}]}},
    "early": {
        **INDEXED, "completions": 3, "parallelism": 3,
        "successPolicy": {"rules": [{"succeededIndexes": "1-2", "succeededCount": 1}]},
    },
    "suspended": {"suspend": True, "completions": 1},
    "deadline": {"activeDeadlineSeconds": 2},
    "terminating": {"podReplacementPolicy": "Failed", "completions": 1},
    "managed": {"managedBy": "example.com/other"},
    "scaled": {"parallelism": 1, "completions": 9},
    "deleted": {"parallelism": 2, "completions": 2},
    "restarts": {"backoffLimit": 2, "completions": 1},
}  # fmt: skip


class Cluster:
    """User and kubelet of one cluster."""

    def __init__(self, server: RealApiServer) -> None:
        self.server = server
        self._start_versions: dict[str, str] = {}

    def run(self) -> JSON:
        self.server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})
        self._start_versions = {
            path: self.server.request("GET", path)["metadata"]["resourceVersion"] for path in (JOBS, PODS)
        }
        for name, spec in SPECS.items():
            policy = "OnFailure" if name == "restarts" else "Never"
            container = {"name": "main", "image": "app:1"}
            template = {"spec": {"restartPolicy": policy, "nodeName": "n", "containers": [container]}}
            self.server.request("POST", JOBS, {"metadata": {"name": name}, "spec": {"template": template, **spec}})
        for step in (self._first, self._second, self._third):
            self._settle()
            step()
        self._settle()
        return self._state()

    def _first(self) -> None:
        for name in ("plain", "restarts"):
            self._run(name)
        self._succeed("indexed", 1)
        self._succeed("per-index", 1)
        self._succeed("early", 2)
        for name in ("queue", "limit", "fail-job", "ignore"):
            pod = self._unfinished(name)[0]
            if name == "queue":
                self._end(pod, "Succeeded", 0)
            else:
                self._end(pod, "Failed", 42, [DISRUPTED])
        for name in ("per-index", "max-failed"):
            self._end(self._pod_of_index(name, 0), "Failed", 1)
        self._change("suspended", suspend=False)
        self._change("scaled", parallelism=3)
        self.server.request("DELETE", f"{PODS}/{self._unfinished('terminating')[0]['metadata']['name']}")
        self.server.request("DELETE", f"{JOBS}/deleted", {"propagationPolicy": "Background"})
        self._wait(lambda: len(self._unfinished("limit")) == 2, "the failed pod is replaced")
        self._wait(lambda: len(self._unfinished("per-index")) == 1, "the failed index is tried again")
        self._wait(lambda: len(self._unfinished("ignore")) == 1, "the disrupted pod is replaced")

    def _second(self) -> None:
        self._succeed("plain")
        self._succeed("indexed")
        self._succeed("queue")
        self._succeed("ignore")
        self._end(self._pod_of_index("per-index", 0), "Failed", 1)
        self._end(self._unfinished("limit")[0], "Failed", 1)
        self._change("suspended", suspend=True)
        self._change("scaled", parallelism=1)
        self._restart("restarts", 2)
        self._remove_terminating()
        self._wait(lambda: len(self._unfinished("terminating")) == 1, "the terminated pod is replaced")

    def _third(self) -> None:
        self._remove_terminating()
        self._change("suspended", suspend=False)
        self._wait(lambda: len(self._unfinished("suspended")) == 1, "the job runs again")
        for name in ("plain", "suspended", "terminating"):
            self._succeed(name)

    # --- user and kubelet --------------------------------------------------------------------------------------------

    def _change(self, name: str, **spec: Any) -> None:
        self.server.request("PATCH", f"{JOBS}/{name}", {"spec": spec}, content_type=MERGE_PATCH)

    def _pods(self, name: str) -> list[JSON]:
        pods: list[JSON] = self.server.request("GET", f"{PODS}?labelSelector=job-name%3D{name}")["items"]
        return pods

    def _unfinished(self, name: str) -> list[JSON]:
        return [
            pod
            for pod in self._pods(name)
            if pod["status"]["phase"] not in ("Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]
        ]

    def _pod_of_index(self, name: str, index: int) -> JSON:
        (pod,) = (pod for pod in self._unfinished(name) if pod["metadata"]["annotations"][INDEX] == str(index))
        return pod

    def _succeed(self, name: str, *indexes: int) -> None:
        for pod in [self._pod_of_index(name, index) for index in indexes] or self._unfinished(name):
            self._end(pod, "Succeeded", 0)

    def _end(self, pod: JSON, phase: str, exit_code: int, conditions: Iterable[JSON] = ()) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        state = {"terminated": {"exitCode": exit_code, "startedAt": now, "finishedAt": now}}
        self._write_status(pod, phase=phase, conditions=list(conditions), containerStatuses=[_container(state, 0)])

    def _run(self, name: str) -> None:
        for pod in self._unfinished(name):
            ready = {"type": "Ready", "status": "True"}
            self._write_status(
                pod, phase="Running", conditions=[ready], containerStatuses=[_container({"running": {}}, 0)]
            )

    def _restart(self, name: str, count: int) -> None:
        for pod in self._unfinished(name):
            self._write_status(pod, containerStatuses=[_container({"running": {}}, count)])

    def _write_status(self, pod: JSON, **status: Any) -> None:
        path = f"{PODS}/{pod['metadata']['name']}/status"
        self.server.request("PATCH", path, {"status": status}, content_type=MERGE_PATCH)

    def _remove_terminating(self) -> None:
        """End terminating pods as a kubelet does: they fail, and are removed."""
        for pod in self.server.request("GET", PODS)["items"]:
            if "deletionTimestamp" in pod["metadata"]:
                if pod["status"]["phase"] not in ("Succeeded", "Failed"):
                    self._end(pod, "Failed", 137)
                self.server.request("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})

    def _wait(self, condition: Callable[[], bool], description: str) -> None:
        end = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            assert time.monotonic() < end, f"not within {TIMEOUT_SECONDS:g} s: {description}"
            time.sleep(0.2)

    def _settle(self) -> None:
        """Wait until no Job or pod changes. A sync follows the event of a pod after a second."""
        last, since = None, time.monotonic()
        end = since + TIMEOUT_SECONDS
        while time.monotonic() - since < QUIET_SECONDS:
            versions = [
                item["metadata"]["resourceVersion"]
                for path in (JOBS, PODS)
                for item in self.server.request("GET", path)["items"]
            ]
            if versions != last:
                last, since = versions, time.monotonic()
            assert time.monotonic() < end, "the Jobs keep changing"
            time.sleep(0.2)

    # --- comparison --------------------------------------------------------------------------------------------------

    def _state(self) -> JSON:
        events = {
            f"{event['involvedObject']['name']} {event['type']} {event['reason']}: {event['message']}"
            for event in self.server.request("GET", "/api/v1/namespaces/x/events")["items"]
        }
        return {
            "events": sorted({stable(event) for event in events}),
            "jobs": [stable(job) for job in self.server.request("GET", JOBS)["items"]],
            "pods": sorted((stable(pod) for pod in self.server.request("GET", PODS)["items"]), key=json.dumps),
            "writes": self._writes(),
        }

    def _writes(self) -> dict[str, list[str]]:
        """Return the changes of each Job and its pods in their order; those of pods in a row are sorted."""
        changes: list[tuple[int, str, bool, str]] = []
        for path, describe in ((JOBS, describe_job), (PODS, describe_pod)):
            last: dict[str, str] = {}
            for type_, obj in self._versions(path):
                name = obj["metadata"]["name"]
                text = describe(obj) if type_ != "DELETED" else f"{describe(obj).split()[0]} deleted"
                if text != last.get(name):
                    job = name if path == JOBS else obj["metadata"]["labels"]["job-name"]
                    changes.append((int(obj["metadata"]["resourceVersion"]), job, path == PODS, text))
                last[name] = text
        writes: dict[str, list[str]] = {name: [] for name in SPECS}
        for (job, is_pod), group in groupby(sorted(changes, key=lambda it: (it[1], it[0])), lambda it: (it[1], it[2])):
            lines = [text for _, _, _, text in group]
            writes[job] += sorted(lines) if is_pod else lines
        return writes

    def _versions(self, path: str) -> list[tuple[str, JSON]]:
        query = f"?watch=1&timeoutSeconds=2&resourceVersion={self._start_versions[path]}"
        request = urllib.request.Request(
            self.server.url + path + query, headers={"Authorization": f"Bearer {self.server.token}"}
        )
        context = ssl.create_default_context(cafile=str(self.server.ca))
        with urllib.request.urlopen(request, context=context) as response:
            events = [json.loads(line) for line in response]
        return [(event["type"], event["object"]) for event in events]


def _container(state: JSON, restarts: int) -> JSON:
    return {
        "name": "main", "image": "app:1", "imageID": "", "ready": False, "restartCount": restarts, "state": state,
    }  # fmt: skip


def describe_job(job: JSON) -> str:
    status = dict(job.get("status", {}))
    times = [key for key in ("startTime", "completionTime") if status.pop(key, None)]
    return stable(f"job {json.dumps(stable(status), sort_keys=True)} {times}")


def describe_pod(pod: JSON) -> str:
    metadata = pod["metadata"]
    index = metadata.get("annotations", {}).get(INDEX, "")
    tracked = "tracked" if FINALIZER in metadata.get("finalizers", []) else "released"
    deleted = " terminating" if "deletionTimestamp" in metadata else ""
    return f"pod{index} {pod['status']['phase']} {tracked}{deleted}"


def stable(value: Any) -> Any:
    """Return the value without fields and texts that differ between two clusters."""
    if isinstance(value, dict):
        fields = {name: stable(item) for name, item in value.items() if name not in VOLATILE | TRACES}
        return fields if fields.get("annotations") else {name: fields[name] for name in fields if name != "annotations"}
    if isinstance(value, str):
        return _SUFFIX.sub("-*", _UID.sub("UID", value))
    return [stable(item) for item in value] if isinstance(value, list) else value


def run_kubernetes(folder: Path) -> JSON:
    with real_apiserver(folder) as server:
        server.start_component("kube-controller-manager", "--controllers=job-controller", "--leader-elect=false")
        return Cluster(server).run()


def run_kubeloop(folder: Path) -> JSON:
    with (
        real_apiserver(folder) as server,
        Kubeloop(folder).running("run", f"--kubeconfig={server.kubeconfig}", "--controllers=job", "--trace-journal="),
    ):
        return Cluster(server).run()


def test_jobs_match_kubernetes(tmp_path):
    needs_binaries("kube-controller-manager")
    with ThreadPoolExecutor(2) as executor:
        kubernetes = executor.submit(run_kubernetes, tmp_path / "kubernetes")
        kubeloop = executor.submit(run_kubeloop, tmp_path / "kubeloop")
        real, ours = (json.dumps(it.result(), indent=1, sort_keys=True).splitlines() for it in (kubernetes, kubeloop))
    report = "\n".join(difflib.unified_diff(real, ours, "Kubernetes", "kubeloop", lineterm="", n=4))
    assert not report, report[:20_000]
    assert len(real) > 1000
