"""No binding of the scheduler overcommits a node, under random events and delayed informers (property test).

The fake API server stores its own objects; informers deliver events late, twice, or only after a new list. Capacities
and requests are also stored as plain numbers. Each successful binding is checked against the state that the scheduler
had seen at its decision: it cannot know pods that another scheduler has just bound, or nodes that have just shrunk.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kubeloop.informers.store import Store
from kubeloop.kube.errors import Conflict, NotFound, ServerUnreachable, from_status
from kubeloop.kube.objects.api_types import Node, Pod, Status, convert
from kubeloop.kube.objects.resources import NODES, PODS, Resource
from kubeloop.scheduler.config.load import load_configuration
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.scheduler import Scheduler
from kubeloop.testing import virtual_time
from kubeloop.testing.virtual_time import VirtualClock
from support.scheduler_cluster import new_scheduler

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


class DelayedInformer:
    """An informer that delivers events with random delays. It starts with all objects."""

    def __init__(self, objects: Mapping[str, Any], rng: random.Random) -> None:
        self.store: Store[Any] = Store()
        self._server_objects = objects
        self._rng = rng
        self._handlers: list[Any] = []
        self._undelivered: deque[tuple[Literal["put", "deleted"], Any]] = deque()
        self._watch_broken = False
        for key, obj in objects.items():
            self.store.put(key, obj)

    def add_handler(self, handler: Any) -> DelayedInformer:
        self._handlers.append(handler)
        for obj in self.store.list():
            handler.on_add(obj, True)
        return self

    async def wait_synced(self) -> None: ...

    def changed(self, action: Literal["put", "deleted"], obj: Any) -> None:
        if not self._watch_broken:
            self._undelivered.append((action, obj))

    def break_watch(self) -> None:
        """Drop undelivered events and receive no more until `list_again`."""
        self._undelivered.clear()
        self._watch_broken = True

    def list_again(self) -> None:
        self._undelivered.clear()
        self._watch_broken = False
        for key in [key for key in self.store if key not in self._server_objects]:
            self._deliver_delete(self.store[key], unknown=True)
        for key, obj in self._server_objects.items():
            stored = self.store.get(key)
            if stored is None or stored.metadata.resource_version != obj.metadata.resource_version:
                self._deliver_put(obj)

    def deliver(self, number: int) -> None:
        for _ in range(min(number, len(self._undelivered))):
            action, obj = self._undelivered.popleft()
            if action == "put":
                self._deliver_put(obj)
            else:
                self._deliver_delete(obj, unknown=False)
        if self._rng.random() < 0.1 and len(self.store):
            again = self._rng.choice(self.store.list())
            for handler in self._handlers:
                handler.on_update(again, again)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._rng.choice([0.0, 0.001, 0.02, 0.4, 3.0]))
            if self._watch_broken:
                self.list_again()
            elif self._rng.random() < 0.03:
                self.break_watch()
            self.deliver(self._rng.randrange(1, 12))

    def _deliver_put(self, obj: Any) -> None:
        old = self.store.get(obj.key)
        if old is not None and old.metadata.uid != obj.metadata.uid and self._rng.random() < 0.5:
            self._deliver_delete(old, unknown=True)  # some informers deliver a delete event, others an update
            old = None
        self.store.put(obj.key, obj)
        for handler in self._handlers:
            if old is None:
                handler.on_add(obj, False)
            else:
                handler.on_update(old, obj)

    def _deliver_delete(self, obj: Any, *, unknown: bool) -> None:
        if self.store.get(obj.key) is not None:
            self.store.remove(obj.key)
            for handler in self._handlers:
                handler.on_delete(obj, unknown)


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


@dataclass
class Server:
    """A fake API server with nodes and pods; also the scheduler's client and event sink."""

    rng: random.Random
    pods: dict[str, Pod] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    informers: dict[str, DelayedInformer] = field(default_factory=dict)
    requests: dict[tuple[str, str], Quantities] = field(default_factory=dict)  # (uid, resourceVersion of the pod)
    node_capacity: dict[tuple[str, str], Quantities] = field(
        default_factory=dict
    )  # (name, resourceVersion of the node)
    ports: dict[str, frozenset[Port]] = field(default_factory=dict)
    raw: dict[str, dict[str, Any]] = field(default_factory=dict)  # the pods as written
    decisions: dict[str, Decision] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    bound_by_us: set[str] = field(default_factory=set)  # UIDs
    overcommits: list[str] = field(default_factory=list)  # not raised: the scheduler would handle it as an API error
    background_tasks: set[asyncio.Task[None]] = field(default_factory=set)
    version: int = 0

    # --- changes by other clients -----------------------------------------------------------------------------------

    def put_pod(self, raw: dict[str, Any], requests: Quantities) -> None:
        self.version += 1
        pod = convert(Pod, {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self.version)}})
        self.requests[pod.metadata.uid, str(self.version)] = requests
        self.raw[pod.key] = raw
        self.pods[pod.key] = pod
        self._notify(PODS, "put", pod)

    def change(self, key: str, *, requests: Quantities | None = None, **parts: dict[str, Any]) -> None:
        raw = self.raw[key]
        changed = {**raw, **{name: {**raw.get(name, {}), **values} for name, values in parts.items()}}
        self.put_pod(changed, requests or self.requests_of(self.pods[key]))

    def requests_of(self, pod: Pod) -> Quantities:
        return self.requests[pod.metadata.uid, pod.metadata.resource_version]

    def remove_pod(self, key: str) -> None:
        pod = self.pods.pop(key, None)
        if pod is not None:
            del self.raw[key]
            self._notify(PODS, "deleted", pod)

    def put_node(self, name: str, node_capacity: Quantities, *, unschedulable: bool) -> None:
        self.version += 1
        allocatable = {"cpu": f"{node_capacity['cpu']}m"} | {
            key: str(node_capacity[key]) for key in ("memory", "pods", GPU)
        }
        metadata = {
            "name": name,
            "uid": f"node-{name}",
            "resourceVersion": str(self.version),
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "ab"[ord(name[-1]) % 2]},
        }
        spec = {"unschedulable": unschedulable}
        node = convert(Node, {"metadata": metadata, "spec": spec, "status": {"allocatable": allocatable}})
        self.node_capacity[name, str(self.version)] = node_capacity
        self.nodes[name] = node
        self._notify(NODES, "put", node)

    def remove_node(self, name: str) -> None:
        self._notify(NODES, "deleted", self.nodes.pop(name))

    def _notify(self, resource: Resource[Any], action: Literal["put", "deleted"], obj: Any) -> None:
        if resource.plural in self.informers:
            self.informers[resource.plural].changed(action, obj)

    def run_in_background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.background_tasks.add(task)
        task.add_done_callback(self.background_tasks.discard)

    # --- checks -----------------------------------------------------------------------------------------------------

    def record_decision(self, pod: Pod) -> None:
        """Record the state that the scheduler had seen when it assumed `pod` on its node."""
        node = self.informers[NODES.plural].store.get(pod.spec.node_name)
        existing = [
            other
            for other in self.informers[PODS.plural].store.list()
            if other.spec.node_name == pod.spec.node_name and other.status.phase not in ("Succeeded", "Failed")
        ]
        self.decisions[pod.metadata.uid] = Decision(
            number=next(self.numbers),
            node=pod.spec.node_name,
            capacity=self.node_capacity[pod.spec.node_name, node.metadata.resource_version],
            requests=self.requests_of(pod),
            seen={other.metadata.uid: self.requests_of(other) for other in existing},
        )

    def check_node(self, name: str) -> None:
        """Append to `overcommits` if the pods known at the last decision for the node exceed its capacity."""
        pods_on_node = {
            pod.metadata.uid: pod
            for pod in self.pods.values()
            if pod.spec.node_name == name and pod.status.phase not in ("Succeeded", "Failed")
        }
        ours = [uid for uid in pods_on_node if uid in self.bound_by_us]
        last = max(ours, key=lambda uid: self.decisions[uid].number)
        decision = self.decisions[last]
        counted = [*ours, *(uid for uid in pods_on_node if uid not in ours and uid in decision.seen)]
        counted_requests = [
            decision.seen[uid] if uid in decision.seen else self.decisions[uid].requests for uid in counted
        ]
        missing = insufficient(decision.requests, decision.capacity, counted_requests)
        if missing:
            self.overcommits.append(f"{name} lacks {missing} for {last}: {decision.capacity} for {counted_requests}")
        others = [uid for uid in counted if uid != last and ports_conflict(self.ports[last], self.ports[uid])]
        if others:
            self.overcommits.append(
                f"{name}: the ports of {last} are those of {others}; seen were {list(decision.seen)}"
            )

    # --- client -----------------------------------------------------------------------------------------------------

    def informer(self, resource: Resource[Any], **_: Any) -> Any:
        server_objects: dict[str, Mapping[str, Any]] = {PODS.plural: self.pods, NODES.plural: self.nodes}
        if resource.plural not in self.informers:
            self.informers[resource.plural] = DelayedInformer(server_objects.get(resource.plural, {}), self.rng)
        return self.informers[resource.plural]

    def event(self, *_: Any) -> None: ...

    def bind(self, key: str, uid: str, node: str) -> None:
        pod = self.pods.get(key)
        if pod is None:
            raise refused(404, "NotFound", f"no pod {key}")
        if pod.metadata.uid != uid or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            raise refused(409, "Conflict", f"{key} is another pod, bound, or being deleted")
        self.change(key, spec={"nodeName": node})
        self.bound_by_us.add(uid)
        self.check_node(node)

    async def create_raw(self, resource: Any, body: Any, namespace: str, *, name: str, **_: Any) -> None:
        key, uid, node = f"{namespace}/{name}", body["metadata"]["uid"], body["target"]["name"]
        await asyncio.sleep(self.rng.choice([0.001, 0.01, 0.5]))
        draw = self.rng.random()
        if draw < 0.06:
            raise ServerUnreachable("no connection", maybe_applied=False)
        if draw < 0.12:
            raise refused(500, "InternalError", "etcdserver: leader changed")
        if draw < 0.18:

            async def arrive() -> None:
                await asyncio.sleep(self.rng.choice([0.1, 2.0]))
                with contextlib.suppress(NotFound, Conflict):
                    self.bind(key, uid, node)

            self.run_in_background(arrive())
            raise ServerUnreachable("the request is delayed", maybe_applied=True)
        self.bind(key, uid, node)
        if draw < 0.24:
            raise ServerUnreachable("the response was lost", maybe_applied=True)

    async def get(self, resource: Any, name: str, namespace: str, **_: Any) -> Pod:
        await asyncio.sleep(0.001)
        if f"{namespace}/{name}" not in self.pods:
            raise refused(404, "NotFound", f"no pod {name}")
        return self.pods[f"{namespace}/{name}"]

    async def patch(self, resource: Any, name: str, body: Any, patch_type: Any, namespace: str, **_: Any) -> None:
        await asyncio.sleep(self.rng.choice([0.001, 0.2]))
        pod = self.pods.get(f"{namespace}/{name}")
        if pod is None or pod.metadata.uid != body["metadata"]["uid"]:
            raise refused(404, "NotFound", f"no pod {name}")
        status = {key: value for key, value in body["status"].items() if value is not None}
        self.change(
            pod.key, status={"nominatedNodeName": "", **status} if "nominatedNodeName" in body["status"] else status
        )

    async def delete(self, resource: Any, name: str, namespace: str, *, precondition_uid: str, **_: Any) -> None:
        await asyncio.sleep(0.001)
        self.delete_gracefully(f"{namespace}/{name}", precondition_uid)

    def delete_gracefully(self, key: str, uid: str) -> None:
        """Delete the pod; a bound pod stays on its node during its grace period."""
        pod = self.pods.get(key)
        if pod is None or pod.metadata.uid != uid:
            raise refused(404, "NotFound", f"no pod {key}")
        if not pod.spec.node_name:
            self.remove_pod(key)
        elif pod.metadata.deletion_timestamp is None:
            self.change(key, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})

            async def end() -> None:
                await asyncio.sleep(self.rng.choice([0.0, 0.3, 5.0]))
                if key in self.pods and self.pods[key].metadata.uid == uid:
                    self.remove_pod(key)

            self.run_in_background(end())


def refused(code: int, reason: str, message: str) -> Exception:
    return from_status(Status(status="Failure", code=code, reason=reason, message=message))


class RandomCluster:
    """One run: a fake API server, random changes by other clients, and a scheduler that may be restarted."""

    def __init__(self, seed: int, *, class_cache: bool, large: bool) -> None:
        self.rng = random.Random(seed)
        self.server = Server(self.rng)
        self.class_cache = class_cache
        self.names = [f"n{number}" for number in range(20 if large else 5)]
        self.pods_created = 0
        for name in self.names:
            self.put_node(name)

    @contextlib.asynccontextmanager
    async def scheduling(self) -> AsyncIterator[Scheduler]:
        """Run a scheduler that starts with a new list of all objects."""
        server = self.server
        server.informers.clear()
        config = SchedulerConfiguration(profiles=load_configuration(PROFILES).profiles, class_cache=self.class_cache)
        scheduler = new_scheduler(server, config, VirtualClock(), rng=self.rng)
        assume = scheduler.cache.assume_pod

        def assume_and_record(pod: Pod, *rest: Any) -> None:
            assume(pod, *rest)
            server.record_decision(pod)

        scheduler.cache.assume_pod = assume_and_record  # type: ignore[method-assign]
        informers = (server.informers[NODES.plural], server.informers[PODS.plural])
        running = [asyncio.create_task(component.run()) for component in (scheduler, *informers)]
        try:
            yield scheduler
        finally:
            await stop_tasks(running)
            while server.background_tasks:  # requests of the stopped process arrive late
                await asyncio.wait(server.background_tasks)

    # --- random changes ---------------------------------------------------------------------------------------------

    def put_node(self, name: str) -> None:
        rng = self.rng
        node_capacity = {
            "cpu": rng.choice([599, 600, 899, 1200]),
            "memory": rng.choice([1000, 1999, 2000]),
            "pods": rng.choice([2, 3, 4]),
            GPU: rng.choice([0, 1, 2]),
        }
        self.server.put_node(name, node_capacity, unschedulable=rng.random() < 0.1)

    def add_pod(self, node: str = "") -> None:
        rng = self.rng
        self.pods_created += 1
        # Names are reused for other pods.
        name = f"p{self.pods_created}" if rng.random() < 0.8 else f"p{rng.randrange(1, self.pods_created + 1)}"
        if f"default/{name}" in self.server.pods:
            return
        requests = {"cpu": rng.choice([0, 100, 300, 600]), "memory": rng.choice([0, 500, 1000]), "pods": 1}
        requests[GPU] = rng.choice([0, 0, 1])
        ports = frozenset({(rng.choice(["", "10.0.0.1"]), "TCP", 80)} if rng.random() < 0.25 and not node else ())
        uid = f"uid-{self.pods_created}"
        self.server.ports[uid] = ports
        container = {
            "name": "c",
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
            "nodeName": node,
        }
        metadata = {"name": name, "namespace": "default", "uid": uid, "labels": {"app": rng.choice("xy")}}
        self.server.put_pod({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}, requests)

    @staticmethod
    def _requests(requests: Quantities) -> dict[str, str]:
        quantities = {"cpu": f"{requests['cpu']}m"} | {key: str(requests[key]) for key in ("memory", GPU)}
        return {key: quantity for key, quantity in quantities.items() if quantity not in ("0", "0m")}

    def act(self, action: str) -> None:
        rng, server = self.rng, self.server
        bound = [pod for pod in server.pods.values() if pod.spec.node_name]
        pending = [pod for pod in server.pods.values() if not pod.spec.node_name]
        match action:
            case "pods":
                for _ in range(rng.randrange(1, 8)):
                    self.add_pod()
            case "foreign pod" if server.nodes:
                self.add_pod(rng.choice(list(server.nodes)))
            case "bound by another scheduler" if server.nodes:
                # Only pods without ports: if two pods have the same port, the first deletion frees it (as upstream).
                others = [pod for pod in pending if not server.ports[pod.metadata.uid]]
                if others:
                    server.change(rng.choice(others).key, spec={"nodeName": rng.choice(list(server.nodes))})
            case "delete bound" if bound:
                pod = rng.choice(bound)
                server.delete_gracefully(pod.key, pod.metadata.uid)
            case "delete pending" if pending:
                server.remove_pod(rng.choice(pending).key)
            case "end" if bound:
                server.change(rng.choice(bound).key, status={"phase": rng.choice(["Succeeded", "Failed"])})
            case "label" if server.pods:
                server.change(rng.choice(list(server.pods)), metadata={"labels": {"app": rng.choice("xyz")}})
            case "resize" if bound:
                pod = rng.choice(bound)
                requests = {**server.requests_of(pod), "cpu": rng.choice([100, 300, 600])}
                container = server.raw[pod.key]["spec"]["containers"][0]
                changed = {**container, "resources": {"requests": self._requests(requests)}}
                server.change(pod.key, requests=requests, spec={"containers": [changed]})
            case "add node":
                missing_names = [name for name in self.names if name not in server.nodes]
                if missing_names:
                    self.put_node(rng.choice(missing_names))
            case "change node" if server.nodes:
                self.put_node(rng.choice(list(server.nodes)))
            case "delete node" if len(server.nodes) > 2:
                server.remove_node(rng.choice(list(server.nodes)))
            case "break a watch":
                rng.choice([server.informers[NODES.plural], server.informers[PODS.plural]]).break_watch()

    async def run(self, steps: list[str]) -> None:
        steps = list(steps)
        while True:
            async with self.scheduling() as scheduler:
                while steps and (action := steps.pop()) != "restart":
                    self.act(action)
                    await asyncio.sleep(self.rng.choice([0.0, 0.0, 0.01, 0.3, 2.0]))
                    assert self.server.overcommits == []
                if steps:
                    continue
                await asyncio.sleep(60.0)
                for resource in (NODES, PODS):
                    self.server.informers[resource.plural].list_again()
                await asyncio.sleep(60.0)
                assert self.server.overcommits == []
                self.check_no_pod_is_lost(scheduler)
                return

    def check_no_pod_is_lost(self, scheduler: Scheduler) -> None:
        scheduler.cache.check()
        scheduler.queue.check()
        assert scheduler.cache.assumed_pods() == []
        assert scheduler.queue.in_flight_keys() == []
        for pod in self.server.pods.values():
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
    virtual_time.run(RandomCluster(seed, class_cache=class_cache, large=large).run(["pods", *steps, "pods"]))
