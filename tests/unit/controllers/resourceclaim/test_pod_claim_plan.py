"""Claims that a Pod needs: creation from templates, names in the status, reservations."""

from __future__ import annotations

import pytest

from kubeloop.controllers.resourceclaim.pod_claim_plan import (
    Membership,
    claim_from_template,
    claims_to_reserve,
    devices_of,
    generate_name,
    group_needs_work,
    is_done,
    needs_work,
    plan_group_claims,
    plan_pod_claims,
    requests_admin_access,
    used_claims,
    uses_prioritized_list,
)
from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.device_types import ResourceClaimConsumerReference
from kubeloop.kube.objects.resources import POD_GROUPS, PODS
from kubeloop.kube.objects.workload_types import PodGroup
from support.objects.resource_claims import (
    ALLOCATION,
    CLAIM_ANNOTATION,
    claim_spec,
    claim_template,
    consumer,
    group_resource_claim,
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
USER = convert(ResourceClaimConsumerReference, consumer())


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


def test_plan_keeps_the_recorded_one_of_several_claims_that_the_cache_does_not_show():
    other = resource_claim("other", owner="pod-uid", entry="gpu")
    plan = plan_pod_claims(pod_with_claims(TEMPLATE, status=RECORDED), finder(other), [other, OWNED])
    assert (plan.names, plan.missing, plan.is_recorded) == ({"gpu": "web-gpu-x"}, (), True)


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
    assert claims_to_reserve(pod_with_claims(SHARED, TEMPLATE, nodeName="n"), finder(shared, ALLOCATED)) == [
        (shared, USER)
    ]


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
    assert claim_from_template(PODS, pod, pod.spec.resource_claims[0], template) == {
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


# --- claims that a PodGroup shares ------------------------------------------------------------------------------------

GROUP_METADATA = {"name": "gang", "namespace": "ns", "uid": "group-uid"}
GROUP = convert(PodGroup, {"metadata": GROUP_METADATA, "spec": {"resourceClaims": [TEMPLATE, SHARED]}})
GROUP_CLAIM = group_resource_claim("gang-gpu-y", entry="gpu")
MEMBER = {"schedulingGroup": {"podGroupName": "gang"}}
GROUP_CONSUMER = convert(
    ResourceClaimConsumerReference,
    {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "group-uid"},
)


def membership(*owned):
    return Membership("ns/gang", GROUP, owned)


@pytest.mark.parametrize(
    ("status", "owned", "group", "names", "missing", "is_recorded"),
    [
        pytest.param({}, [], membership(), {}, [], True, id="not created yet"),
        pytest.param({}, [], membership(GROUP_CLAIM), {"gpu": "gang-gpu-y"}, [], False, id="created for the group"),
        pytest.param({}, [OWNED], membership(), {}, [], True, id="created for the pod"),
        pytest.param(
            pod_claim_status(gpu="gang-gpu-y"), [], membership(GROUP_CLAIM), {"gpu": "gang-gpu-y"}, [], True,
            id="recorded",
        ),
        pytest.param({}, [], Membership(), {}, ["gpu"], False, id="groups share no claims"),
    ],
)  # fmt: skip
def test_plan_of_a_pod_whose_group_shares_the_claim(status, owned, group, names, missing, is_recorded):
    pod = pod_with_claims(TEMPLATE, status=status, **MEMBER)
    plan = plan_pod_claims(pod, finder(GROUP_CLAIM), owned, group)
    assert (plan.names, [entry.name for entry in plan.missing], plan.is_recorded) == (names, missing, is_recorded)


def test_group_does_not_share_an_entry_that_differs_from_its_own():
    other = {"name": "gpu", "resourceClaimTemplateName": "other"}
    plan = plan_pod_claims(pod_with_claims(other, **MEMBER), finder(GROUP_CLAIM), [], membership(GROUP_CLAIM))
    assert [entry.name for entry in plan.missing] == ["gpu"]


@pytest.mark.parametrize(
    ("group", "cached", "works"),
    [
        pytest.param(membership(GROUP_CLAIM), [GROUP_CLAIM], False, id="recorded"),
        pytest.param(membership(), [], False, id="deleted"),
        pytest.param(Membership("ns/gang"), [], True, id="group not cached"),
    ],
)
def test_pod_of_a_group_needs_work(group, cached, works):
    pod = pod_with_claims(TEMPLATE, status=pod_claim_status(gpu="gang-gpu-y"), **MEMBER)
    assert needs_work(pod, finder(*cached), group) is works


@pytest.mark.parametrize("reserved", [True, False])
def test_shared_claim_of_a_bound_pod_is_reserved_for_the_group(reserved: bool):
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "group-uid"}
    claim = group_resource_claim(
        "gang-gpu-y", entry="gpu", status={"allocation": ALLOCATION, "reservedFor": [group] if reserved else []}
    )
    pod = pod_with_claims(TEMPLATE, status=pod_claim_status(gpu="gang-gpu-y"), nodeName="n", **MEMBER)
    expected = [] if reserved else [(claim, GROUP_CONSUMER)]
    assert claims_to_reserve(pod, finder(claim), membership(claim)) == expected
    assert claims_to_reserve(pod, finder(claim)) == []  # without the feature, the claim belongs to another owner


@pytest.mark.parametrize(
    ("recorded", "cached", "owned", "names", "missing"),
    [
        pytest.param("", [], [], {}, ["gpu"], id="new group"),
        pytest.param("", [], [GROUP_CLAIM], {"gpu": "gang-gpu-y"}, [], id="created, not recorded"),
        pytest.param("gang-gpu-y", [GROUP_CLAIM], [GROUP_CLAIM], {"gpu": "gang-gpu-y"}, [], id="recorded"),
        pytest.param("web-gpu-x", [OWNED], [], {}, ["gpu"], id="recorded claim of another owner"),
    ],
)
def test_plan_of_a_group(recorded, cached, owned, names, missing):
    status = pod_claim_status(gpu=recorded) if recorded else {}
    body = {"metadata": GROUP_METADATA, "spec": {"resourceClaims": [TEMPLATE, SHARED]}, "status": status}
    group = convert(PodGroup, body)
    plan = plan_group_claims(group, finder(*cached), owned)
    assert (plan.names, [entry.name for entry in plan.missing]) == (names, missing)
    assert group_needs_work(group, finder(*cached)) is (recorded == "")


def test_claim_of_a_group_has_the_group_as_owner():
    body = claim_from_template(POD_GROUPS, GROUP, GROUP.spec.resource_claims[0], claim_template())
    assert body["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "name": "gang",
            "uid": "group-uid",
            "controller": True,
        }
    ]
    assert body["metadata"]["generateName"] == "gang-gpu-"


LATER = {"name": "later", "resourceClaimTemplateName": "later"}
ENTRIES = (LATER, {"name": "none", "resourceClaimTemplateName": "none"}, SHARED, TEMPLATE)
LATER_ENTRIES = pod_claim_status(none=None, gpu="web-gpu-x")


def test_entries_without_a_claim_hide_no_later_entry():
    """One entry has no claim yet, one needs none, one names a claim, and the last has a recorded claim."""
    shared = resource_claim("shared", status={"allocation": ALLOCATION})
    pod = pod_with_claims(*ENTRIES, status=LATER_ENTRIES, nodeName="n")
    assert used_claims(pod) == ["shared", "web-gpu-x"]
    reserved = claims_to_reserve(pod, finder(shared, ALLOCATED))
    assert [claim.metadata.name for claim, _ in reserved] == ["shared", "web-gpu-x"]
    plan = plan_pod_claims(pod, finder(shared, ALLOCATED), [ALLOCATED])
    assert (plan.names, [entry.name for entry in plan.missing]) == ({"gpu": "web-gpu-x"}, ["later"])


@pytest.mark.parametrize(
    ("cached", "works"), [pytest.param([], True, id="deleted"), pytest.param([ALLOCATED], False, id="there")]
)
def test_need_of_work_considers_all_entries(cached, works):
    pod = pod_with_claims(*ENTRIES[1:], status=LATER_ENTRIES)
    assert needs_work(pod, finder(*cached)) is works


def test_pod_that_the_scheduler_binds_reserves_nothing():
    assert claims_to_reserve(pod_with_claims(TEMPLATE, status=RECORDED), finder(ALLOCATED)) == []
    assert claims_to_reserve(pod_with_claims(TEMPLATE, status=RECORDED, nodeName="n"), finder()) == []
