"""Events of kubelets about containers."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kubelet.pods.kubelet_events import KubeletEvents
from kubeloop.kube.objects.resources import EVENTS
from support.simulation.simulated_pods import new_simulation, simulated_pod


def recorded(*, events: bool = True, pull_seconds: float | None = None) -> list[tuple[str, str, str]]:
    """Return (reason, message, field path) of the events of a pod whose init container is started."""
    simulation = new_simulation(events=events)
    pod = simulated_pod(initContainers=[{"name": "migrate", "image": "app"}])
    pod.pull_seconds = pull_seconds
    KubeletEvents(simulation).started(pod, pod.runs[0])
    return [
        (event["reason"], event["message"], event["involvedObject"]["fieldPath"])
        for event in simulation.store.list(EVENTS)
    ]


def test_events_name_the_container_by_its_field():
    field = "spec.initContainers{migrate}"
    assert sorted(recorded()) == [
        ("Created", "Container created", field),
        ("Pulled", 'Container image "app" already present on machine and can be accessed by the pod', field),
        ("Started", "Container started", field),
    ]
    assert recorded(events=False) == []


@pytest.mark.parametrize(("seconds", "text"), [(1.5, "1.5s"), (2.0, "2s")])
def test_pulled_event_states_duration(seconds, text):
    message = f'Successfully pulled image "app" in {text} ({text} including waiting).'
    assert message in [message for _, message, _ in recorded(pull_seconds=seconds)]
