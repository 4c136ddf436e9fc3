"""Metrics that autoscalers saw, from the status of HorizontalPodAutoscalers, and a transport that serves them again.

The sum over the pods of the recording is divided among the pods that there are: twice as many have half the load each.
Pods count when they are ready, as autoscalers ignore others.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from itertools import accumulate
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote

import msgspec

from kubeloop.devcluster.api.conditions import condition_of
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.client.transport import HttpRequest, HttpResponse, StreamedResponse, Transport
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import LabelSelector
from kubeloop.kube.objects.resources import HORIZONTAL_POD_AUTOSCALERS, PODS, REPLICA_SETS, Resource
from kubeloop.kube.selectors.selectors import parse_label_selector, selector_from
from kubeloop.kube.values.quantities import milli_value
from kubeloop.kube.values.times import parse_time, seconds_between
from kubeloop.recording.changes import Finding, key_of

_PATHS: Final = ("/apis/metrics.k8s.io/", "/apis/custom.metrics.k8s.io", "/apis/external.metrics.k8s.io/")
_AHEAD_SECONDS: Final = 7.5  # half a sync period: the sample nearest to the time of a sync
_WINDOW_SECONDS: Final = 15
_MISSING: Final = -1
_SHARED: Final = ""  # in the place of a target: the metric is not one of pods


class Metric(NamedTuple):
    """Identity of a metric. part: container, described object, or selector of the metric."""

    type: str
    name: str
    part: str = ""


class RecordedMetrics:
    """Metrics of autoscalers over time, and the number of pods over which they average. start: time of 0 seconds.

    Amounts are in thousandths. Workloads are named by kind and name ("Deployment/web").
    """

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._series: dict[tuple[str, str], dict[Metric, tuple[array[float], array[int]]]] = {}
        self._seen: dict[str, dict[tuple[str, Metric], None]] = {}  # targets and metrics of each autoscaler
        self._owners: dict[str, JSON] = {}  # controllers by the uid of a ReplicaSet
        self._ready: set[str] = set()  # uids of pods
        self._steps: dict[tuple[str, str], list[tuple[float, int]]] = {}  # changes of the number of pods
        self._counts: dict[tuple[str, str], tuple[list[float], list[int]]] = {}  # the same summed up, on first use

    def observe(self, seconds: float, resource: Resource[Any], obj: JSON, *, deleted: bool = False) -> None:
        """Record a state of an object of any resource."""
        if resource is PODS:
            self._observe_pod(seconds, obj, deleted=deleted)
        elif resource is REPLICA_SETS:
            if owner := _controller(obj):
                self._owners[obj["metadata"].get("uid", "")] = owner
        elif resource is HORIZONTAL_POD_AUTOSCALERS:
            self._observe_autoscaler(seconds, obj)

    def _observe_autoscaler(self, seconds: float, autoscaler: JSON) -> None:
        namespace, values = autoscaler["metadata"].get("namespace", ""), _values(autoscaler)
        seen = self._seen.setdefault(key_of(autoscaler), {})
        seen.update(dict.fromkeys(values))
        for target, metric in seen:
            series = self._series.setdefault((namespace, target), {})
            times, amounts = series.setdefault(metric, (array("d"), array("q")))
            value = values.get((target, metric), _MISSING)
            if not amounts or amounts[-1] != value:
                times.append(seconds)
                amounts.append(value)

    def _observe_pod(self, seconds: float, pod: JSON, *, deleted: bool) -> None:
        metadata = pod["metadata"]
        uid, ready = metadata.get("uid", ""), condition_of(pod, "Ready")
        is_ready = _is_ready(pod, ready) and not deleted
        if is_ready == (uid in self._ready):
            return
        if is_ready:
            self._ready.add(uid)
            since = ready and ready.get("lastTransitionTime")
            seconds = (seconds_between(self._start, parse_time(since)) if since else seconds) + _WINDOW_SECONDS
        else:
            self._ready.remove(uid)
        owner = _controller(pod)
        while owner is not None:
            target = metadata.get("namespace", ""), f"{owner['kind']}/{owner['name']}"
            self._steps.setdefault(target, []).append((seconds, 1 if is_ready else -1))
            owner = self._owners.get(owner.get("uid", ""))

    def at(self, namespace: str, target: str, seconds: float) -> dict[Metric, int]:
        """Return the metrics of a target at a time; "": those that are not of pods."""
        values = {}
        for metric, (times, amounts) in self._series.get((namespace, target), {}).items():
            index = bisect_right(times, seconds + _AHEAD_SECONDS) - 1
            if index >= 0 and amounts[index] != _MISSING:
                values[metric] = amounts[index]
        return values

    def pods_at(self, namespace: str, target: str, seconds: float) -> int:
        """Return over how many pods the metrics of a target are averages."""
        key = namespace, target
        if key not in self._counts:
            steps = sorted(self._steps.get(key, ()))
            self._counts[key] = [at for at, _ in steps], [*accumulate(step for _, step in steps)]
        times, counts = self._counts[key]
        index = bisect_right(times, seconds) - 1
        return counts[index] if index >= 0 else 0

    def findings(self, place: str) -> Iterator[Finding]:
        """Yield which autoscalers never had a metric."""
        keys = sorted(key for key, metrics in self._seen.items() if not metrics)
        if keys:
            problem = f"{len(keys)} HorizontalPodAutoscaler{'s' if len(keys) > 1 else ''} without metrics in the status"
            yield Finding(place, f"{problem}: {', '.join(keys[:5])}", "only minReplicas and maxReplicas apply")


def _is_ready(pod: JSON, condition: JSON | None) -> bool:
    return condition is not None and condition["status"] == "True" and "deletionTimestamp" not in pod["metadata"]


def _is_counted(pod: JSON, now: datetime) -> bool:
    """Return True if a pod has been ready for the window of a sample."""
    ready = condition_of(pod, "Ready")
    if ready is None or not _is_ready(pod, ready):
        return False
    since = ready.get("lastTransitionTime")
    return not since or seconds_between(parse_time(since), now) >= _WINDOW_SECONDS


def _controller(obj: JSON) -> JSON | None:
    references = obj["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)


def target_of(autoscaler: JSON) -> str:
    """Return kind and name of the workload that an autoscaler scales."""
    reference = autoscaler["spec"]["scaleTargetRef"]
    return f"{reference['kind']}/{reference['name']}"


def _values(autoscaler: JSON) -> dict[tuple[str, Metric], int]:
    """Return the metrics in the status of an autoscaler by target. What is not of pods is a sum, never an average."""
    status = autoscaler.get("status") or {}
    replicas = status.get("currentReplicas") or 1
    values = {}
    for entry in status.get("currentMetrics") or ():
        type_ = entry.get("type") or " "
        source = entry.get(type_[0].lower() + type_[1:]) or {}
        current, named = source.get("current") or {}, source.get("metric") or {}
        if (average := current.get("averageValue")) is not None:
            value = milli_value(average) * (replicas if type_ in ("Object", "External") else 1)
        elif current.get("value") is not None:
            value = milli_value(current["value"])
        else:
            continue
        target, selector = target_of(autoscaler), _selector_text(named.get("selector"))
        match type_:
            case "Resource" | "ContainerResource":
                key = target, Metric("Resource", source.get("name", ""), source.get("container", ""))
            case "Pods":
                key = target, Metric("Pods", named.get("name", ""), selector)
            case "Object":
                described = (source.get("describedObject") or {}).get("name", "")
                key = _SHARED, Metric("Object", named.get("name", ""), described)
            case _:
                key = _SHARED, Metric("External", named.get("name", ""), selector)
        values[key] = value
    return values


def _selector_text(selector: JSON | None) -> str:
    return "" if selector is None else str(selector_from(msgspec.convert(selector, LabelSelector)))


class MetricsTransport:
    """A transport to the API server of a cluster in memory, which has the recorded metrics in addition."""

    def __init__(self, transport: Transport, metrics: RecordedMetrics, store: ObjectStore, clock: Clock) -> None:
        self._transport = transport
        self._metrics = metrics
        self._store = store
        self._clock = clock

    @property
    def server(self) -> str:
        return self._transport.server

    async def send(self, request: HttpRequest) -> HttpResponse:
        if request.target.startswith(_PATHS) and (document := self._document(request.target)) is not None:
            return HttpResponse(200, msgspec.json.encode(document), {"content-type": "application/json"})
        return await self._transport.send(request)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()

    def _document(self, target: str) -> JSON | None:
        """Return the document at a path of the metrics APIs; None if nothing of it is recorded."""
        path, _, query = target.partition("?")
        options = {name: values[-1] for name, values in parse_qs(query).items()}
        selector = options.get("labelSelector", "")
        metric_selector = options.get("metricLabelSelector", "")
        match [unquote(part) for part in path.strip("/").split("/")[1:]]:
            case ["metrics.k8s.io", _, "namespaces", namespace, "pods"]:
                items = [self._pod_metrics(pod, usage) for pod, usage in self._shares(namespace, selector)]
                return {"items": items} if items else None
            case ["custom.metrics.k8s.io"]:
                return {"versions": [{"version": "v1beta2"}]}
            case ["custom.metrics.k8s.io", _, "namespaces", namespace, "pods", "*", name]:
                metric = Metric("Pods", name, metric_selector)
                shares = [(pod, values.get(metric)) for pod, values in self._shares(namespace, selector)]
                return {"items": [self._value(pod, value) for pod, value in shares if value is not None]}
            case ["custom.metrics.k8s.io", _, "namespaces", namespace, "metrics", name]:
                return self._shared(namespace, Metric("Object", name, namespace))
            case ["custom.metrics.k8s.io", _, "namespaces", namespace, _, described, name]:
                return self._shared(namespace, Metric("Object", name, described))
            case ["external.metrics.k8s.io", _, "namespaces", namespace, name]:
                return self._shared(namespace, Metric("External", name, selector))
        return None

    def _shared(self, namespace: str, metric: Metric) -> JSON | None:
        value = self._metrics.at(namespace, _SHARED, _now()).get(metric)
        return None if value is None else {"items": [self._value({"metadata": {"name": metric.part}}, value)]}

    def _shares(self, namespace: str, selector: str) -> Iterator[tuple[JSON, Mapping[Metric, int]]]:
        """Yield the running pods, and the share of each of the metrics of its workload."""
        labels, now = parse_label_selector(selector), _now()
        pods = [
            pod
            for pod in self._store.list(PODS, namespace)
            if (pod.get("status") or {}).get("phase") == "Running"
            and labels.matches(pod["metadata"].get("labels") or {})
        ]
        wall_time = self._clock.now()
        count = sum(_is_counted(pod, wall_time) for pod in pods) or len(pods)
        for pod in pods:
            for target in self._owners(pod):
                if values := self._metrics.at(namespace, target, now):
                    recorded = self._metrics.pods_at(namespace, target, now) or count
                    yield pod, {metric: value * recorded // count for metric, value in values.items()}
                    break

    def _owners(self, pod: JSON) -> Iterator[str]:
        """Yield kind and name of the controller of a pod, and of the controller of its ReplicaSet."""
        if (owner := _controller(pod)) is not None:
            yield f"{owner['kind']}/{owner['name']}"
            replica_set = self._store.table(REPLICA_SETS).get(f"{pod['metadata']['namespace']}/{owner['name']}")
            if replica_set is not None and (top := _controller(replica_set.object)) is not None:
                yield f"{top['kind']}/{top['name']}"

    def _pod_metrics(self, pod: JSON, usage: Mapping[Metric, int]) -> JSON:
        """Return the PodMetrics of a pod. What is not known by container is that of the first one."""
        used: dict[str, dict[str, int]] = {container["name"]: {} for container in pod["spec"]["containers"]}
        resources = [(metric, value) for metric, value in usage.items() if metric.type == "Resource"]
        for metric, value in resources:
            if metric.part in used:
                used[metric.part][metric.name] = value
        for metric, value in resources:
            if not metric.part:
                rest = value - sum(amounts.get(metric.name, 0) for amounts in used.values())
                for amounts in used.values():
                    if metric.name not in amounts:
                        amounts[metric.name], rest = max(0, rest), 0
        containers = [
            {"name": name, "usage": {resource: f"{value}m" for resource, value in amounts.items()}}
            for name, amounts in used.items()
        ]
        return {
            "metadata": {"name": pod["metadata"]["name"]},
            "timestamp": rfc3339(self._clock.now()),
            "window": f"{_WINDOW_SECONDS}s",
            "containers": containers,
        }

    def _value(self, described: JSON, value: int) -> JSON:
        """Return a MetricValue."""
        return {
            "describedObject": {"name": described["metadata"]["name"]},
            "timestamp": rfc3339(self._clock.now()),
            "windowSeconds": _WINDOW_SECONDS,
            "value": f"{value}m",
        }


def _now() -> float:
    return asyncio.get_running_loop().time()
