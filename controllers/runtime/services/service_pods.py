"""Pods of Services: which belong to one, which Services a changed Pod affects, ports and the time of the change.

Pure functions, and the state of trigger times. Source: staging/src/k8s.io/endpointslice/util, utils.go (FindPort).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from kubeloop.controllers.runtime.label_index import SELECTOR_LABEL, labels_of, pods_with, required_label
from kubeloop.informers.store import Store
from kubeloop.kube.objects.api_types import Container, Pod, Service, ServicePort
from kubeloop.kube.objects.object_fields import condition_of, is_finished, is_ready

IS_HEADLESS_SERVICE = "service.kubernetes.io/headless"
LAST_CHANGE_TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
CLUSTER_IP_NONE = "None"


def has_selected_endpoints(service: Service) -> bool:
    """Return True if the controllers publish endpoints of the Service: it has a selector and is not an alias."""
    return bool(service.spec.selector) and service.spec.type != "ExternalName"


def selects(service: Service, pod: Pod) -> bool:
    """Return True if the selector of the Service matches the Pod's labels."""
    return bool(service.spec.selector) and service.spec.selector.items() <= pod.metadata.labels.items()


def selector_label(service: Service) -> list[str]:
    """Return the value of a Service in the index SELECTOR_LABEL; none without a selector."""
    selector = service.spec.selector
    return [required_label(service.metadata.namespace, selector)] if selector else []


def selected_pods(pods: Store[Pod], service: Service) -> list[Pod]:
    """Return the Pods that the Service, which has a selector, selects."""
    possible = pods_with(pods, service.metadata.namespace, service.spec.selector)
    return [pod for pod in possible if selects(service, pod)]


def possible_services(services: Store[Service], old: Pod | None, new: Pod) -> Iterator[Service]:
    """Yield the Services that may select one of two states of a Pod: found only if affected_services needs them."""
    labels = dict.fromkeys([*(labels_of(old) if old is not None else ()), *labels_of(new)])
    for label in labels:
        yield from services.view(SELECTOR_LABEL, label)


def is_headless(service: Service) -> bool:
    return service.spec.cluster_ip in ("", CLUSTER_IP_NONE)


def has_endpoint(pod: Pod, *, include_terminating: bool) -> bool:
    """Return True if the Pod has an address to publish: it has one, and is not finished."""
    if is_finished(pod) or not (pod.status.pod_ip or pod.status.pod_ips):
        return False
    return include_terminating or pod.metadata.deletion_timestamp is None


def published_hostname(pod: Pod, service: Service) -> str:
    """Return the host name that DNS serves for the Pod in the domain of the Service; "" for none."""
    return pod.spec.hostname if pod.spec.subdomain == service.metadata.name else ""


def affected_services(old: Pod | None, new: Pod, services: Iterable[Service]) -> list[Service]:
    """Return the Services whose endpoints a created, changed (`old`) or deleted Pod may change."""
    if old is None:
        return [service for service in services if selects(service, new)]
    has_changed = _endpoint_state(old) != _endpoint_state(new)
    has_other_labels = _membership(old) != _membership(new)
    if not has_changed and not has_other_labels:
        return []
    if not has_other_labels:
        return [service for service in services if selects(service, new)]
    if has_changed:
        return [service for service in services if selects(service, new) or selects(service, old)]
    return [service for service in services if selects(service, new) != selects(service, old)]


def _endpoint_state(pod: Pod) -> tuple[object, ...]:
    return pod.metadata.deletion_timestamp, is_ready(pod), pod.status.pod_ips


def _membership(pod: Pod) -> tuple[object, ...]:
    return pod.metadata.labels, pod.spec.hostname, pod.spec.subdomain


def find_port(pod: Pod, port: ServicePort) -> int | None:
    """Return the number of a Service's target port in the Pod, None if no container has a port of that name."""
    if isinstance(port.target_port, int):
        return port.target_port
    for container in (*pod.spec.containers, *filter(_is_sidecar, pod.spec.init_containers)):
        for container_port in container.ports:
            if (container_port.name, container_port.protocol) == (port.target_port, port.protocol):
                return container_port.container_port
    return None


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


class _TriggerTimes(msgspec.Struct):
    service: datetime | None
    pods: dict[str, datetime]


class TriggerTimeTracker:
    """Times of the changes of Services and their Pods that earlier syncs have published.

    Source: staging/src/k8s.io/endpointslice/util/trigger_time_tracker.go.
    """

    def __init__(self) -> None:
        self._times: dict[str, _TriggerTimes] = {}  # by key of the Service

    def forget(self, key: str) -> None:
        self._times.pop(key, None)

    def last_change(self, service: Service, pods: Iterable[Pod]) -> datetime | None:
        """Return the earliest change since the last call: for a new Service its creation, None without a change."""
        previous = self._times.get(service.key)
        created = service.metadata.creation_timestamp
        pod_times = {}
        for pod in pods:
            condition = condition_of(pod.status.conditions, "Ready")
            if condition is not None and condition.last_transition_time is not None:
                pod_times[pod.metadata.name] = condition.last_transition_time
        self._times[service.key] = _TriggerTimes(created, pod_times)
        if previous is None:
            return created
        changes = [at for name, at in pod_times.items() if name not in previous.pods or at > previous.pods[name]]
        if created is not None and (previous.service is None or created > previous.service):
            changes.append(created)
        return min(changes, default=None)
