"""Jobs under kube-controller-manager and under kubeloop: the same objects, events and order of writes.

See `support.comparison.compared_clusters`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from support.comparison.compared_clusters import JSON, ComparedCluster, assert_same_state, stable
from support.comparison.real_apiserver import RealApiServer

JOBS, PODS = "/apis/batch/v1/namespaces/x/jobs", "/api/v1/namespaces/x/pods"
INDEX = "batch.kubernetes.io/job-completion-index"
FINALIZER = "batch.kubernetes.io/job-tracking"

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


class JobCluster(ComparedCluster):
    """User and kubelet of one cluster."""

    def __init__(self, server: RealApiServer) -> None:
        super().__init__(server, (JOBS, PODS))

    def run(self) -> JSON:
        for name, spec in SPECS.items():
            policy = "OnFailure" if name == "restarts" else "Never"
            container = {"name": "main", "image": "app:1"}
            template = {"spec": {"restartPolicy": policy, "nodeName": "n", "containers": [container]}}
            self.server.request("POST", JOBS, {"metadata": {"name": name}, "spec": {"template": template, **spec}})
        for step in (self._first, self._second, self._third):
            self.settle()
            step()
        self.settle()
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
        self.wait(lambda: len(self._unfinished("limit")) == 2, "the failed pod is replaced")
        self.wait(lambda: len(self._unfinished("per-index")) == 1, "the failed index is tried again")
        self.wait(lambda: len(self._unfinished("ignore")) == 1, "the disrupted pod is replaced")

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
        self.wait(lambda: len(self._unfinished("terminating")) == 1, "the terminated pod is replaced")

    def _third(self) -> None:
        self._remove_terminating()
        self._change("suspended", suspend=False)
        self.wait(lambda: len(self._unfinished("suspended")) == 1, "the job runs again")
        for name in ("plain", "suspended", "terminating"):
            self._succeed(name)

    # --- user and kubelet --------------------------------------------------------------------------------------------

    def _change(self, name: str, **spec: Any) -> None:
        self.patch(f"{JOBS}/{name}", spec=spec)

    def _pods(self, name: str) -> list[JSON]:
        return self.objects(f"{PODS}?labelSelector=job-name%3D{name}")

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
        self.patch(f"{PODS}/{pod['metadata']['name']}/status", status=status)

    def _remove_terminating(self) -> None:
        """End terminating pods as a kubelet does: they fail, and are removed."""
        for pod in self.objects(PODS):
            if "deletionTimestamp" in pod["metadata"]:
                if pod["status"]["phase"] not in ("Succeeded", "Failed"):
                    self._end(pod, "Failed", 137)
                self.server.request("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})

    # --- comparison --------------------------------------------------------------------------------------------------

    def _state(self) -> JSON:
        return {
            "events": self.events(),
            "jobs": stable(self.objects(JOBS)),
            "pods": sorted(stable(self.objects(PODS)), key=json.dumps),
            "writes": self._writes(),
        }

    def _writes(self) -> dict[str, list[str]]:
        """Return the changes of each Job and its pods in their order; those of pods in a row are sorted."""
        changes: list[tuple[int, str, bool, str]] = []
        for path, describe in ((JOBS, describe_job), (PODS, describe_pod)):
            last: dict[str, str] = {}
            for type_, obj in self.versions(path):
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


def test_jobs_match_kubernetes(tmp_path):
    state = assert_same_state(tmp_path, ("job-controller", "job"), lambda server: JobCluster(server).run())
    assert len(state["jobs"]) == len(SPECS) - 1
    assert all(state["writes"].values())
