"""resourceclaim_controller_* metrics."""

from __future__ import annotations

import pytest

from kubeloop.controllers.resourceclaim.metrics import ResourceClaimMetrics, claim_labels
from kubeloop.controllers.resourceclaim.pod_claim_plan import devices_of
from support.objects.resource_claims import ALLOCATION, claim_spec, claim_template, resource_claim
from support.simulation.metric_values import RecordedMetrics


@pytest.fixture
def metrics() -> RecordedMetrics:
    return RecordedMetrics()


@pytest.mark.parametrize(
    ("fields", "labels"),
    [
        ({}, ("false", "false", "")),
        ({"status": {"allocation": ALLOCATION}}, ("true", "false", "")),
        ({"entry": "gpu"}, ("false", "false", "resource_claim_template")),
        (
            {"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}},
            ("false", "false", "extended_resource"),
        ),
    ],
)
def test_labels_of_a_claim(fields, labels):
    assert claim_labels(resource_claim(**fields)) == labels


def test_claims_count_under_their_present_labels(metrics):
    recorder = ResourceClaimMetrics(metrics)
    free, allocated = resource_claim(), resource_claim(status={"allocation": ALLOCATION})
    recorder.changed(None, free)
    recorder.changed(None, free)
    recorder.changed(free, allocated)
    recorder.changed(free, free)
    recorder.changed(free, None)
    values = metrics.values("resourceclaim_controller_")
    assert values == {"resource_claims,false,false,": 0, "resource_claims,true,false,": 1}


def test_creations_count_by_result_and_admin_access(metrics):
    recorder = ResourceClaimMetrics(metrics)
    recorder.created(resource_claim().spec.devices, succeeded=True)
    recorder.created(devices_of(claim_template(spec=claim_spec(adminAccess=True))), succeeded=False)
    values = metrics.values("resourceclaim_controller_creates_total")
    assert values == {",success,false": 1, ",failure,true": 1}
