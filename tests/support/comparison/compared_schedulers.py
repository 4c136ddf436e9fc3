"""kube-scheduler and kubeloop's scheduler on the same cases of pod groups, each alone on its own kube-apiserver."""

from __future__ import annotations

import json
import re
import time
import urllib.error
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from support.comparison.pod_group_cases import MAX_NODES, PRIORITIES, SCHEDULER, PodGroupCase, node_body
from support.comparison.real_apiserver import RealApiServer, real_apiserver
from support.processes.cli_processes import Kubeloop

JSON = dict[str, Any]
CASES_PER_BATCH = 14
NODES = CASES_PER_BATCH * MAX_NODES + 1
QUIET_SECONDS, TIMEOUT_SECONDS = 3.5, 90.0  # longer than the longest backoff
GROUP_DELAY_SECONDS = 0.5  # in which a scheduler sees the pods of a group
_GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/{}/podgroups"
_BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"
_PODS = "/api/v1/namespaces/{}/pods"
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def scheduler_configuration(kubeconfig: Path) -> JSON:
    """Return a configuration whose scores depend on preferred nodes only, and with short backoffs."""
    scores = {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeAffinity", "weight": 1}]}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "profiles": [{"schedulerName": SCHEDULER, "plugins": {"score": scores}}],
    }


class RunScheduler(Protocol):
    def __call__(self, server: RealApiServer, config: Path, feature_gates: str) -> Any:
        """Return a context manager that runs a scheduler."""


@contextmanager
def kube_scheduler(server: RealApiServer, config: Path, feature_gates: str) -> Iterator[None]:
    process = server.start_component("kube-scheduler", f"--config={config}", f"--feature-gates={feature_gates}")
    try:
        yield
    finally:
        server.stop_component(process)


@contextmanager
def kubeloop_scheduler(server: RealApiServer, config: Path, feature_gates: str) -> Iterator[None]:
    arguments = (
        "--controllers=scheduler",
        f"--config={config}",
        f"--feature-gates={feature_gates}",
        "--trace-journal=",
    )
    with Kubeloop(server.folder).running("run", f"--kubeconfig={server.kubeconfig}", *arguments) as process:
        yield
        assert process.process.poll() is None, "".join(process.lines)
    (server.folder / "kubeloop.log").write_text("".join(process.lines))


def outcomes(
    folder: Path,
    run: RunScheduler,
    gates: Sequence[str],
    batches: Iterable[Sequence[PodGroupCase]],
    async_api_calls: bool,
) -> dict[str, JSON]:
    """Return the outcome of each case by its name. Each batch is scheduled at once, by a new scheduler.

    An outcome has several parts; the value of each is a list of alternatives. Two outcomes agree in a part if they have
    any alternative in common: all messages that a pod had, or the last ones, as some depend on how far an eviction is.
    There are NODES nodes in each batch, as messages count them. async_api_calls: the scheduler's feature gate.
    """
    server_gates = ",".join(f"{gate}=true" for gate in gates)
    # kubeloop tries no group before its backoff has expired; kube-scheduler only without this gate.
    feature_gates = f"{server_gates},SchedulerPopFromBackoffQ=false"
    if async_api_calls:
        feature_gates += ",SchedulerAsyncAPICalls=true"
    flags = {"feature-gates": server_gates, "runtime-config": "scheduling.k8s.io/v1alpha2=true"}
    with real_apiserver(folder, flags) as server:
        config = folder / "scheduler.yaml"
        config.write_text(json.dumps(scheduler_configuration(server.kubeconfig)))
        for name, value in PRIORITIES.items():
            policy = "Never" if name.endswith("-never") else "PreemptLowerPriority"
            body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
            server.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
        found: dict[str, JSON] = {}
        for cases in batches:
            batch = _Batch(server, cases)
            batch.create()
            with run(server, config, feature_gates):
                batch.wait_for_start()
                batch.settle()
                first = batch.outcomes()
                for number in range(1, max(len(case.waves) for case in cases)):
                    batch.create_wave(number)
                    batch.settle()
            last = batch.outcomes()
            for case in cases:
                found[case.name] = {f"first {key}": value for key, value in first[case.name].items()}
                found[case.name] |= {f"last {key}": value for key, value in last[case.name].items()}
            batch.delete()
        return found


class _Batch:
    """Cases in one namespace, which are scheduled at once."""

    def __init__(self, server: RealApiServer, cases: Sequence[PodGroupCase]) -> None:
        self._server, self._cases = server, cases
        self._namespace = cases[0].namespace
        self._messages: dict[str, Messages] = {}  # by name of the group or single pod
        self._versions: dict[str, str] = {}  # resourceVersion up to which the objects of a path were read

    def _path(self, template: str, name: str = "") -> str:
        return template.format(self._namespace) + (f"/{name}" if name else "")

    def _each(self, function: Any, items: Iterable[Any]) -> None:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(function, items))

    def create(self) -> None:
        created = self._server.request("POST", "/api/v1/namespaces", {"metadata": {"name": self._namespace}})
        start_version = created["metadata"]["resourceVersion"]
        self._versions = {self._path(template): start_version for template in (_PODS, _GROUPS)}
        nodes = [node for case in self._cases for node in case.nodes]
        nodes += [node_body(f"other-{index}", 1, case="other") for index in range(len(nodes), NODES)]
        self._nodes = [node["metadata"]["name"] for node in nodes]
        self._each(lambda node: self._server.request("POST", "/api/v1/nodes", node), nodes)
        self._each(self._create_case, self._cases)
        self.create_wave(0)

    def _create_case(self, case: PodGroupCase) -> None:
        post = self._server.request
        for group in case.groups:
            post("POST", self._path(_GROUPS), group)
        for budget in case.budgets:
            created = post("POST", self._path(_BUDGETS), budget)
            body = created | {"status": budget["status"]}
            post("PUT", self._path(_BUDGETS, budget["metadata"]["name"]) + "/status", body)
        for pod in case.placed:
            created = post("POST", self._path(_PODS), pod)
            body = created | {"status": pod["status"]}
            post("PUT", self._path(_PODS, pod["metadata"]["name"]) + "/status", body)

    def create_wave(self, number: int) -> None:
        """Apply this wave of each case that has so many."""
        waves = [case.waves[number] for case in self._cases if number < len(case.waves)]
        for pod in (pod for wave in waves for pod in wave.pods):
            self._server.request("POST", self._path(_PODS), pod)
        time.sleep(GROUP_DELAY_SECONDS)
        for group in (group for wave in waves for group in wave.groups):
            self._server.request("POST", self._path(_GROUPS), group)
        existing = self._pods()
        for name in (name for wave in waves for name in wave.deleted if name in existing):
            self._delete_pod(name)
        for name in (name for wave in waves for name in wave.ungated if name in existing):
            body = {"spec": {"schedulingGates": None}}
            content_type = "application/merge-patch+json"
            self._server.request("PATCH", self._path(_PODS, name), body, content_type=content_type)

    def _delete_pod(self, name: str) -> None:
        """Delete a pod, unless it was preempted meanwhile."""
        try:
            self._server.request("DELETE", self._path(_PODS, name), {"gracePeriodSeconds": 0})
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise

    def _items(self, template: str) -> dict[str, JSON]:
        items = self._server.request("GET", self._path(template))["items"]
        return {item["metadata"]["name"]: item for item in items}

    def _pods(self) -> dict[str, JSON]:
        return self._items(_PODS)

    def wait_for_start(self) -> None:
        """Wait until the scheduler has bound a pod that it schedules after all others."""
        spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": SCHEDULER, "priorityClassName": "p0"}
        spec |= {"nodeSelector": {"case": "other"}, "tolerations": [{"operator": "Exists"}]}
        self._server.request("POST", self._path(_PODS), {"metadata": {"name": "last"}, "spec": spec})
        end = time.monotonic() + TIMEOUT_SECONDS
        while not self._pods()["last"]["spec"].get("nodeName"):
            assert time.monotonic() < end, "the scheduler does not start"
            time.sleep(0.1)

    def settle(self) -> None:
        """Wait until no pod was bound, deleted or nominated for QUIET_SECONDS.

        A gang that fits in part is retried without end by both schedulers, so that messages may keep changing.
        """
        end = time.monotonic() + TIMEOUT_SECONDS
        last: dict[str, str] = {}
        since = time.monotonic()
        while time.monotonic() - since < QUIET_SECONDS:
            states = {name: _pod_state(pod) for name, pod in self._pods().items()}
            if states != last:
                changed = states.items() ^ last.items()
                last, since = states, time.monotonic()
            assert time.monotonic() < end, f"these pods keep changing: {dict(changed)}"
            time.sleep(0.25)
        self._each(self._read_messages, list(self._versions))

    def _read_messages(self, path: str) -> None:
        """Read the changes since the last call. The API server may not have those of the whole batch any more."""
        for version in (event["object"] for event in self._server.changes(path, self._versions[path])):
            self._versions[path] = version["metadata"]["resourceVersion"]
            name = version["metadata"]["name"]
            owner = version["spec"].get("schedulingGroup", {}).get("podGroupName", name)
            self._messages.setdefault(owner, Messages()).add(name, version)

    def outcomes(self) -> dict[str, JSON]:
        """Return the outcome of each case so far."""
        pods = self._pods()
        events = self._server.request("GET", f"/api/v1/namespaces/{self._namespace}/events?limit=5000")["items"]
        return {case.name: _case_outcome(case, pods, self._messages, events) for case in self._cases}

    def delete(self) -> None:
        self._each(self._delete_pod, self._pods())
        self._each(lambda name: self._server.request("DELETE", f"/api/v1/nodes/{name}"), self._nodes)


def _case_outcome(case: PodGroupCase, pods: JSON, messages: dict[str, Messages], events: list[JSON]) -> JSON:
    """Return states, victims, and the messages of each group and single pod; as alternatives, see outcomes().

    The pods of a group that are equal are interchangeable: only the list of their states counts.
    """
    states: JSON = {}
    equal: dict[str, list[str]] = {}
    interchangeable = set()
    names = {group["metadata"]["name"] for group in case.all_groups}
    for pod in case.all_pods:
        name, group = pod["metadata"]["name"], pod["spec"].get("schedulingGroup", {}).get("podGroupName", "")
        state = _pod_state(pods.get(name))
        names.add(group or name)
        if not group or group in case.ordered or pod["spec"].get("nodeName"):
            states[name] = state
        else:
            equal.setdefault(group, []).append(state)
            interchangeable.add(name)
    preempted = {
        f"{event['involvedObject']['name']}: {_UID.sub('UID', event['message'])}"
        for event in events
        if event["reason"] == "Preempted" and event["involvedObject"]["name"].startswith(f"{case.name}-")
    }
    return {
        "pods": [states | {group: sorted(states) for group, states in equal.items()}],
        "preempted": [sorted(text for text in preempted if text.partition(":")[0] not in interchangeable)],
        **{f"messages of {name}": messages.get(name, Messages()).alternatives() for name in names},
    }


class Messages:
    """The conditions that a scheduler sets on a pod, or on a group and its pods."""

    def __init__(self) -> None:
        self._all: set[str] = set()
        self._last: dict[str, list[str]] = {}  # by name of the object

    def add(self, name: str, version: JSON) -> None:
        self._last[name] = [
            " ".join(condition.get(field, "") for field in ("type", "status", "reason", "message"))
            for condition in version.get("status", {}).get("conditions", ())
            if condition["type"] in ("PodScheduled", "PodGroupScheduled", "DisruptionTarget")
        ]
        self._all.update(self._last[name])

    def alternatives(self) -> list[list[str]]:
        return [sorted(self._all), sorted(message for last in self._last.values() for message in last)]


def _pod_state(pod: JSON | None) -> str:
    """Return the node of a pod, the node that it is nominated to, and whether it is being deleted."""
    if pod is None:
        return "absent"
    parts = [pod["spec"].get("nodeName") or "pending"]
    if nominated := pod["status"].get("nominatedNodeName"):
        parts.append(f"nominated to {nominated}")
    if pod["metadata"].get("deletionTimestamp"):
        parts.append("terminating")
    return " ".join(parts)
