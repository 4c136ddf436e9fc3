"""Scale targets of autoscalers: any kind with a subresource `scale`."""

from __future__ import annotations

import pytest

from kubeloop.controllers.podautoscaler.scale_target import ScaleError, ScaleTargets
from kubeloop.kube.errors import Conflict, NotFound, ServerUnreachable, from_status
from kubeloop.kube.objects.api_types import ApiStatus, CrossVersionObjectReference
from support.objects.autoscaled_pods import add_target, replicas, set_replicas

pytestmark = pytest.mark.virtual_time

GADGET = CrossVersionObjectReference(kind="Gadget", name="g", api_version="example.com/v9")
DEPLOYMENT = CrossVersionObjectReference(kind="Deployment", name="web", api_version="apps/v1beta1")


def define_gadgets(api) -> None:
    paths = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"scale": paths},
    }
    definition = {
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [version],
        },
    }
    api.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    gadget = {"spec": {"replicas": 2}, "status": {"replicas": 1, "selector": "app=g"}}
    gadget |= {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}}
    api.api.create("/apis/example.com/v1/namespaces/ns/gadgets", gadget)


async def test_custom_resource_is_scaled_whatever_the_version_of_the_reference(fake_apiserver):
    targets = ScaleTargets(fake_apiserver.client)
    with pytest.raises(ScaleError, match='no matches for kind "Gadget" in group'):
        await targets.resource(GADGET)
    define_gadgets(fake_apiserver)
    scale = await targets.read(await targets.resource(GADGET), "ns", "g")
    assert (scale.spec_replicas, scale.status_replicas, scale.selector) == (2, 1, "app=g")
    await targets.write(scale, 7)
    assert (await targets.read(scale.resource, "ns", "g")).spec_replicas == 7


async def test_404_without_details_means_that_there_is_no_scale(fake_apiserver, monkeypatch):
    async def get_raw(*_arguments, **_options):
        raise NotFound(ApiStatus(code=404, message="404 page not found"))  # kube-apiserver's, without details

    monkeypatch.setattr(fake_apiserver.client, "get_raw", get_raw)
    targets = ScaleTargets(fake_apiserver.client)
    with pytest.raises(ScaleError, match=r"^the server could not find the requested resource$"):
        await targets.read(await targets.resource(DEPLOYMENT), "ns", "web")


async def test_scale_is_read_again_after_a_conflict(fake_apiserver):
    add_target(fake_apiserver, 1)
    targets = ScaleTargets(fake_apiserver.client)
    scale = await targets.read(await targets.resource(DEPLOYMENT), "ns", "web")
    set_replicas(fake_apiserver, 2)
    await targets.write(scale, 5)
    assert replicas(fake_apiserver) == 5
    assert len(fake_apiserver.written("PUT")) == 2


async def test_conflicts_are_retried_four_times(fake_apiserver):
    add_target(fake_apiserver, 1)
    targets = ScaleTargets(fake_apiserver.client)
    scale = await targets.read(await targets.resource(DEPLOYMENT), "ns", "web")
    original = fake_apiserver.client.get_raw

    async def get_raw(*arguments, **options):
        return {**await original(*arguments, **options), "metadata": scale.body["metadata"]}

    set_replicas(fake_apiserver, 2)
    fake_apiserver.client.get_raw = get_raw  # an outdated scale
    with pytest.raises(Conflict):
        await targets.write(scale, 5)
    assert len(fake_apiserver.written("PUT")) == 5


async def test_invalid_api_version_is_an_error(fake_apiserver):
    reference = CrossVersionObjectReference(kind="Deployment", name="web", api_version="a/b/c")
    with pytest.raises(ScaleError, match="unexpected GroupVersion string: a/b/c"):
        await ScaleTargets(fake_apiserver.client).resource(reference)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(from_status(ApiStatus(code=500, message="broken")), id="server error"),
        pytest.param(ServerUnreachable("broken", maybe_applied=False), id="unreachable"),
    ],
)
async def test_scale_that_cannot_be_read_is_an_error(fake_apiserver, monkeypatch, error):
    async def get_raw(*_arguments, **_options):
        raise error

    targets = ScaleTargets(fake_apiserver.client)
    resource = await targets.resource(DEPLOYMENT)
    for method in ("get_raw", "raw"):
        monkeypatch.setattr(fake_apiserver.client, method, get_raw)
    with pytest.raises(ScaleError, match=r"^broken"):
        await targets.read(resource, "ns", "web")
    with pytest.raises(ScaleError, match=r"^broken"):
        await targets.resource(GADGET)
