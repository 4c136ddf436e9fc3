"""Binding of pods to nodes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.handlers.subresources.binding import PodBinder
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.resources import PODS
from support.simulation.set_clock import SetClock

JSON = dict[str, Any]
CONFLICT = 'Operation cannot be fulfilled on pods/binding "p": '


def bound(pod: JSON, binding: JSON, *, dry_run: bool = False, gates: FeatureGates = DEFAULT_FEATURE_GATES) -> JSON:
    """Bind the pod ns/p, which has the fields of `pod`, and return it."""
    store = ObjectStore(seconds=lambda: 0.0)
    metadata = {"name": "p", "namespace": "ns", "uid": "u", **pod.get("metadata", {})}
    store.create(PODS, {"metadata": metadata, "spec": pod.get("spec", {}), "status": {"nominatedNodeName": "m"}})
    binder = PodBinder(store, SetClock(datetime(2026, 1, 1, tzinfo=UTC)), gates)
    binder.bind("p", "ns", {"target": {"name": "n"}, **binding}, dry_run=dry_run)
    result = store.get(PODS, "ns", "p")
    assert result is not None
    return result


def test_binding_sets_node_condition_and_labels():
    binding = {"metadata": {"annotations": {"a": "2"}, "labels": {"b": "2"}}}
    pod = bound({"metadata": {"annotations": {"a": "1", "c": "1"}, "labels": {"d": "1"}}}, binding)
    assert pod["spec"]["nodeName"] == "n"
    assert pod["metadata"]["annotations"] == {"a": "2", "c": "1"}
    assert pod["metadata"]["labels"] == {"b": "2", "d": "1"}
    assert pod["status"] == {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
    }


def test_nomination_stays_without_its_gate():
    pod = bound({}, {}, gates=FeatureGates({"ClearingNominatedNodeNameAfterBinding": False}))
    assert pod["status"]["nominatedNodeName"] == "m"


def test_labels_of_binding_are_not_copied_without_their_gate():
    gates = FeatureGates({"PodTopologyLabelsAdmission": False})
    pod = bound({}, {"metadata": {"labels": {"b": "2"}}}, gates=gates)
    assert "labels" not in pod["metadata"]


def test_dry_run_does_not_bind():
    assert "nodeName" not in bound({}, {}, dry_run=True)["spec"]


@pytest.mark.parametrize(
    ("pod", "binding", "code", "message"),
    [
        pytest.param({}, {"target": {}}, 500, "target.name: Required value", id="no target"),
        pytest.param(
            {},
            {"target": {"kind": "Pod", "name": "n"}},
            500,
            'target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"',
            id="target is no node",
        ),
        pytest.param(
            {},
            {"metadata": {"uid": "x"}},
            409,
            'Operation cannot be fulfilled on pods "p": StorageError: invalid object, Code: 4, '
            "Key: /registry/pods/ns/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
            "UID in precondition: x, UID in object meta: u",
            id="another uid",
        ),
        pytest.param(
            {"metadata": {"deletionTimestamp": "t"}},
            {},
            409,
            f"{CONFLICT}pod p is being deleted, cannot be assigned to a host",
            id="deleted pod",
        ),
        pytest.param(
            {"spec": {"nodeName": "m"}}, {}, 409, f'{CONFLICT}pod p is already assigned to node "m"', id="bound pod"
        ),
        pytest.param(
            {"spec": {"schedulingGates": [{"name": "g"}]}},
            {},
            409,
            f"{CONFLICT}pod p has non-empty .spec.schedulingGates",
            id="gated pod",
        ),
    ],
)
def test_binding_is_refused(pod: JSON, binding: JSON, code: int, message: str):
    with pytest.raises(StatusError) as raised:
        bound(pod, binding)
    assert (raised.value.code, raised.value.message) == (code, message)
