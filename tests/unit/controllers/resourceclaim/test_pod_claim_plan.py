"""Claims that a Pod needs: creation from templates, names in the status, reservations."""

from __future__ import annotations

import pytest

from kubeloop.controllers.resourceclaim.pod_claim_plan import (
    claim_from_template,
    claims_to_reserve,
    devices_of,
    generate_name,
    is_done,
    needs_work,
    plan_pod_claims,
    requests_admin_access,
    used_claims,
    uses_prioritized_list,
)
from support.resource_claims import (
    ALLOCATION,
    CLAIM_ANNOTATION,
    claim_spec,
    claim_template,
    consumer,
    pod_claim_status,
    pod_with_claims,
    resource_claim,
)

TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "gpus"}
SHARED = {"name": "shared", "resourceClaimName": "shared"}
NOW = "2026-01-02T03:04:05Z"
OWNED = resource_claim("web-gpu-x", owner="pod-uid", entry="gpu")
FOREIGN = resource_claim("web-gpu-x", owner="of-another-pod", entry="gpu")
ALLOCATED = resource_claim("web-gpu-x", owner="pod-uid", entry="gpu", status={"allocation": ALLOCATION})
RESERVED = resource_claim(
    "web-gpu-x", owner="pod-uid", entry="gpu", status={"allocation": ALLOCATION, "reservedFor": [consumer()]}
)
RECORDED = pod_claim_status(gpu="web-gpu-x")


def finder(*claims):
    return {claim.metadata.name: claim for claim in claims}.get


@pytest.mark.parametrize(
    ("status", "cached", "owned", "names", "missing", "is_recorded"),
    [
        pytest.param({}, [], [], {}, ["gpu"], False, id="new pod"),
        pytest.param({}, [OWNED], [OWNED], {"gpu": "web-gpu-x"}, [], False, id="created, not recorded"),
        pytest.param({}, [], [OWNED], {"gpu": "web-gpu-x"}, [], False, id="created, not cached"),
        pytest.param(RECORDED, [OWNED], [OWNED], {"gpu": "web-gpu-x"}, [], True, id="recorded"),
        pytest.param(RECORDED, [], [], {}, ["gpu"], False, id="recorded and deleted"),
        pytest.param(RECORDED, [FOREIGN], [], {}, ["gpu"], False, id="recorded claim of another pod"),
        pytest.param(RECORDED, [], [OWNED], {"gpu": "web-gpu-x"}, [], True, id="recorded, not cached"),
        pytest.param(
            pod_claim_status(gpu="old"), [OWNED], [OWNED], {"gpu": "web-gpu-x"}, [], False, id="recorded another name"
        ),
        pytest.param(pod_claim_status(gpu=None), [], [], {}, [], True, id="not needed"),
        pytest.param(
            {}, [], [resource_claim(owner="pod-uid", entry="nic")], {}, ["gpu"], False, id="claim of another entry"
        ),
        pytest.param({}, [], [resource_claim(owner="pod-uid")], {}, ["gpu"], False, id="claim without annotation"),
    ],
)
def test_plan_of_a_pod_with_a_template(status, cached, owned, names, missing, is_recorded):
    plan = plan_pod_claims(pod_with_claims(TEMPLATE, SHARED, status=status), finder(*cached), owned)
    assert (plan.names, [entry.name for entry in plan.missing], plan.is_recorded) == (names, missing, is_recorded)


def test_plan_names_the_recorded_claims_next_to_missing_ones():
    second = {"name": "nic", "resourceClaimTemplateName": "nics"}
    plan = plan_pod_claims(pod_with_claims(TEMPLATE, second, status=RECORDED), finder(OWNED), [OWNED])
    assert (plan.names, [entry.name for entry in plan.missing]) == ({"gpu": "web-gpu-x"}, ["nic"])


@pytest.mark.parametrize(
    ("fields", "cached", "works"),
    [
        pytest.param({}, [], True, id="not created"),
        pytest.param({"deletion_timestamp": NOW}, [], False, id="terminating"),
        pytest.param({"status": {"phase": "Succeeded"}}, [], False, id="finished"),
        pytest.param({"status": RECORDED}, [OWNED], False, id="recorded"),
        pytest.param({"status": RECORDED}, [], True, id="recorded and deleted"),
        pytest.param({"status": RECORDED}, [FOREIGN], False, id="claim of another pod"),
        pytest.param({"status": pod_claim_status(gpu=None)}, [], False, id="not needed"),
        pytest.param({"status": RECORDED}, [ALLOCATED], False, id="not bound"),
        pytest.param({"status": RECORDED, "nodeName": "n"}, [ALLOCATED], True, id="bound, not reserved"),
        pytest.param({"status": RECORDED, "nodeName": "n"}, [RESERVED], False, id="bound and reserved"),
        pytest.param({"status": RECORDED, "nodeName": "n"}, [OWNED], False, id="bound, not allocated"),
    ],
)
def test_pod_needs_work(fields, cached, works):
    assert needs_work(pod_with_claims(TEMPLATE, **fields), finder(*cached)) is works


def test_claim_that_the_user_has_to_create_needs_no_work():
    assert not needs_work(pod_with_claims(SHARED), finder())


def test_bound_pod_reserves_shared_allocated_claims():
    shared = resource_claim("shared", status={"allocation": ALLOCATION, "reservedFor": [consumer("other", "o")]})
    assert claims_to_reserve(pod_with_claims(SHARED, TEMPLATE, nodeName="n"), finder(shared, ALLOCATED)) == [shared]


def test_bound_pod_reserves_no_claim_of_another_pod():
    foreign = resource_claim("web-gpu-x", owner="of-another-pod", status={"allocation": ALLOCATION})
    assert claims_to_reserve(pod_with_claims(TEMPLATE, status=RECORDED, nodeName="n"), finder(foreign)) == []


@pytest.mark.parametrize(
    ("fields", "done"),
    [
        ({}, False),
        ({"status": {"phase": "Succeeded"}}, True),
        ({"status": {"phase": "Failed"}, "nodeName": "n"}, True),
        ({"deletion_timestamp": NOW}, True),
        ({"deletion_timestamp": NOW, "nodeName": "n"}, False),
    ],
)
def test_pod_is_done_when_no_container_will_run(fields, done):
    assert is_done(pod_with_claims(**fields)) is done


def test_used_claims_include_that_of_extended_resources():
    status = {**pod_claim_status(gpu="web-gpu-x"), "extendedResourceClaimStatus": {"resourceClaimName": "extended"}}
    uncreated = {"name": "nic", "resourceClaimTemplateName": "nics"}
    assert used_claims(pod_with_claims(TEMPLATE, SHARED, uncreated, status=status)) == [
        "web-gpu-x",
        "shared",
        "extended",
    ]


def test_claim_from_template_has_owner_annotation_and_the_whole_spec():
    pod = pod_with_claims(TEMPLATE)
    template = claim_template(labels={"a": "b"}, annotations={"c": "d"})
    assert claim_from_template(pod, pod.spec.resource_claims[0], template) == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": "web-gpu-",
            "labels": {"a": "b"},
            "annotations": {"c": "d", CLAIM_ANNOTATION: "gpu"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "pod-uid", "controller": True}
            ],
        },
        "spec": claim_spec(),
    }


@pytest.mark.parametrize(
    ("pod", "entry", "name"),
    [
        pytest.param("web", "gpu", "web-gpu-", id="short"),
        pytest.param("p" * 50, "c" * 5, "p" * 50 + "-" + "c" * 5 + "-", id="longest that is not cut"),
        pytest.param("p" * 100, "c" * 20, "p" * 46 + "-" + "c" * 9, id="cut in proportion"),
    ],
)
def test_generated_name(pod, entry, name):
    assert generate_name(pod, entry) == name


def test_prioritized_list_and_admin_access_of_a_template():
    subrequests = {"devices": {"requests": [{"name": "gpu", "firstAvailable": [{"name": "a"}]}]}}
    specs = (subrequests, claim_spec(adminAccess=True), claim_spec())
    devices = [devices_of(claim_template(spec=spec)) for spec in specs]
    assert [uses_prioritized_list(entry) for entry in devices] == [True, False, False]
    assert [requests_admin_access(entry) for entry in devices] == [False, True, False]
