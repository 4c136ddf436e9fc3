"""DefaultStorageClass and DefaultIngressClass."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.default_classes import set_default_storage_class
from kubeloop.devcluster.api.served_resources import INGRESS_CLASSES
from kubeloop.devcluster.kinds.networking.ingress import set_default_ingress_class
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.objects.resources import STORAGE_CLASSES
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
DEFAULT_STORAGE = "storageclass.kubernetes.io/is-default-class"
BETA_DEFAULT_STORAGE = "storageclass.beta.kubernetes.io/is-default-class"
DEFAULT_INGRESS = "ingressclass.kubernetes.io/is-default-class"


def class_of(name: str, created: str = "2026-01-01T00:00:00Z", **annotations: str) -> JSON:
    return {"metadata": {"name": name, "creationTimestamp": created, "annotations": annotations}}


@pytest.mark.parametrize(
    ("classes", "claim", "name"),
    [
        pytest.param([class_of("a", **{DEFAULT_STORAGE: "true"})], {}, "a", id="default class"),
        pytest.param([class_of("a", **{BETA_DEFAULT_STORAGE: "true"})], {}, "a", id="beta annotation"),
        pytest.param([class_of("a", **{DEFAULT_STORAGE: "false"})], {}, None, id="no default class"),
        pytest.param(
            [
                class_of("old", **{DEFAULT_STORAGE: "true"}),
                class_of("z", "2026-02-01T00:00:00Z", **{DEFAULT_STORAGE: "true"}),
                class_of("y", "2026-02-01T00:00:00Z", **{DEFAULT_STORAGE: "true"}),
            ],
            {},
            "y",
            id="newest default class, then the first by name",
        ),
        pytest.param([class_of("a", **{DEFAULT_STORAGE: "true"})], {"storageClassName": ""}, "", id="empty class name"),
    ],
)
def test_default_storage_class(classes: list[JSON], claim: JSON, name: str | None):
    store = ObjectStore(seconds=lambda: 0.0)
    for storage_class in classes:
        store.create(STORAGE_CLASSES, storage_class)
    obj: JSON = {"metadata": {}, "spec": claim}
    set_default_storage_class(store, obj)
    assert obj["spec"].get("storageClassName") == name


@pytest.mark.parametrize(
    ("ingress", "name"),
    [
        pytest.param({"metadata": {}}, "nginx", id="ingress without a spec"),
        pytest.param({"metadata": {}, "spec": {"ingressClassName": "other"}}, "other", id="named class"),
        pytest.param({"metadata": {"annotations": {"kubernetes.io/ingress.class": "x"}}}, None, id="annotated class"),
    ],
)
def test_default_ingress_class(ingress: JSON, name: str | None):
    store = ObjectStore(seconds=lambda: 0.0)
    store.create(INGRESS_CLASSES, class_of("nginx", **{DEFAULT_INGRESS: "true"}))
    set_default_ingress_class(store, ingress)
    assert ingress.get("spec", {}).get("ingressClassName") == name


async def test_ingress_request_gets_the_newest_default_class():
    api, networking = InProcessApi(), "/apis/networking.k8s.io/v1"
    for name in ("b", "a"):
        metadata = {"name": name, "annotations": {DEFAULT_INGRESS: "true"}}
        api.create(f"{networking}/ingressclasses", {"metadata": metadata, "spec": {"controller": "a.b/c"}})
    spec = {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}
    class_names = []
    for i, metadata in enumerate(({}, {"annotations": {"kubernetes.io/ingress.class": "x"}})):
        body = {"metadata": {"name": f"i{i}", **metadata}, "spec": spec}
        ingress = api.create(f"{networking}/namespaces/default/ingresses", body)
        class_names.append(ingress["spec"].get("ingressClassName"))
    assert class_names == ["a", None]
