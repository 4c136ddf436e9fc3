"""Random sequences of changes to Deployments, StatefulSets and Jobs, for kube-controller-manager and for kubeloop.

A seed gives an object, the requests of a user, and what its pods do. `run_sequences` runs many at once, each in a
namespace of its own: all make their next step, then nothing changes any more, then the next. `differences` compares the
states after each step: all fields but times, UIDs and the random part of names, and the events as sets.

A rollout may take one of several paths, depending on which of two requests is first. A difference is explained if the
two differ only in the sizes between the first and the last one of a ReplicaSet (two pods that become ready are one or
two steps), or if kube-controller-manager reaches kubeloop's states, too, when the sequence is repeated.

    PYTHONPATH=tests python -m support.comparison.workload_sequences --seeds 1-300
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.comparison.compared_clusters import stable
from support.comparison.fake_kubelet import fake_kubelet
from support.comparison.real_apiserver import RealApiServer, real_apiserver
from support.processes.cli_processes import Kubeloop

JSON = dict[str, Any]
State = list[str]
"""Lines: the objects of a namespace as JSON, and its events, sorted."""

_SCALED = re.compile(r"ScalingReplicaSet: Scaled (up|down) replica set (\S+) from (\d+) to (\d+)")
BATCH = 25  # sequences that run at the same time
REPEATS = 8
_QUIET_SECONDS, _TIMEOUT_SECONDS = 3.0, 120.0
_BACKOFF_SECONDS = 22.0  # of a Job, after which the pods that replace two failed ones have been created
_MERGE, _STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
_CONTROLLERS = ("deployment", "replicaset", "statefulset", "job")
_KINDS = {
    "Deployment": "apps/v1/namespaces/{}/deployments",
    "StatefulSet": "apps/v1/namespaces/{}/statefulsets",
    "Job": "batch/v1/namespaces/{}/jobs",
}
_COMPARED = (
    "/apis/apps/v1/deployments", "/apis/apps/v1/replicasets", "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/controllerrevisions", "/apis/batch/v1/jobs", "/api/v1/pods",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A merge patch of the object; or of the status of some of its active pods, or their deletion (body None)."""

    title: str
    body: JSON | None = None
    pods: int = 0  # so many, the first by completion index or creation; 0: the object itself

    def __str__(self) -> str:
        return self.title


@dataclass(frozen=True)
class WorkloadSequence:
    """namespace: its name for the clusters."""

    seed: int
    kind: str
    spec: JSON
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.kind} {json.dumps(self.spec)}; {'; '.join(map(str, self.steps))}"


# --- sequences --------------------------------------------------------------------------------------------------------


def draw_sequence(seed: int) -> WorkloadSequence:
    """Return the sequence of a seed."""
    rng = random.Random(seed)
    kind = rng.choice([*_KINDS])
    draw = {"Deployment": _deployment, "StatefulSet": _stateful_set, "Job": _job}[kind]
    spec, steps = draw(rng)
    return WorkloadSequence(seed, kind, spec, tuple(steps))


def _template(image: str, **spec: Any) -> JSON:
    container = {"name": "main", "image": image}
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 1, "containers": [container], **spec},
    }


def _patch(**spec: Any) -> Step:
    return Step(f"set {json.dumps(spec)}", {"spec": spec})


def _set_image(rng: random.Random, number: int) -> Step:
    tag = rng.choice(["{}", "{}", "{}:slow", "{}:broken"]).format(f"app-{number}")
    return _patch(template={"spec": {"containers": [{"name": "main", "image": tag}]}})


_DELETE_POD = Step("delete a pod", None, 1)


def _deployment(rng: random.Random) -> tuple[JSON, list[Step]]:
    def strategy() -> JSON:
        if rng.random() < 0.3:
            return {"type": "Recreate", "rollingUpdate": None}
        limits = rng.choice([(1, 0), (0, 1), (2, 1), ("50%", "25%"), (1, "100%")])
        return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": limits[0], "maxUnavailable": limits[1]}}

    spec = {
        "replicas": rng.randrange(5),
        "strategy": strategy(),
        "revisionHistoryLimit": rng.choice([0, 1, 10]),
        "minReadySeconds": rng.choice([0, 0, 1]),
        "template": _template("app-0"),
    }
    changes: list[Callable[[int], Step]] = [
        lambda number: _set_image(rng, number),
        lambda number: _set_image(rng, rng.randrange(number + 1)),
        lambda number: _patch(replicas=rng.randrange(6)),
        lambda number: _patch(paused=rng.random() < 0.5),
        lambda number: _patch(strategy=strategy()),
        lambda number: _patch(minReadySeconds=rng.choice([0, 1])),
        lambda number: _DELETE_POD,
        lambda number: Step("annotate", {"metadata": {"annotations": {"team": f"team-{number}"}}}),
    ]
    return spec, [rng.choice(changes)(number) for number in range(1, rng.randrange(4, 7))]


def _stateful_set(rng: random.Random) -> tuple[JSON, list[Step]]:
    spec = {
        "replicas": rng.randrange(4),
        "serviceName": "web",
        "podManagementPolicy": rng.choice(["OrderedReady", "Parallel"]),
        "revisionHistoryLimit": rng.choice([0, 1, 10]),
        "template": _template("app-0"),
    }
    changes: list[Callable[[int], Step]] = [
        lambda number: _set_image(rng, number),
        lambda number: _patch(replicas=rng.randrange(5)),
        lambda number: _patch(updateStrategy={"rollingUpdate": {"partition": rng.randrange(3)}}),
        lambda number: _patch(minReadySeconds=rng.choice([0, 1])),
        lambda number: _DELETE_POD,
    ]
    return spec, [rng.choice(changes)(number) for number in range(1, rng.randrange(4, 7))]


def _job(rng: random.Random) -> tuple[JSON, list[Step]]:
    indexed = rng.random() < 0.5
    spec: JSON = {
        "completions": rng.randrange(1, 5),
        "parallelism": rng.randrange(1, 4),
        "backoffLimit": rng.choice([0, 1, 6]),
        "completionMode": "Indexed" if indexed else "NonIndexed",
        "suspend": rng.random() < 0.2,
        "template": _template("app-0", restartPolicy="Never"),
    }
    if rng.random() < 0.4:
        on_exit = {"operator": "In", "values": [42]}
        spec["podFailurePolicy"] = {"rules": [{"action": rng.choice(["FailJob", "Count"]), "onExitCodes": on_exit}]}
    changes: list[Callable[[], Step]] = [
        lambda: _end_pods(rng.randrange(1, 3), "Succeeded", 0),
        lambda: _end_pods(rng.randrange(1, 3), "Succeeded", 0),
        lambda: _patch(suspend=rng.random() < 0.3),
        lambda: _patch(parallelism=rng.randrange(1, 5)),
    ]
    steps = [rng.choice(changes)() for _ in range(rng.randrange(2, 5))]
    if rng.random() < 0.6:
        steps.append(_end_pods(rng.randrange(1, 3), "Failed", rng.choice([1, 42])))
    return spec, steps


def _end_pods(count: int, phase: str, exit_code: int) -> Step:
    terminated = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
    container = {"name": "main", "image": "app", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": phase, "containerStatuses": [{**container, "state": {"terminated": terminated}}]}
    return Step(f"{count} pods end with {exit_code}", {"status": status}, count)


# --- one cluster ------------------------------------------------------------------------------------------------------


class _Namespace:
    """The objects of one sequence on one cluster."""

    def __init__(self, server: RealApiServer, sequence: WorkloadSequence, name: str) -> None:
        self._server = server
        self._sequence = sequence
        self.name = name
        self._collection = "/apis/" + _KINDS[sequence.kind].format(name)
        self._pods = f"/api/v1/namespaces/{name}/pods"

    def create(self) -> None:
        self._server.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.name}})
        selector = {} if self._sequence.kind == "Job" else {"selector": {"matchLabels": {"app": "web"}}}
        body = {"metadata": {"name": "web"}, "spec": {**self._sequence.spec, **selector}}
        self._server.request("POST", self._collection, body)

    def act(self, number: int) -> None:
        if number >= len(self._sequence.steps):
            return
        step = self._sequence.steps[number]
        if not step.pods:
            kind = _MERGE if "strategy" in step.body.get("spec", {}) else _STRATEGIC  # type: ignore[union-attr]
            self._server.request("PATCH", f"{self._collection}/web", step.body, content_type=kind)
            return
        for pod in self._active_pods()[: step.pods]:
            path = f"{self._pods}/{pod['metadata']['name']}"
            if step.body is None:
                self._server.request("DELETE", path)
            else:
                self._server.request("PATCH", f"{path}/status", step.body, content_type=_STRATEGIC)

    def _active_pods(self) -> list[JSON]:
        pods = self._server.request("GET", self._pods)["items"]
        active = [
            pod
            for pod in pods
            if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
            and "deletionTimestamp" not in pod["metadata"]
        ]
        return sorted(active, key=_pod_order)


def _pod_order(pod: JSON) -> tuple[str, str, str]:
    metadata = pod["metadata"]
    index = metadata.get("labels", {}).get("batch.kubernetes.io/job-completion-index", "")
    return index, pod["spec"]["containers"][0]["image"], metadata["name"]


def run_sequences(server: RealApiServer, sequences: Sequence[WorkloadSequence], prefix: str) -> list[list[State]]:
    """Return the states of each sequence, after its creation and after each step. prefix: of the namespaces."""
    namespaces = [_Namespace(server, sequence, f"{prefix}-{sequence.seed}") for sequence in sequences]
    for namespace in namespaces:
        namespace.create()
    states = [_settled_states(server, namespaces)]
    for number in range(max(len(sequence.steps) for sequence in sequences)):
        for namespace in namespaces:
            namespace.act(number)
        if any("Failed" in str(step.body) for it in sequences for step in it.steps[number : number + 1]):
            time.sleep(_BACKOFF_SECONDS)
        states.append(_settled_states(server, namespaces))
    for namespace in namespaces:
        server.request("DELETE", f"/api/v1/namespaces/{namespace.name}")
    return [[step[index] for step in states[: len(sequence.steps) + 1]] for index, sequence in enumerate(sequences)]


def _settled_states(server: RealApiServer, namespaces: Sequence[_Namespace]) -> list[State]:
    """Wait until no object changes, and return the state of each namespace."""
    versions, since = _versions(server, namespaces), time.monotonic()
    end = since + _TIMEOUT_SECONDS
    while time.monotonic() - since < _QUIET_SECONDS:
        time.sleep(0.3)
        now = _versions(server, namespaces)
        if now != versions:
            versions, since = now, time.monotonic()
        if time.monotonic() > end:
            break  # the difference shows what keeps changing
    objects = [item for path in _COMPARED for item in _items(server, path)]
    events = _items(server, "/api/v1/events")
    return [_state(namespace.name, objects, events) for namespace in namespaces]


def _items(server: RealApiServer, path: str) -> list[JSON]:
    response = server.request("GET", path)
    kind = response["kind"].removesuffix("List")
    return [{"kind": kind, **item} for item in response["items"]]


def _versions(server: RealApiServer, namespaces: Iterable[_Namespace]) -> dict[str, str]:
    names = {namespace.name for namespace in namespaces}
    return {
        item["metadata"]["uid"]: item["metadata"]["resourceVersion"]
        for path in _COMPARED
        for item in _items(server, path)
        if item["metadata"]["namespace"] in names
    }


def _state(namespace: str, objects: Iterable[JSON], events: Iterable[JSON]) -> State:
    lines = sorted(
        json.dumps(_comparable(item), sort_keys=True) for item in objects if item["metadata"]["namespace"] == namespace
    )
    texts = {_event_text(event) for event in events if event["metadata"]["namespace"] == namespace}
    return [line.replace(namespace, "NAMESPACE") for line in [*lines, *sorted(texts)]]


def _comparable(item: JSON) -> JSON:
    """Return an object without times, UIDs and random parts of names. Conditions are a map, not a list."""
    result: JSON = stable({name: value for name, value in item.items() if name != "apiVersion"})
    conditions = result.get("status", {}).get("conditions")
    if conditions is not None:
        for condition in conditions:
            condition.pop("lastUpdateTime", None)
        conditions.sort(key=lambda condition: condition["type"])
    return result


def _event_text(event: JSON) -> str:
    regarding = event["involvedObject"]
    message = event["message"].removeprefix("(combined from similar events): ")
    text: str = stable(f"{regarding['kind']}/{regarding['name']} {event['type']} {event['reason']}: {message}")
    return text


# --- two clusters -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clusters:
    """kube-controller-manager and kubeloop, each alone on its own kube-apiserver."""

    real: RealApiServer
    ours: RealApiServer

    def run(self, sequences: Sequence[WorkloadSequence]) -> tuple[list[list[State]], list[list[State]]]:
        """Return the states of each sequence under kube-controller-manager and under kubeloop."""
        with ThreadPoolExecutor(2) as executor:
            futures = [executor.submit(run_sequences, server, sequences, "s") for server in (self.real, self.ours)]
            real, ours = (future.result() for future in futures)
            return real, ours


@contextmanager
def running_clusters(folder: Path) -> Iterator[Clusters]:
    with ExitStack() as stack:
        real, ours = (stack.enter_context(real_apiserver(folder / name)) for name in ("kubernetes", "kubeloop"))
        for server in (real, ours):
            stack.enter_context(fake_kubelet(server))
        names = [f"{name}-controller" for name in _CONTROLLERS]
        real.start_component("kube-controller-manager", f"--controllers={','.join(names)}", "--leader-elect=false")
        arguments = (f"--kubeconfig={ours.kubeconfig}", f"--controllers={','.join(_CONTROLLERS)}", "--trace-journal=")
        stack.enter_context(Kubeloop(folder / "kubeloop").running("run", *arguments))
        yield Clusters(real, ours)


@dataclass(frozen=True)
class Comparison:
    """A sequence with different states, and the lines of its first different step.

    explanation: "" if there is none.
    """

    sequence: WorkloadSequence
    lines: list[str]
    explanation: str

    def __str__(self) -> str:
        return "\n".join([f"{self.explanation or 'NOT EXPLAINED'}: {self.sequence}", *self.lines])


def compare(clusters: Clusters, sequences: Sequence[WorkloadSequence]) -> list[Comparison]:
    """Return the sequences whose states differ."""
    real, ours = clusters.run(sequences)
    different = [index for index, states in enumerate(real) if states != ours[index]]
    explanations = {
        index: "other steps of scaling" if _without_steps(real[index]) == _without_steps(ours[index]) else ""
        for index in different
    }
    for repeat in range(REPEATS):
        left = [index for index in different if not explanations[index]]
        if left:
            again = run_sequences(clusters.real, [sequences[index] for index in left], f"r{repeat}")
            for index, states in zip(left, again, strict=True):
                if _without_steps(states) == _without_steps(ours[index]):
                    explanations[index] = "reached in a repeat, too"
    return [
        Comparison(sequences[index], _difference(sequences[index], real[index], ours[index]), explanations[index])
        for index in different
    ]


def _without_steps(states: Iterable[State]) -> list[State]:
    """Return the states without the sizes between those of which a ReplicaSet was scaled first and last."""
    return [_without_steps_of_one(state) for state in states]


def _without_steps_of_one(state: State) -> State:
    steps: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    lines = []
    for line in state:
        match = _SCALED.search(line)
        if match is None:
            lines.append(line)
        else:
            direction, name, before, after = match.groups()
            steps[direction, name].append((before, after))
    for (direction, name), edges in sorted(steps.items()):
        starts, ends = ({edge[number] for edge in edges} for number in (0, 1))
        lines.append(f"{direction} {name} from {sorted(starts - ends)} to {sorted(ends - starts)}")
    counts = Counter({name: 0 for _, name in steps})
    for (_, name), edges in steps.items():
        counts[name] += len(edges)
    return [_with_relative_generation(line, counts) for line in lines]


def _with_relative_generation(line: str, steps: Mapping[str, int]) -> str:
    """Return the line of a ReplicaSet with its generations less the number of its scaling steps."""
    if not line.startswith('{"kind": "ReplicaSet"'):
        return line
    obj = json.loads(line)
    number = steps.get(obj["metadata"]["name"], 0)
    for fields, field in ((obj["metadata"], "generation"), (obj["status"], "observedGeneration")):
        fields[field] = fields.get(field, 0) - number
    return json.dumps(obj, sort_keys=True)


def _difference(sequence: WorkloadSequence, real: Sequence[State], ours: Sequence[State]) -> list[str]:
    for number, (expected, actual) in enumerate(zip(real, ours, strict=True)):
        if expected != actual:
            title = str(sequence.steps[number - 1]) if number else "create"
            return [
                f"after step {number}, {title}:",
                *(f"- {line}" for line in expected if line not in actual),
                *(f"+ {line}" for line in actual if line not in expected),
            ]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(prog="workload_sequences", description=__doc__)
    parser.add_argument("--seeds", default="1-25", help="first and last seed, or seeds separated by commas")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = list(range(int(first), int(last) + 1)) if last else [*map(int, first.split(","))]
    total = explained = 0
    with tempfile.TemporaryDirectory() as folder, running_clusters(Path(folder)) as clusters:
        for start in range(0, len(seeds), BATCH):
            batch = [draw_sequence(seed) for seed in seeds[start : start + BATCH]]
            for comparison in compare(clusters, batch):
                total += 1
                explained += bool(comparison.explanation)
                print(comparison, flush=True)
            print(f"{start + len(batch)} sequences", flush=True)
    print(f"{len(seeds)} sequences, {total} differences, {total - explained} not explained")
    return int(total > explained)


if __name__ == "__main__":
    sys.exit(main())
