"""Whatever happens and in whatever order it is heard of, no binding of ours gives a node more than it has.

The API server here keeps objects of its own, and informers that hear of them late, twice, or not before a new list.
What a node had, what was on it, and what each pod asks for is kept in plain numbers, and judged by them when a binding
gets through: against what the scheduler could know when it decided. Nobody can know of a pod that another scheduler
has bound a moment ago, or of a node that has just become smaller.
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
from kubeloop.tracing.recording.pod_recorder import NoopRecorder

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

Amounts = Mapping[str, int]
Port = tuple[str, str, int]


def no_room(needed: Amounts, room: Amounts, others: list[Amounts]) -> list[str]:
    """Of what is asked for: what the node has not got for all of them together. Each counts as one of "pods"."""
    return [
        name for name, amount in needed.items() if amount and sum(each.get(name, 0) for each in others) > room[name]
    ]


def clash(one: frozenset[Port], other: frozenset[Port]) -> bool:
    return any(
        (protocol, number) == (their_protocol, their_number) and (ip == their_ip or "" in (ip, their_ip))
        for ip, protocol, number in one
        for their_ip, their_protocol, their_number in other
    )


class LateInformer:
    """A cache that hears of changes when told to. Starts with all there is."""

    def __init__(self, objects: Mapping[str, Any], rng: random.Random) -> None:
        self.store: Store[Any] = Store()
        self._truth = objects
        self._rng = rng
        self._handlers: list[Any] = []
        self._unheard: deque[tuple[Literal["put", "gone"], Any]] = deque()
        self._lost = False
        for key, obj in objects.items():
            self.store.put(key, obj)

    def add_handler(self, handler: Any) -> LateInformer:
        self._handlers.append(handler)
        for obj in self.store.list():
            handler.on_add(obj, True)
        return self

    async def wait_synced(self) -> None: ...

    def changed(self, what: Literal["put", "gone"], obj: Any) -> None:
        if not self._lost:
            self._unheard.append((what, obj))

    def lose(self) -> None:
        """The watch breaks: what was on its way is never heard of, until `list_again`."""
        self._unheard.clear()
        self._lost = True

    def list_again(self) -> None:
        self._unheard.clear()
        self._lost = False
        for key in [key for key in self.store if key not in self._truth]:
            self._gone(self.store[key], unknown=True)
        for key, obj in self._truth.items():
            known = self.store.get(key)
            if known is None or known.metadata.resource_version != obj.metadata.resource_version:
                self._put(obj)

    def hear(self, number: int) -> None:
        for _ in range(min(number, len(self._unheard))):
            what, obj = self._unheard.popleft()
            if what == "put":
                self._put(obj)
            else:
                self._gone(obj, unknown=False)
        if self._rng.random() < 0.1 and len(self.store):
            again = self._rng.choice(self.store.list())
            for handler in self._handlers:
                handler.on_update(again, again)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._rng.choice([0.0, 0.001, 0.02, 0.4, 3.0]))
            if self._lost:
                self.list_again()
            elif self._rng.random() < 0.03:
                self.lose()
            self.hear(self._rng.randrange(1, 12))

    def _put(self, obj: Any) -> None:
        old = self.store.get(obj.key)
        if old is not None and old.metadata.uid != obj.metadata.uid and self._rng.random() < 0.5:
            self._gone(old, unknown=True)  # as some informers tell of it; others tell of an update
            old = None
        self.store.put(obj.key, obj)
        for handler in self._handlers:
            if old is None:
                handler.on_add(obj, False)
            else:
                handler.on_update(old, obj)

    def _gone(self, obj: Any, *, unknown: bool) -> None:
        if self.store.get(obj.key) is not None:
            self.store.remove(obj.key)
            for handler in self._handlers:
                handler.on_delete(obj, unknown)


@dataclass
class Decision:
    """number: in the order of decisions; room, takes: of the node, of the pod, as the scheduler saw them; seen: uid ->
    what each pod there that the scheduler had seen bound was known to take."""

    number: int
    node: str
    room: Amounts
    takes: Amounts
    seen: dict[str, Amounts]


@dataclass
class Server:
    """Holds nodes and pods; answers as a client does, and is the event sink."""

    rng: random.Random
    pods: dict[str, Pod] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    informers: dict[str, LateInformer] = field(default_factory=dict)
    takes: dict[tuple[str, str], Amounts] = field(default_factory=dict)  # (uid, resourceVersion of the pod)
    has: dict[tuple[str, str], Amounts] = field(default_factory=dict)  # (name, resourceVersion of the node)
    ports: dict[str, frozenset[Port]] = field(default_factory=dict)
    raw: dict[str, dict[str, Any]] = field(default_factory=dict)  # the pods as written
    decisions: dict[str, Decision] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    bound_by_us: set[str] = field(default_factory=set)  # UIDs
    wrong: list[str] = field(default_factory=list)  # not raised: the scheduler takes what a client raises for an answer
    under_way: set[asyncio.Task[None]] = field(default_factory=set)
    version: int = 0

    # --- what others do ---------------------------------------------------------------------------------------------

    def put_pod(self, raw: dict[str, Any], takes: Amounts) -> None:
        self.version += 1
        pod = convert(Pod, {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self.version)}})
        self.takes[pod.metadata.uid, str(self.version)] = takes
        self.raw[pod.key] = raw
        self.pods[pod.key] = pod
        self._tell(PODS, "put", pod)

    def change(self, key: str, *, takes: Amounts | None = None, **parts: dict[str, Any]) -> None:
        raw = self.raw[key]
        changed = {**raw, **{name: {**raw.get(name, {}), **values} for name, values in parts.items()}}
        self.put_pod(changed, takes or self.takes_of(self.pods[key]))

    def takes_of(self, pod: Pod) -> Amounts:
        return self.takes[pod.metadata.uid, pod.metadata.resource_version]

    def remove_pod(self, key: str) -> None:
        pod = self.pods.pop(key, None)
        if pod is not None:
            del self.raw[key]
            self._tell(PODS, "gone", pod)

    def put_node(self, name: str, has: Amounts, *, unschedulable: bool) -> None:
        self.version += 1
        allocatable = {"cpu": f"{has['cpu']}m"} | {key: str(has[key]) for key in ("memory", "pods", GPU)}
        metadata = {
            "name": name,
            "uid": f"node-{name}",
            "resourceVersion": str(self.version),
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "ab"[ord(name[-1]) % 2]},
        }
        spec = {"unschedulable": unschedulable}
        node = convert(Node, {"metadata": metadata, "spec": spec, "status": {"allocatable": allocatable}})
        self.has[name, str(self.version)] = has
        self.nodes[name] = node
        self._tell(NODES, "put", node)

    def remove_node(self, name: str) -> None:
        self._tell(NODES, "gone", self.nodes.pop(name))

    def _tell(self, resource: Resource[Any], what: Literal["put", "gone"], obj: Any) -> None:
        if resource.plural in self.informers:
            self.informers[resource.plural].changed(what, obj)

    def later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    # --- judgement --------------------------------------------------------------------------------------------------

    def decided(self, pod: Pod) -> None:
        """The scheduler counts `pod` on its node from now on."""
        node = self.informers[NODES.plural].store.get(pod.spec.node_name)
        there = [
            each
            for each in self.informers[PODS.plural].store.list()
            if each.spec.node_name == pod.spec.node_name and each.status.phase not in ("Succeeded", "Failed")
        ]
        self.decisions[pod.metadata.uid] = Decision(
            number=next(self.numbers),
            node=pod.spec.node_name,
            room=self.has[pod.spec.node_name, node.metadata.resource_version],
            takes=self.takes_of(pod),
            seen={each.metadata.uid: self.takes_of(each) for each in there},
        )

    def judge(self, name: str) -> None:
        """Does the node hold too much, of what was known to the last decision for it?"""
        here = {
            pod.metadata.uid: pod
            for pod in self.pods.values()
            if pod.spec.node_name == name and pod.status.phase not in ("Succeeded", "Failed")
        }
        ours = [uid for uid in here if uid in self.bound_by_us]
        last = max(ours, key=lambda uid: self.decisions[uid].number)
        decision = self.decisions[last]
        counted = [*ours, *(uid for uid in here if uid not in ours and uid in decision.seen)]
        amounts = [decision.seen[uid] if uid in decision.seen else self.decisions[uid].takes for uid in counted]
        lacking = no_room(decision.takes, decision.room, amounts)
        if lacking:
            self.wrong.append(f"{name} has not enough {lacking} for {last}: {decision.room} for {amounts}")
        others = [uid for uid in counted if uid != last and clash(self.ports[last], self.ports[uid])]
        if others:
            self.wrong.append(f"{name}: the ports of {last} are those of {others}; seen were {list(decision.seen)}")

    # --- as a client ------------------------------------------------------------------------------------------------

    def informer(self, resource: Resource[Any], **_: Any) -> Any:
        truth: dict[str, Mapping[str, Any]] = {PODS.plural: self.pods, NODES.plural: self.nodes}
        if resource.plural not in self.informers:
            self.informers[resource.plural] = LateInformer(truth.get(resource.plural, {}), self.rng)
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
        self.judge(node)

    async def create_raw(self, resource: Any, body: Any, namespace: str, *, name: str, **_: Any) -> None:
        key, uid, node = f"{namespace}/{name}", body["metadata"]["uid"], body["target"]["name"]
        await asyncio.sleep(self.rng.choice([0.001, 0.01, 0.5]))
        chance = self.rng.random()
        if chance < 0.06:
            raise ServerUnreachable("no connection", maybe_applied=False)
        if chance < 0.12:
            raise refused(500, "InternalError", "etcdserver: leader changed")
        if chance < 0.18:

            async def arrive() -> None:
                await asyncio.sleep(self.rng.choice([0.1, 2.0]))
                with contextlib.suppress(NotFound, Conflict):
                    self.bind(key, uid, node)

            self.later(arrive())
            raise ServerUnreachable("the request is still on its way", maybe_applied=True)
        self.bind(key, uid, node)
        if chance < 0.24:
            raise ServerUnreachable("the answer was lost", maybe_applied=True)

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
        """It stays on its node for a while."""
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

            self.later(end())


def refused(code: int, reason: str, message: str) -> Exception:
    return from_status(Status(status="Failure", code=code, reason=reason, message=message))


class World:
    """One run: a server, what others do there, and a scheduler that may be started anew."""

    def __init__(self, seed: int, *, class_cache: bool, large: bool) -> None:
        self.rng = random.Random(seed)
        self.server = Server(self.rng)
        self.class_cache = class_cache
        self.names = [f"n{number}" for number in range(20 if large else 5)]
        self.pods_made = 0
        for name in self.names:
            self.put_node(name)

    @contextlib.asynccontextmanager
    async def scheduling(self) -> AsyncIterator[Scheduler]:
        """From a fresh list on."""
        server = self.server
        server.informers.clear()
        scheduler = Scheduler(
            server,  # type: ignore[arg-type]
            server,  # type: ignore[arg-type]
            config=SchedulerConfiguration(profiles=load_configuration(PROFILES).profiles, class_cache=self.class_cache),
            clock=VirtualClock(),
            rng=self.rng,
            recorder=server,
            traces=NoopRecorder(),
        )
        assume = scheduler.cache.assume_pod

        def assuming(pod: Pod, *rest: Any) -> None:
            assume(pod, *rest)
            server.decided(pod)

        scheduler.cache.assume_pod = assuming  # type: ignore[method-assign]
        watching = (server.informers[NODES.plural], server.informers[PODS.plural])
        running = [asyncio.create_task(each.run()) for each in (scheduler, *watching)]
        try:
            yield scheduler
        finally:
            await ended(running)
            while server.under_way:  # a request of an ended process arrives soon, or never
                await asyncio.wait(server.under_way)

    # --- what happens -----------------------------------------------------------------------------------------------

    def put_node(self, name: str) -> None:
        rng = self.rng
        has = {
            "cpu": rng.choice([599, 600, 899, 1200]),
            "memory": rng.choice([1000, 1999, 2000]),
            "pods": rng.choice([2, 3, 4]),
            GPU: rng.choice([0, 1, 2]),
        }
        self.server.put_node(name, has, unschedulable=rng.random() < 0.1)

    def add_pod(self, node: str = "") -> None:
        rng = self.rng
        self.pods_made += 1
        # A name may come again, for another pod.
        name = f"p{self.pods_made}" if rng.random() < 0.8 else f"p{rng.randrange(1, self.pods_made + 1)}"
        if f"default/{name}" in self.server.pods:
            return
        takes = {"cpu": rng.choice([0, 100, 300, 600]), "memory": rng.choice([0, 500, 1000]), "pods": 1}
        takes[GPU] = rng.choice([0, 0, 1])
        ports = frozenset({(rng.choice(["", "10.0.0.1"]), "TCP", 80)} if rng.random() < 0.25 and not node else ())
        uid = f"uid-{self.pods_made}"
        self.server.ports[uid] = ports
        container = {
            "name": "c",
            "resources": {"requests": self._requests(takes)},
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
        self.server.put_pod({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}, takes)

    @staticmethod
    def _requests(takes: Amounts) -> dict[str, str]:
        requests = {"cpu": f"{takes['cpu']}m"} | {key: str(takes[key]) for key in ("memory", GPU)}
        return {key: amount for key, amount in requests.items() if amount not in ("0", "0m")}

    def act(self, what: str) -> None:
        rng, server = self.rng, self.server
        bound = [pod for pod in server.pods.values() if pod.spec.node_name]
        pending = [pod for pod in server.pods.values() if not pod.spec.node_name]
        match what:
            case "pods":
                for _ in range(rng.randrange(1, 8)):
                    self.add_pod()
            case "foreign pod" if server.nodes:
                self.add_pod(rng.choice(list(server.nodes)))
            case "stolen pod" if server.nodes:
                # None with ports: of two pods with the same port on a node, in kube-scheduler the first to go frees it.
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
                takes = {**server.takes_of(pod), "cpu": rng.choice([100, 300, 600])}
                container = server.raw[pod.key]["spec"]["containers"][0]
                changed = {**container, "resources": {"requests": self._requests(takes)}}
                server.change(pod.key, takes=takes, spec={"containers": [changed]})
            case "add node":
                gone = [name for name in self.names if name not in server.nodes]
                if gone:
                    self.put_node(rng.choice(gone))
            case "change node" if server.nodes:
                self.put_node(rng.choice(list(server.nodes)))
            case "delete node" if len(server.nodes) > 2:
                server.remove_node(rng.choice(list(server.nodes)))
            case "break a watch":
                rng.choice([server.informers[NODES.plural], server.informers[PODS.plural]]).lose()

    async def run(self, steps: list[str]) -> None:
        steps = list(steps)
        while True:
            async with self.scheduling() as scheduler:
                while steps and (what := steps.pop()) != "restart":
                    self.act(what)
                    await asyncio.sleep(self.rng.choice([0.0, 0.0, 0.01, 0.3, 2.0]))
                    assert self.server.wrong == []
                if steps:
                    continue
                await asyncio.sleep(60.0)
                for resource in (NODES, PODS):
                    self.server.informers[resource.plural].list_again()
                await asyncio.sleep(60.0)
                assert self.server.wrong == []
                self.check_nothing_is_lost(scheduler)
                return

    def check_nothing_is_lost(self, scheduler: Scheduler) -> None:
        scheduler.cache.check()
        scheduler.queue.check()
        assert scheduler.cache.assumed_pods() == []
        assert scheduler.queue.in_flight_keys() == []
        for pod in self.server.pods.values():
            if not pod.spec.node_name and pod.metadata.deletion_timestamp is None:
                assert scheduler.queue.get(pod.key) is not None, f"{pod.key} is lost"


async def ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for answer in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(answer, BaseException) and not isinstance(answer, asyncio.CancelledError):
            raise answer


STEPS = st.lists(
    st.sampled_from(["pods", "pods", "pods", "foreign pod", "stolen pod", "delete bound", "delete pending", "end"])
    | st.sampled_from(["label", "resize", "add node", "change node", "delete node", "break a watch", "restart"]),
    min_size=20,
    max_size=45,
)


@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(steps=STEPS, seed=st.integers(0, 2**32), class_cache=st.booleans(), large=st.booleans())
def test_no_binding_gives_a_node_more_than_it_has(steps, seed, class_cache, large):
    virtual_time.run(World(seed, class_cache=class_cache, large=large).run(["pods", *steps, "pods"]))
