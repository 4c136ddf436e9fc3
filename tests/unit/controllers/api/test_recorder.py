"""Events about dicts and Structs."""

from __future__ import annotations

from kubeloop.controllers.api.recorder import EventRecorder
from kubeloop.kube.objects.api_types import ObjectMeta, ObjectReference
from support.controllers.sites import Site
from support.simulation.recorded_events import RecordedEvents


def test_event_about_a_dict_has_a_reference_to_it():
    events = RecordedEvents()
    recorder = EventRecorder(events)
    metadata = {"name": "blog", "namespace": "ns", "uid": "1", "resourceVersion": "7"}
    recorder.event({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}, "Normal", "Created", "text")
    recorder.event(Site(metadata=ObjectMeta(name="blog")), "Warning", "Failed", "text", action="Delete")
    [first, second] = events.events
    assert first.regarding == ObjectReference(
        api_version="v1", kind="Secret", name="blog", namespace="ns", uid="1", resource_version="7"
    )
    assert (second.type, second.reason) == ("Warning", "Failed")
