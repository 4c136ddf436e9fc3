"""Times, durations and seconds at the limits of their types in a complete cluster: no object affects another."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kubeloop.kube.client.transport import HttpRequest
from kubeloop.scheduler.explain.pending_pod import explain
from kubeloop.testing import virtual_time
from kubeloop.testing.in_memory import MemoryCluster, memory_cluster
from kubeloop.testing.memory_transport import MemoryTransport
from kubeloop.testing.virtual_time import VirtualClock
from support.comparison.differential import VALID
from support.comparison.limit_fields import LimitField, limit_fields
from support.objects.manifests import deployment
from support.objects.yaml_files import read_documents
from support.traces.observation import new_observation

JSON = dict[str, Any]
TEMPLATES = "templates.yaml"  # are those of the workloads
POLICIES = "policies.yaml"
REFUSE_OTHERS = ("LimitRange", "ResourceQuota")  # as the kinds of POLICIES do
HEADERS = {"content-type": "application/json", "accept": "application/json"}
TABLE = {**HEADERS, "accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
MERGE = {**HEADERS, "content-type": "application/merge-patch+json"}


def declared_kinds(*, refuse_others: bool) -> list[tuple[str, str, JSON]]:
    """Return type, path and valid objects (the first, and those with a status) of each kind of tests/support/valid.

    refuse_others: of the kinds whose objects refuse or change other objects, else of all others.
    """
    kinds = []
    for file in sorted(VALID.glob("*.yaml")):
        if file.name == TEMPLATES:
            continue
        for document in read_documents(file):
            kind = document.get("kind", "/")
            refuses = file.name == POLICIES or kind in REFUSE_OTHERS
            if document.get("objects") and "/" not in kind and refuses == refuse_others:
                first, *others = document["objects"]
                bases = [first, *(obj for obj in others if "status" in obj)]
                kinds += [(document["type"], document["path"], {"kind": kind, **obj}) for obj in bases]
    return kinds


def declared_fields(*, refuse_others: bool) -> list[tuple[str, str, LimitField]]:
    """Return path, kind and field of each time, duration and number of seconds of declared_kinds()."""
    kinds = declared_kinds(refuse_others=refuse_others)
    return [(path, base["kind"], field) for type_, path, base in kinds for field in limit_fields(type_, base)]


FIELDS = declared_fields(refuse_others=False)


class Tracebacks(logging.Handler):
    """Collects records with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.texts.append(f"{record.getMessage()} {record.__dict__.get('key', '')}: {record.exc_info[1]!r}")


class Limits:
    """A cluster that receives objects with one field at its limit each."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._transport = MemoryTransport(cluster.api.handle)
        self.paths: list[str] = []
        self.accepted = 0

    async def _send(self, method: str, path: str, body: Any = None, headers: Any = HEADERS) -> Any:
        content = b"" if body is None else json.dumps(body).encode()
        response = await self._transport.send(HttpRequest(method, path, headers=headers, body=content))
        assert response.status < 500, (method, path, body, response.body)
        return response.status, json.loads(response.body)

    async def write(self, path: str, name: str, field: LimitField, value: Any) -> None:
        obj = field.object_with(value)
        obj = {**obj, "metadata": {**obj["metadata"], "name": name}}
        status, created = await self._send("POST", path, obj)
        if status != 201:
            return
        self.paths.append(f"{path}/{name}")
        self.accepted += field.place[0] != "status"
        if "status" in obj:
            metadata = {**obj["metadata"], "resourceVersion": created["metadata"]["resourceVersion"]}
            status, _ = await self._send(
                "PUT", f"{path}/{name}/status", {**created, "metadata": metadata, "status": obj["status"]}
            )
            self.accepted += field.place[0] == "status" and status == 200

    async def read_change_delete(self) -> None:
        for path in sorted({path.rpartition("/")[0] for path in self.paths}):
            await self._send("GET", path, headers=TABLE)
        for path in self.paths:
            await self._send("PATCH", path, {"metadata": {"annotations": {"changed": "yes"}}}, MERGE)
        await asyncio.sleep(600)
        for path in self.paths:
            await self._send("DELETE", path)


def test_every_field_of_time_and_seconds_is_found():
    found = {f"{kind}.{field}" for _, kind, field in FIELDS}
    assert {
        "Pod.spec.terminationGracePeriodSeconds",
        "Pod.spec.activeDeadlineSeconds",
        "Pod.status.startTime",
        "Pod.status.conditions.0.lastTransitionTime",
        "Pod.spec.tolerations.0.tolerationSeconds",
        "Deployment.spec.minReadySeconds",
        "CronJob.spec.startingDeadlineSeconds",
        "CronJob.status.lastScheduleTime",
        "Job.spec.ttlSecondsAfterFinished",
        "Lease.spec.renewTime",
        "PodDisruptionBudget.status.disruptedPods.web",
        "Node.spec.taints.0.timeAdded",
        "Event.lastTimestamp",
    } <= found
    assert len(found) > 150


def run_without_tracebacks(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in virtual time. Raises AssertionError if a traceback is logged."""
    tracebacks = Tracebacks()
    logging.getLogger().addHandler(tracebacks)
    try:
        virtual_time.run(main)
    finally:
        logging.getLogger().removeHandler(tracebacks)
    assert tracebacks.texts == []


@settings(
    max_examples=2,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
@pytest.mark.timeout(300)
def test_objects_at_the_limits_affect_no_other_object(data):
    values = [data.draw(field.values(), label=f"{kind}.{field}") for _, kind, field in FIELDS]

    async def main() -> None:
        clock = VirtualClock()
        async with memory_cluster(clock=clock, nodes=3) as cluster:
            observation = new_observation(MemoryTransport(cluster.api.handle), clock)
            observing = asyncio.create_task(observation.run())
            limits = Limits(cluster)
            for number, ((path, kind, field), value) in enumerate(zip(FIELDS, values, strict=True)):
                await limits.write(path, f"limit-{kind.lower()}-{number}", field, value)
            assert limits.accepted > len(FIELDS) // 4
            await asyncio.sleep(600)
            await cluster.apply(deployment("bystander", replicas=3, image="app:1"))
            await cluster.wait_for("deployment/bystander", "complete")
            scheduler = cluster.plane.scheduler
            assert scheduler is not None
            for pod in cluster.seen_pods():
                assert explain(scheduler, pod.key).to_json()
            await limits.read_change_delete()
            await asyncio.sleep(600)
            await cluster.apply(deployment("bystander", replicas=3, image="app:2"))
            await cluster.wait_for("deployment/bystander", "complete")
            assert not observing.done()
            observing.cancel()
            await asyncio.wait([observing])

    run_without_tracebacks(main())


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
@pytest.mark.timeout(300)
def test_objects_that_refuse_others_are_handled_at_their_limits(data):
    fields = declared_fields(refuse_others=True)
    assert {kind for _, kind, _ in fields} >= {*REFUSE_OTHERS, "ValidatingAdmissionPolicy"}
    values = [data.draw(field.values(), label=f"{kind}.{field}") for _, kind, field in fields]

    async def main() -> None:
        async with memory_cluster(clock=VirtualClock(), nodes=1) as cluster:
            limits = Limits(cluster)
            for number, ((path, kind, field), value) in enumerate(zip(fields, values, strict=True)):
                await limits.write(path, f"limit-{kind.lower()}-{number}", field, value)
            await asyncio.sleep(600)
            await limits.read_change_delete()

    run_without_tracebacks(main())
