"""Events that enqueue a Service, for the controllers that publish its endpoints."""

from __future__ import annotations

from typing import Any

from kubeloop.controllers.runtime.label_index import LABELS, SELECTOR_LABEL, labels_of
from kubeloop.controllers.runtime.queue.work_queue import WorkQueue
from kubeloop.controllers.runtime.services.service_pods import affected_services, possible_services, selector_label
from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import HandlerRegistration
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import PODS, SERVICES


def add_service_handlers(
    informers: InformerFactory, queue: WorkQueue, batch_seconds: float
) -> tuple[HandlerRegistration[Any], ...]:
    """Enqueue a Service when it or one of its Pods changes. Returns the registrations of the handlers.

    batch_seconds: delay after the change of a Pod, so that one sync handles several of them.
    """
    services, pods = informers.informer(SERVICES), informers.informer(PODS)
    services.store.add_index(SELECTOR_LABEL, selector_label)
    pods.store.add_index(LABELS, labels_of)

    def on_pod(old: Pod | None, new: Pod) -> None:
        for service in affected_services(old, new, possible_services(services.store, old, new)):
            if batch_seconds:
                queue.add_after(service.key, batch_seconds)
            else:
                queue.add(service.key, "Pod changed")

    return (
        services.on_events(
            added=lambda service: queue.add(service.key, "Service added"),
            updated=lambda _old, new: queue.add(new.key, "Service changed"),
            deleted=lambda service: queue.add(service.key, "Service deleted"),
        ),
        pods.on_events(added=lambda pod: on_pod(None, pod), updated=on_pod, deleted=lambda pod: on_pod(None, pod)),
    )
