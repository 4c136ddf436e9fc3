"""Claims of a Pod: names, owners and reservations."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.pod_claims import (
    ClaimNotCreated,
    claim_keys,
    claim_name,
    group_claim_name,
    is_owned_by,
    is_owned_by_group,
    is_reserved_for,
    is_reserved_for_group,
    is_shared,
)
from kubeloop.kube.objects.workload_types import PodGroup
from support.objects.resource_claims import (
    consumer,
    group_resource_claim,
    pod_claim_status,
    pod_with_claims,
    resource_claim,
)

BY_NAME = {"name": "gpu", "resourceClaimName": "shared"}


def test_name_of_a_claim_is_that_of_the_spec():
    pod = pod_with_claims(BY_NAME, status=pod_claim_status(gpu="other"))
    assert claim_name(pod, pod.spec.resource_claims[0]) == "shared"


@pytest.mark.parametrize("name", ["web-gpu-x", None])
def test_name_of_a_templates_claim_is_that_of_the_status(name):
    pod = pod_with_claims(status=pod_claim_status(other="y", gpu=name))
    assert claim_name(pod, pod.spec.resource_claims[0]) == name


def test_templates_claim_without_a_name_is_not_created():
    pod = pod_with_claims(status=pod_claim_status(other="y"))
    with pytest.raises(ClaimNotCreated, match='pod "ns/web": ResourceClaim not created yet'):
        claim_name(pod, pod.spec.resource_claims[0])


@pytest.mark.parametrize(("uid", "owned"), [("pod-uid", True), ("of-another-pod", False), ("", False)])
def test_claim_belongs_to_the_pod_with_the_uid_of_its_controller(uid, owned):
    assert is_owned_by(resource_claim(owner=uid), pod_with_claims()) is owned


@pytest.mark.parametrize(("uids", "reserved"), [(("a", "pod-uid"), True), (("a",), False), ((), False)])
def test_claim_is_reserved_for_the_pods_in_its_status(uids, reserved):
    claim = resource_claim(status={"reservedFor": [consumer(uid=uid) for uid in uids]})
    assert is_reserved_for(claim, pod_with_claims()) is reserved


def pod_group(**status) -> PodGroup:
    entries = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}, BY_NAME | {"name": "nic"}]
    body = {"metadata": {"name": "gang", "namespace": "ns"}, "spec": {"resourceClaims": entries}, "status": status}
    return convert(PodGroup, body)


def test_name_of_a_groups_claim_is_that_of_spec_or_status():
    group = pod_group(**pod_claim_status(gpu="gang-gpu-y"))
    assert [group_claim_name(group, entry) for entry in group.spec.resource_claims] == ["gang-gpu-y", "shared"]
    with pytest.raises(ClaimNotCreated, match="PodGroup ns/gang: ResourceClaim not created yet"):
        group_claim_name(pod_group(), group.spec.resource_claims[0])


@pytest.mark.parametrize(
    ("entry", "shared"),
    [
        ({"name": "gpu", "resourceClaimTemplateName": "gpus"}, True),
        ({"name": "gpu", "resourceClaimTemplateName": "other"}, False),
        ({"name": "other", "resourceClaimTemplateName": "gpus"}, False),
        ({"name": "gpu", "resourceClaimName": "gpus"}, False),
    ],
)
def test_group_shares_the_claim_of_an_equal_entry(entry, shared):
    assert is_shared(pod_with_claims(entry).spec.resource_claims[0], pod_group()) is shared


@pytest.mark.parametrize(
    ("group", "expected"), [({"podGroupName": "gang"}, True), ({"podGroupName": "other"}, False), (None, False)]
)
def test_claim_belongs_to_and_is_reserved_for_the_group_that_the_pod_names(group, expected):
    pod = pod_with_claims(schedulingGroup=group)
    reservation = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "u"}
    claim = group_resource_claim("c", entry="gpu", status={"reservedFor": [reservation]})
    assert (is_owned_by_group(claim, pod), is_reserved_for_group(claim, pod)) == (expected, expected)
    assert not is_owned_by_group(resource_claim(owner="pod-uid"), pod)


def test_keys_of_the_claims_that_exist():
    entries = [BY_NAME, BY_NAME | {"name": "again"}, *({"name": n, "resourceClaimTemplateName": n} for n in "abc")]
    pod = pod_with_claims(*entries, status=pod_claim_status(a="web-a", b=None))
    assert sorted(claim_keys(pod)) == [f"{pod.metadata.namespace}/shared", f"{pod.metadata.namespace}/web-a"]
