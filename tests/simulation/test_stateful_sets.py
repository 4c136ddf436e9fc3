"""Random changes of a StatefulSet, faults, restarts and stale caches, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from kubeloop.controllers.statefulset.stateful_set_controller import StatefulSetController
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.storage.store import Change
from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.client.retries import RetryPolicy
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.objects.resources import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from kubeloop.testing import virtual_time
from support.disabled_recorders import DisabledReconcileRecorder
from support.fake_apiserver import FakeApiServer, Write
from support.faulty_transport import injected_error
from support.rollout_simulation import (
    FAULT_CODES,
    NAMESPACE,
    SimulatedPods,
    SimulationSettings,
    pod_is_available,
    pod_not_deleted,
)
from support.stateful_sets import stateful_set

Json = dict[str, Any]
QUICK = settings(max_examples=40)


class StatefulSetSimulation:
    """API server, kubelets and the StatefulSet controller, which may crash after any write.

    crash: share of writes after which the controller loses its memory before it receives the response, and starts
    again. writes: number of the controller's writes by method and resource, without deletions of terminating pods.
    """

    def __init__(self, seed: int, pace: SimulationSettings, crash: float) -> None:
        self.server = server = FakeApiServer(seed=seed, retries=RetryPolicy(tries=1, throttled_tries=0))
        self.rng = random.Random(seed)
        self.writes: Counter[str] = Counter()
        self.violations: list[str] = []
        self.restarts = 0
        self._pace, self._crash = pace, crash
        self._crashed = asyncio.Event()
        self._running: dict[str, str] = {}  # UIDs of the pods whose containers may run, by name
        SimulatedPods(server, pace, self.rng)
        server.store.subscribe(PODS, self._check_pod)
        server.on_write = self._on_write
        transport = server.transport
        transport.latency_seconds, transport.watch_delay_seconds = pace.request, pace.watch
        transport.reject, transport.lose_response = self._reject, self._lose_response

    async def run(self) -> None:
        """Run the controller, and start it again after each crash, until cancelled."""
        server = self.server
        while True:
            self._crashed.clear()
            server.transport.down = False
            rng = random.Random(self.rng.getrandbits(32))
            informers = InformerFactory(server.client, clock=server.clock, rng=rng)
            traces = DisabledReconcileRecorder()
            controller = StatefulSetController(structs.replace(server.context, informers=informers, traces=traces))
            tasks = [asyncio.ensure_future(part.run()) for part in (informers, controller)]
            try:
                await self._crashed.wait()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            self.restarts += 1
            await asyncio.sleep(self.rng.uniform(0, 2))

    def apply(self, **arguments: Any) -> None:
        body = stateful_set(**arguments)
        if self.server.store.get(STATEFUL_SETS, NAMESPACE, "web") is None:
            self.server.api.create(STATEFUL_SETS.path(NAMESPACE), body)
            return
        spec = {name: value for name, value in body["spec"].items() if name != "volumeClaimTemplates"}
        self.server.api.succeed("PATCH", STATEFUL_SETS.path(NAMESPACE, "web"), {"spec": spec})

    @property
    def pods(self) -> dict[str, Json]:
        return {pod["metadata"]["name"]: pod for pod in self.server.store.list(PODS)}

    def disturb(self, kind: str) -> None:
        """Delete a random pod, or let it fail."""
        pods = [pod for pod in self.pods.values() if pod["spec"].get("nodeName") and pod_not_deleted(pod)]
        if not pods:
            return
        pod = self.rng.choice(pods)
        name = pod["metadata"]["name"]
        if kind == "delete":
            self.server.api.succeed("DELETE", PODS.path(NAMESPACE, name))
        else:
            condition = {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339(self.server.clock.now())}
            self.server.store.update(PODS, {**pod, "status": {"phase": "Failed", "conditions": [condition]}})

    def is_stable(self, replicas: int, image: str) -> bool:
        """Return True if exactly the desired pods exist with the image, are ready, and the status says so."""
        sts = self.server.store.get(STATEFUL_SETS, NAMESPACE, "web")
        assert sts is not None
        status, now = sts["status"], self.server.clock.now()
        return (
            set(self.pods) == {f"web-{ordinal}" for ordinal in range(replicas)}
            and all(pod["spec"]["containers"][0]["image"] == image for pod in self.pods.values())
            and all(pod_is_available(pod, 0, now) for pod in self.pods.values())
            and status.get("observedGeneration") == sts["metadata"]["generation"]
            and status["replicas"] == status.get("readyReplicas", 0) == status.get("updatedReplicas", 0) == replicas
            and status["availableReplicas"] == replicas
            and status["currentRevision"] == status["updateRevision"]
        )

    async def wait_stable(self, replicas: int, image: str) -> None:
        """Wait for the desired state, and check that it stays without writes."""
        for _ in range(3600):
            if self.is_stable(replicas, image):
                break
            await asyncio.sleep(1)
        else:
            raise AssertionError((sorted(self.pods), self.server.store.list(STATEFUL_SETS)[0]["status"]))
        crash, self._crash = self._crash, 0.0
        await asyncio.sleep(60)
        before = self.writes.copy()
        await asyncio.sleep(60)
        assert self.is_stable(replicas, image)
        assert self.writes == before, "a stable StatefulSet is not written"
        self._crash = crash

    # --- faults and checks -------------------------------------------------------------------------------------------

    def _on_write(self, write: Write) -> None:
        if write.before is not None and write.before == write.after:
            return  # a dry run
        if write.method != "DELETE" or (write.before is not None and pod_not_deleted(write.before)):
            self.writes[f"{write.method} {write.resource.plural}"] += 1
        if write.method == "DELETE" and write.resource is PODS and "gracePeriodSeconds" in write.body:
            self.violations.append("a pod was deleted with a grace period of the controller")
        if self.rng.random() < self._crash:
            self.server.transport.down = True
            self._crashed.set()

    def _reject(self, method: str, path: str) -> StatusError | None:
        return injected_error(self.rng.choice(FAULT_CODES)) if self.rng.random() < self._pace.fault else None

    def _lose_response(self, method: str, path: str) -> bool:
        return method != "GET" and self.rng.random() < self._pace.lost_response

    def _check_pod(self, change: Change) -> None:
        """Record a violation if a pod is created while the containers of another one of its name may run."""
        pod, name = change.now.object, change.now.object["metadata"]["name"]
        uid = pod["metadata"]["uid"]
        if self._running.get(name, uid) != uid:
            self.violations.append(f"two pods {name}")
        if change.type == "DELETED":
            self._running.pop(name, None)
        else:
            self._running[name] = uid


paces = st.builds(
    SimulationSettings,
    request=st.sampled_from([0.0, 0.02, 0.3]),
    watch=st.sampled_from([0.0, 0.1, 2.0]),
    start=st.sampled_from([0.1, 3.0, 20.0]),
    stop=st.sampled_from([0.1, 3.0]),
)
crashes = st.sampled_from([0.0, 0.05, 0.3])
policies = st.sampled_from(["OrderedReady", "Parallel"])
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(0, 6)


@QUICK
@given(seed=seeds, pace=paces, crash=crashes, policy=policies, replicas=sizes, second=sizes)
def test_each_ordinal_is_created_and_replaced_exactly_once(seed, pace, crash, policy, replicas, second):
    async def main() -> None:
        simulation = StatefulSetSimulation(seed, pace, crash)
        task = asyncio.ensure_future(simulation.run())
        arguments = {"podManagementPolicy": policy, "claims": ("data",)}
        simulation.apply(replicas=replicas, **arguments)
        await simulation.wait_stable(replicas, "app:1")
        assert simulation.writes["POST pods"] == replicas
        simulation.apply(replicas=replicas, image="app:2", **arguments)
        await simulation.wait_stable(replicas, "app:2")
        assert (simulation.writes["POST pods"], simulation.writes["DELETE pods"]) == (2 * replicas, replicas)
        simulation.apply(replicas=second, image="app:2", **arguments)
        await simulation.wait_stable(second, "app:2")
        assert simulation.writes["POST pods"] == 2 * replicas + max(0, second - replicas)
        claims = simulation.server.store.list(PERSISTENT_VOLUME_CLAIMS)
        assert len(claims) == simulation.writes["POST persistentvolumeclaims"] == max(replicas, second)
        assert len(simulation.server.store.list(CONTROLLER_REVISIONS)) == 2
        assert not simulation.violations
        task.cancel()

    virtual_time.run(main())


changes = st.lists(
    st.tuples(st.sampled_from(["image", "scale", "delete", "fail", "undo"]), sizes, st.floats(0.0, 30.0)), max_size=8
)


@QUICK
@given(
    seed=seeds,
    pace=paces,
    crash=crashes,
    policy=policies,
    change_list=changes,
    fault=st.sampled_from([0.0, 0.1]),
    lost=st.sampled_from([0.0, 0.1]),
)
def test_any_changes_and_faults_end_in_the_last_spec(seed, pace, crash, policy, change_list, fault, lost):
    async def main() -> None:
        simulation = StatefulSetSimulation(seed, replace(pace, fault=fault, lost_response=lost), crash)
        task = asyncio.ensure_future(simulation.run())
        replicas, images = 3, ["app:1"]
        for change, size, seconds in [("scale", 3, 1.0), *change_list]:
            match change:
                case "image":
                    images.append(f"app:{len(images) + 1}")
                case "undo":
                    images.append(images[-2:][0])
                case "scale":
                    replicas = size
                case "delete" | "fail":
                    simulation.disturb(change)
            simulation.apply(replicas=replicas, image=images[-1], podManagementPolicy=policy, claims=("data",))
            await asyncio.sleep(seconds)
        await simulation.wait_stable(replicas, images[-1])
        assert not simulation.violations
        task.cancel()

    virtual_time.run(main())


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_controller_crashes_after_every_write(policy):
    """No progress is lost: each restart continues with the next write."""

    async def main() -> None:
        simulation = StatefulSetSimulation(1, SimulationSettings(), crash=1.0)
        task = asyncio.ensure_future(simulation.run())
        for image in ("app:1", "app:2"):
            simulation.apply(replicas=4, image=image, podManagementPolicy=policy, claims=("data",))
            await simulation.wait_stable(4, image)
        assert simulation.restarts > 16
        assert (simulation.writes["POST pods"], simulation.writes["DELETE pods"]) == (8, 4)
        task.cancel()

    virtual_time.run(main())
