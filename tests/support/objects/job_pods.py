"""A Job of a FakeApiServer, and the ends of its Pods as a kubelet writes them."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.resources import JOBS, PODS
from support.apiserver.fake_apiserver import FakeApiServer
from support.objects.batch_objects import create_job

MERGE_PATCH = "application/merge-patch+json"
_INDEX = "batch.kubernetes.io/job-completion-index"


class TestedJob:
    """The Job "j" in namespace "ns", and its Pods."""

    __test__ = False

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server

    def create(self, **spec: Any) -> None:
        create_job(self.server, "j", **spec)

    def change(self, **spec: Any) -> None:
        self.server.api.succeed("PATCH", JOBS.path("ns", "j"), {"spec": spec}, content_type=MERGE_PATCH)

    @property
    def status(self) -> dict[str, Any]:
        """Status without times, zeros and empty lists; conditions are type and reason of those that are True."""
        status = {key: value for key, value in self._status.items() if not key.endswith("Time") and value}
        conditions = [
            (condition["type"], condition["reason"])
            for condition in status.pop("conditions", [])
            if condition["status"] == "True"
        ]
        return status | ({"conditions": conditions} if conditions else {})

    @property
    def start_time(self) -> str | None:
        return self._status.get("startTime")

    @property
    def _status(self) -> dict[str, Any]:
        job = self.server.store.get(JOBS, "ns", "j")
        assert job is not None
        status: dict[str, Any] = job.get("status", {})
        return status

    @property
    def conditions(self) -> list[tuple[str, str]]:
        conditions: list[tuple[str, str]] = self.status.get("conditions", [])
        return conditions

    @property
    def pods(self) -> list[dict[str, Any]]:
        return self.server.store.list(PODS)

    @property
    def unfinished(self) -> list[str]:
        """Names of the Pods that neither finished nor are being deleted."""
        return [
            pod["metadata"]["name"]
            for pod in self.pods
            if pod["status"].get("phase") not in ("Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]
        ]

    @property
    def indexes(self) -> list[int]:
        """Completion indexes of the unfinished Pods."""
        unfinished = self.unfinished
        return sorted(
            int(pod["metadata"]["annotations"][_INDEX]) for pod in self.pods if pod["metadata"]["name"] in unfinished
        )

    def pod_of_index(self, index: int) -> str:
        """Return the name of the unfinished Pod of an index."""
        unfinished = self.unfinished
        (name,) = (
            pod["metadata"]["name"]
            for pod in self.pods
            if pod["metadata"]["name"] in unfinished and pod["metadata"]["annotations"][_INDEX] == str(index)
        )
        return name

    def pod(self, name: str) -> dict[str, Any]:
        (pod,) = (pod for pod in self.pods if pod["metadata"]["name"] == name)
        return pod

    def patch_pod(self, name: str, metadata: dict[str, Any]) -> None:
        self.server.api.succeed("PATCH", PODS.path("ns", name), {"metadata": metadata}, content_type=MERGE_PATCH)

    def bind(self, name: str) -> None:
        """Assign the Pod to a node, so that its deletion is graceful."""
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "node"}}
        self.server.api.succeed("POST", PODS.path("ns", name, "binding"), body)

    def delete(self, name: str) -> None:
        """Delete a Pod as a user does."""
        self.server.delete(PODS, name)

    def write_pod_status(self, name: str, **status: Any) -> None:
        path = PODS.path("ns", name, "status")
        self.server.api.succeed("PATCH", path, {"status": status}, content_type=MERGE_PATCH)

    def run(self, *names: str) -> None:
        """Set the Pods running and ready; all unfinished ones by default."""
        for name in names or self.unfinished:
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": self._now()}
            self.write_pod_status(name, phase="Running", conditions=[ready])

    def succeed(self, *names: str) -> None:
        """End Pods with success; all unfinished ones by default."""
        for name in names or self.unfinished:
            self._end(name, "Succeeded", 0)

    def fail(self, *names: str, exit_code: int = 1, conditions: tuple[str, ...] = ()) -> None:
        """End Pods with a failure; all unfinished ones by default."""
        for name in names or self.unfinished:
            self._end(name, "Failed", exit_code, conditions)

    def _end(self, name: str, phase: str, exit_code: int, conditions: tuple[str, ...] = ()) -> None:
        terminated = {"exitCode": exit_code, "finishedAt": self._now(), "startedAt": self._now()}
        container = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        self.write_pod_status(
            name,
            phase=phase,
            containerStatuses=[container | {"state": {"terminated": terminated}}],
            conditions=[{"type": type_, "status": "True"} for type_ in conditions],
        )

    def remove(self, name: str) -> None:
        """Delete a Pod as a kubelet does after its containers have ended."""
        self.server.delete(PODS, name, gracePeriodSeconds=0)

    @property
    def events(self) -> list[str]:
        """Reasons of all events."""
        return [event.reason for event in self.server.context.events.events]

    def _now(self) -> str:
        return rfc3339(self.server.clock.now())
