"""Tests of the projections of Pods, Events and Nodes."""

from __future__ import annotations

import msgspec
import pytest

from kubeloop.kube.objects.observed_types import ObservedEvent, ObservedPod


def test_a_pod_is_decoded_from_the_api_names():
    pod = msgspec.json.decode(
        b"""{"kind": "Pod", "metadata": {"name": "web", "namespace": "ns", "labels": {"pod-template-hash": "5f"},
             "annotations": {"tracing.k8s.io/traceparent": "00-1", "c": "d"}, "managedFields": [{}]},
             "spec": {"initContainers": [{"name": "i", "restartPolicy": "Always", "startupProbe": {"exec": {}}}],
                      "schedulingGates": [{"name": "g"}]},
             "status": {"containerStatuses": [{"state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}}]}}""",
        type=ObservedPod,
    )
    assert pod.key == "ns/web"
    assert pod.metadata.labels.pod_template_hash == "5f"
    assert pod.metadata.annotations.traceparent == "00-1"
    init = pod.spec.init_containers[0]
    assert (init.restart_policy, init.startup_probe is not None, init.readiness_probe) == ("Always", True, None)
    assert pod.spec.scheduling_gates[0].name == "g"
    assert pod.status.container_statuses[0].state.running.started_at.second == 1


@pytest.mark.parametrize(
    ("volumes", "is_stateless"),
    [
        pytest.param([], True, id="none"),
        pytest.param([{"secret": {}}, {"configMap": {}}, {"downwardAPI": {}}, {"emptyDir": {}}], True, id="ephemeral"),
        pytest.param([{"projected": {"sources": []}}], True, id="service account token"),
        pytest.param([{"emptyDir": {}}, {"persistentVolumeClaim": {"claimName": "c"}}], False, id="claim"),
        pytest.param([{"hostPath": {"path": "/"}}], False, id="host path"),
    ],
)
def test_is_stateless(volumes, is_stateless):
    assert msgspec.convert({"spec": {"volumes": volumes}}, ObservedPod).is_stateless is is_stateless


def test_an_event_of_kube_scheduler_has_microseconds():
    event = msgspec.json.decode(
        b"""{"metadata": {"name": "web.1", "namespace": "ns"}, "eventTime": "2026-01-01T00:00:01.123456Z",
             "firstTimestamp": null, "source": {}, "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:02.5Z"},
             "involvedObject": {"kind": "Pod", "fieldPath": "spec.containers{app}"}}""",
        type=ObservedEvent,
    )
    assert (event.key, event.event_time.microsecond, event.first_timestamp) == ("ns/web.1", 123456, None)
    assert (event.series.count, event.involved_object.field_path) == (2, "spec.containers{app}")
