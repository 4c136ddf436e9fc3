"""Steps before a write: fields that the server resets, retains or counts on create, update and status writes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.api.strategy import Write, strategy_of
from kubeloop.devcluster.kinds.core.pod import prepare_part
from kubeloop.devcluster.registry.preparation import prepare_for_subresource_update, prepare_for_update
from kubeloop.kube.objects.resources import CSI_DRIVERS, POD_GROUPS, PODS, VOLUME_ATTACHMENTS

JSON = dict[str, Any]


def test_generation_and_status_metadata_depend_on_the_kind():
    old: JSON = {"metadata": {"name": "a"}, "spec": {"requiresRepublish": True}}
    driver: JSON = {"metadata": {"name": "a"}, "spec": {"requiresRepublish": False}}
    prepare_for_update(get_served_resource(CSI_DRIVERS), strategy_of(CSI_DRIVERS), driver, old, {}, Write())
    assert driver["metadata"]["generation"] == 1
    labelled = {"metadata": {"name": "a", "labels": {"a": "b"}}, "status": {"attached": True}}
    written = prepare_for_subresource_update(strategy_of(VOLUME_ATTACHMENTS), labelled, old, "status", Write())
    assert (written["metadata"], written["status"]) == ({"name": "a"}, {"attached": True})


@pytest.mark.parametrize(("claims", "retained"), [([], False), ([{"name": "gpu"}], True)])
def test_claims_of_a_pod_group_status_need_claims_in_the_spec(claims: list[JSON], retained: bool):
    old: JSON = {"metadata": {"name": "g"}, "spec": {"resourceClaims": claims}}
    labelled = {"metadata": {"name": "g", "labels": {"a": "b"}}, "status": {"resourceClaimStatuses": [{"name": "gpu"}]}}
    written = prepare_for_subresource_update(strategy_of(POD_GROUPS), labelled, old, "status", Write())
    assert (written["metadata"], "resourceClaimStatuses" in written["status"]) == ({"name": "g"}, retained)


def test_resize_drops_absent_pod_level_resources():
    old = {"metadata": {"name": "p", "uid": "1"}, "spec": {"resources": {"limits": {"cpu": "1"}}, "containers": []}}
    new = {"metadata": {"name": "p"}, "spec": {"containers": []}}
    assert "resources" not in prepare_part(new, old, "resize")["spec"]


def pod_object(spec, status):
    return {"metadata": {"name": "web", "uid": "1"}, "spec": spec, "status": status}


def test_pod_update_retains_priority_set_by_admission():
    new, old = pod_object({"containers": []}, {}), pod_object({"priority": 10, "preemptionPolicy": "Never"}, {})
    prepare_for_update(get_served_resource(PODS), strategy_of(PODS), new, old, {}, Write())
    assert new["spec"] == {"containers": [], "priority": 10, "preemptionPolicy": "Never"}


def test_pod_status_retains_qos_class_and_generations():
    ready = {"type": "Ready", "observedGeneration": 2}
    old = pod_object({}, {"qosClass": "Burstable", "observedGeneration": 3, "conditions": [ready]})
    written = pod_object(
        {}, {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized"}]}
    )
    assert prepare_for_subresource_update(strategy_of(PODS), written, old, "status", Write())["status"] == {
        "phase": "Running",
        "qosClass": "Burstable",
        "observedGeneration": 3,
        "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 2}, {"type": "Initialized"}],
    }


def test_pod_status_takes_the_sent_generation():
    old = pod_object({}, {"qosClass": "Burstable", "observedGeneration": 3})
    written = pod_object({}, {"qosClass": "Burstable", "observedGeneration": 4})
    assert (
        prepare_for_subresource_update(strategy_of(PODS), written, old, "status", Write())["status"][
            "observedGeneration"
        ]
        == 4
    )
