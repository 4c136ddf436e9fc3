"""No binding of the scheduler overcommits a node, under random events and delayed informers (property test).

Watch events arrive late or only after a new list. Capacities and requests are also stored as plain numbers. Each
successful binding is checked against the state that the scheduler had seen at its decision: it cannot know pods that
another scheduler has just bound, or nodes that have just shrunk.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.storage.store import Change
from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.client.transport import TransportError
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import NODES, PODS, Resource
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config.load import load_configuration
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.scheduler import Scheduler
from kubeloop.testing import virtual_time
from kubeloop.testing.virtual_time import VirtualClock
from support.apiserver.fake_apiserver import Write
from support.apiserver.faulty_transport import SentRequest, injected_error
from support.scheduling.scheduler_cluster import JSON, SchedulerCluster

GPU = "example.com/gpu"
PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: packing
  pluginConfig:
  - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}
  plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}, {name: PodTopologySpread}]}}
"""

Quantities = Mapping[str, int]
Port = tuple[str, str, int]


def insufficient(requested: Quantities, capacity: Quantities, requests: list[Quantities]) -> list[str]:
    """Return the requested resources that `capacity` lacks for all pods together; each pod requests one of "pods"."""
    return [
        name
        for name, quantity in requested.items()
        if quantity and sum(pod_requests.get(name, 0) for pod_requests in requests) > capacity[name]
    ]


def ports_conflict(one: frozenset[Port], other: frozenset[Port]) -> bool:
    return any(
        (protocol, number) == (other_protocol, other_number) and (ip == other_ip or "" in (ip, other_ip))
        for ip, protocol, number in one
        for other_ip, other_protocol, other_number in other
    )


@dataclass
class Decision:
    """A scheduling decision. number: order of decisions. capacity, requests: of node and pod as the scheduler saw them.

    seen: by UID, requests of the pods on the node that the scheduler had seen.
    """

    number: int
    node: str
    capacity: Quantities
    requests: Quantities
    seen: dict[str, Quantities]


class CheckedCluster(SchedulerCluster):
    """A fake API server with kubelets that checks each binding when it takes effect."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(VirtualClock())
        self._rng = rng
        self._now_requested: dict[str, Quantities] = {}  # by UID
        self._requests: dict[tuple[str, str], Quantities] = {}  # (uid, resourceVersion of the pod)
        self._capacity: dict[tuple[str, str], Quantities] = {}  # (name, resourceVersion of the node)
        self.ports: dict[str, frozenset[Port]] = {}  # by UID
        self._decisions: dict[str, Decision] = {}  # by UID
        self._numbers = itertools.count()
        self._bound_by_us: set[str] = set()  # UIDs
        self.overcommits: list[str] = []  # not raised: the scheduler would handle it as an API error
        self.background_tasks: set[asyncio.Task[None]] = set()
        self._unavailable_until: dict[str, float] = {}  # by resource: reads are rejected
        self.server.transport.reject = self._reject
        self.server.store.subscribe(PODS, self._pod_changed)

    # --- changes by other clients and kubelets ----------------------------------------------------------------------

    def put_pod(self, pod: JSON, requests: Quantities) -> None:
        self._now_requested[pod["metadata"]["uid"]] = requests
        self.put(PODS, pod)

    def change(self, key: str, *, requests: Quantities | None = None, **parts: JSON) -> None:
        pod = self.stored_pod(key)
        assert pod is not None
        changed = {**pod, **{name: {**pod.get(name, {}), **values} for name, values in parts.items()}}
        self.put_pod(changed, requests or self._now_requested[pod["metadata"]["uid"]])

    def requests_of(self, pod: Pod) -> Quantities:
        return self._requests[pod.metadata.uid, pod.metadata.resource_version]

    def put_node(self, name: str, capacity: Quantities, *, unschedulable: bool) -> None:
        quantities = {"cpu": f"{capacity['cpu']}m"} | {key: str(capacity[key]) for key in ("memory", "pods")}
        node = self.node(
            name,
            **quantities,
            unschedulable=unschedulable,
            labels={"topology.kubernetes.io/zone": "ab"[ord(name[-1]) % 2]},
            status={"allocatable": {**quantities, GPU: str(capacity[GPU])}},
        )
        self._capacity[name, node.metadata.resource_version] = capacity

    def delete_gracefully(self, key: str) -> None:
        """Delete the pod; a bound pod stays on its node during its grace period."""
        namespace, name = key.split("/")
        self.server.delete(PODS, name, namespace=namespace)

    def _pod_changed(self, change: Change) -> None:
        metadata = change.now.object["metadata"]
        self._requests[metadata["uid"], metadata["resourceVersion"]] = self._now_requested[metadata["uid"]]
        if change.type == "MODIFIED" and "deletionTimestamp" in metadata:
            self.run_in_background(self._end(change.now.key, metadata["uid"]))

    async def _end(self, key: str, uid: str) -> None:
        await asyncio.sleep(self._rng.choice([0.0, 0.3, 5.0]))
        pod = self.stored_pod(key)
        if pod is not None and pod["metadata"]["uid"] == uid:
            self.delete_pod(key)

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.background_tasks.add(task)
        task.add_done_callback(self.background_tasks.discard)

    # --- faults -----------------------------------------------------------------------------------------------------

    def break_watch(self, resource: Resource[Any], seconds: float) -> None:
        """Break the watch, and let the informer list again after some time."""
        transport = self.server.transport
        transport.compacted_version = self.server.store.revision
        transport.watch_delay_seconds = self._rng.choice([0.0, 0.02, 0.5, 3.0])
        transport.break_watches(resource.plural)
        self._unavailable_until[resource.path()] = asyncio.get_running_loop().time() + seconds

    def _reject(self, method: str, path: str) -> StatusError | None:
        unavailable = self._unavailable_until.get(path, 0.0) > asyncio.get_running_loop().time()
        return injected_error(503) if unavailable else None

    async def _before_request(self, request: SentRequest) -> None:
        rng = self._rng
        if request.path.endswith("/status"):
            await asyncio.sleep(rng.choice([0.001, 0.2]))
        if not request.path.endswith("/binding"):
            return
        await asyncio.sleep(rng.choice([0.001, 0.01, 0.5]))
        draw = rng.random()
        if draw < 0.03:
            raise TransportError("no connection", request_sent=False)
        if draw < 0.12:
            raise injected_error(500)
        if draw < 0.18:
            self.run_in_background(self._bind_late(request))
            raise TransportError("the request is delayed", request_sent=True)
        if draw < 0.24:
            self.lost_responses += 1

    async def _bind_late(self, request: SentRequest) -> None:
        await asyncio.sleep(self._rng.choice([0.1, 2.0]))
        status, _ = self.server.api("POST", request.path, request.body)
        if status == 201:
            self._check_binding(msgspec.json.decode(request.body))

    # --- checks -----------------------------------------------------------------------------------------------------

    def _note_write(self, write: Write) -> None:
        if write.subresource == "binding":
            self._check_binding(write.body)

    def record_decision(self, pod: Pod, informers: InformerFactory) -> None:
        """Record the state that the scheduler had seen when it assumed `pod` on its node."""
        node = informers.informer(NODES).store[pod.spec.node_name]
        existing = [
            other
            for other in informers.informer(PODS).store.list()
            if other.spec.node_name == pod.spec.node_name and other.status.phase not in ("Succeeded", "Failed")
        ]
        self._decisions[pod.metadata.uid] = Decision(
            number=next(self._numbers),
            node=pod.spec.node_name,
            capacity=self._capacity[pod.spec.node_name, node.metadata.resource_version],
            requests=self.requests_of(pod),
            seen={other.metadata.uid: self.requests_of(other) for other in existing},
        )

    def _check_binding(self, binding: JSON) -> None:
        """Append to `overcommits` if the pods known at the last decision for the node exceed its capacity."""
        self._bound_by_us.add(binding["metadata"]["uid"])
        name = binding["target"]["name"]
        uids = {
            pod.metadata.uid
            for pod in self.pods()
            if pod.spec.node_name == name and pod.status.phase not in ("Succeeded", "Failed")
        }
        ours = uids & self._bound_by_us
        last = max(ours, key=lambda uid: self._decisions[uid].number)
        decision = self._decisions[last]
        counted = [*ours, *(uid for uid in uids - ours if uid in decision.seen)]
        counted_requests = [
            decision.seen[uid] if uid in decision.seen else self._decisions[uid].requests for uid in counted
        ]
        missing = insufficient(decision.requests, decision.capacity, counted_requests)
        if missing:
            self.overcommits.append(f"{name} lacks {missing} for {last}: {decision.capacity} for {counted_requests}")
        others = [uid for uid in counted if uid != last and ports_conflict(self.ports[last], self.ports[uid])]
        if others:
            self.overcommits.append(
                f"{name}: the ports of {last} are those of {others}; seen were {list(decision.seen)}"
            )


class RandomCluster:
    """One run: a fake API server, random changes by other clients, and a scheduler that may be restarted."""

    def __init__(self, seed: int, *, class_cache: bool, large: bool) -> None:
        self.rng = random.Random(seed)
        self.cluster = CheckedCluster(self.rng)
        self.class_cache = class_cache
        self.names = [f"n{number}" for number in range(20 if large else 5)]
        self.pods_created = 0
        for name in self.names:
            self.put_node(name)

    @contextlib.asynccontextmanager
    async def scheduling(self) -> AsyncIterator[Scheduler]:
        """Run a scheduler that starts with a new list of all objects."""
        cluster, rng = self.cluster, self.rng
        cluster.server.transport.watch_delay_seconds = rng.choice([0.0, 0.02, 0.5, 3.0])
        self.informers = InformerFactory(cluster.server.client, clock=cluster.clock, rng=rng)
        config = SchedulerConfiguration(profiles=load_configuration(PROFILES).profiles, class_cache=self.class_cache)
        scheduler = cluster.scheduler(config, self.informers, rng=rng)
        assume = scheduler.cache.assume_pod

        def assume_and_record(info: PodInfo) -> None:
            assume(info)
            cluster.record_decision(info.pod, self.informers)

        scheduler.cache.assume_pod = assume_and_record  # type: ignore[method-assign]
        running = [asyncio.create_task(part) for part in (scheduler.run(), self.informers.run(), self._notify_again())]
        try:
            yield scheduler
        finally:
            await stop_tasks(running)
            while cluster.background_tasks:  # requests of the stopped process arrive late
                await asyncio.wait(cluster.background_tasks)

    async def _notify_again(self) -> None:
        """Notify the scheduler of objects that have not changed, as resyncs do."""
        while True:
            await asyncio.sleep(self.rng.choice([0.2, 4.0]))
            for resource in (NODES, PODS):
                informer = self.informers.informer(resource)
                if objects := informer.store.list():
                    obj = self.rng.choice(objects)
                    for registration in informer._registrations:
                        registration.handler.on_update(obj, obj)

    # --- random changes ---------------------------------------------------------------------------------------------

    def put_node(self, name: str) -> None:
        rng = self.rng
        node_capacity = {
            "cpu": rng.choice([599, 600, 899, 1200]),
            "memory": rng.choice([1000, 1999, 2000]),
            "pods": rng.choice([2, 3, 4]),
            GPU: rng.choice([0, 1, 2]),
        }
        self.cluster.put_node(name, node_capacity, unschedulable=rng.random() < 0.1)

    def add_pod(self, node: str = "") -> None:
        rng = self.rng
        self.pods_created += 1
        # Names are reused for other pods.
        name = f"p{self.pods_created}" if rng.random() < 0.8 else f"p{rng.randrange(1, self.pods_created + 1)}"
        if self.cluster.stored_pod(f"default/{name}") is not None:
            return
        requests = {"cpu": rng.choice([0, 100, 300, 600]), "memory": rng.choice([0, 500, 1000]), "pods": 1}
        requests[GPU] = rng.choice([0, 0, 1])
        ports = frozenset({(rng.choice(["", "10.0.0.1"]), "TCP", 80)} if rng.random() < 0.25 and not node else ())
        uid = f"uid-{self.pods_created}"
        self.cluster.ports[uid] = ports
        container = {
            "name": "c",
            "image": "i",
            "resources": {"requests": self._requests(requests)},
            "ports": [
                {"containerPort": 80, "hostPort": number, "hostIP": ip, "protocol": protocol}
                for ip, protocol, number in ports
            ],
        }
        spec: dict[str, Any] = {
            "schedulerName": rng.choice(["default-scheduler", "packing"]),
            "priority": rng.choice([0, 0, 10]),
            "containers": [container],
            "terminationGracePeriodSeconds": 30,
            **({"nodeName": node} if node else {}),
        }
        metadata = {"name": name, "namespace": "default", "uid": uid, "labels": {"app": rng.choice("xy")}}
        self.cluster.put_pod({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}, requests)

    @staticmethod
    def _requests(requests: Quantities) -> dict[str, str]:
        quantities = {"cpu": f"{requests['cpu']}m"} | {key: str(requests[key]) for key in ("memory", GPU)}
        return {key: quantity for key, quantity in quantities.items() if quantity not in ("0", "0m")}

    def act(self, action: str) -> None:
        rng, cluster = self.rng, self.cluster
        pods, node_names = cluster.pods(), [node.metadata.name for node in cluster.nodes()]
        bound = [pod for pod in pods if pod.spec.node_name]
        pending = [pod for pod in pods if not pod.spec.node_name]
        match action:
            case "pods":
                for _ in range(rng.randrange(1, 8)):
                    self.add_pod()
            case "foreign pod" if node_names:
                self.add_pod(rng.choice(node_names))
            case "bound by another scheduler" if node_names:
                # Only pods without ports: if two pods have the same port, the first deletion frees it (as upstream).
                others = [pod for pod in pending if not cluster.ports[pod.metadata.uid]]
                if others:
                    cluster.change(rng.choice(others).key, spec={"nodeName": rng.choice(node_names)})
            case "delete bound" if bound:
                cluster.delete_gracefully(rng.choice(bound).key)
            case "delete pending" if pending:
                cluster.delete_pod(rng.choice(pending).key)
            case "end" if bound:
                cluster.change(rng.choice(bound).key, status={"phase": rng.choice(["Succeeded", "Failed"])})
            case "label" if pods:
                cluster.change(rng.choice(pods).key, metadata={"labels": {"app": rng.choice("xyz")}})
            case "resize" if bound:
                pod = rng.choice(bound)
                requests = {**cluster.requests_of(pod), "cpu": rng.choice([100, 300, 600])}
                (container,) = cluster.stored_pod(pod.key)["spec"]["containers"]
                container = {**container, "resources": {"requests": self._requests(requests)}}
                cluster.change(pod.key, requests=requests, spec={"containers": [container]})
            case "add node":
                missing_names = [name for name in self.names if name not in node_names]
                if missing_names:
                    self.put_node(rng.choice(missing_names))
            case "change node" if node_names:
                self.put_node(rng.choice(node_names))
            case "delete node" if len(node_names) > 2:
                cluster.server.store.delete(NODES, "", rng.choice(node_names))
            case "break a watch":
                cluster.break_watch(rng.choice([NODES, PODS]), rng.choice([0.0, 0.4, 3.0]))

    async def run(self, steps: list[str]) -> None:
        steps = list(steps)
        while True:
            async with self.scheduling() as scheduler:
                while steps and (action := steps.pop()) != "restart":
                    self.act(action)
                    await asyncio.sleep(self.rng.choice([0.0, 0.0, 0.01, 0.3, 2.0]))
                    assert self.cluster.overcommits == []
                if steps:
                    continue
                await asyncio.sleep(60.0)
                for resource in (NODES, PODS):
                    self.cluster.break_watch(resource, 0.0)
                await asyncio.sleep(60.0)
                assert self.cluster.overcommits == []
                self.check_no_pod_is_lost(scheduler)
                return

    def check_no_pod_is_lost(self, scheduler: Scheduler) -> None:
        scheduler.cache.check()
        scheduler.queue.check()
        assert scheduler.cache.assumed_pods() == []
        assert scheduler.queue.in_flight.keys() == []
        for pod in self.cluster.pods():
            if not pod.spec.node_name and pod.metadata.deletion_timestamp is None:
                assert scheduler.queue.get(pod.key) is not None, f"{pod.key} is lost"


async def stop_tasks(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result


STEPS = st.lists(
    st.sampled_from(
        ["pods", "pods", "pods", "foreign pod", "bound by another scheduler", "delete bound", "delete pending", "end"]
    )
    | st.sampled_from(["label", "resize", "add node", "change node", "delete node", "break a watch", "restart"]),
    min_size=20,
    max_size=45,
)


@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(steps=STEPS, seed=st.integers(0, 2**32), class_cache=st.booleans(), large=st.booleans())
def test_no_binding_overcommits_a_node(steps, seed, class_cache, large):
    async def main() -> None:
        await RandomCluster(seed, class_cache=class_cache, large=large).run(["pods", *steps, "pods"])

    virtual_time.run(main())
