"""Claims of a Pod: names, owners and reservations."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.pod_claims import ClaimNotCreated, claim_name, is_owned_by, is_reserved_for
from support.resource_claims import consumer, pod_claim_status, pod_with_claims, resource_claim

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
