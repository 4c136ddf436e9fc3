"""Types of the API as schemas."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.openapi.schemas import Schemas, title

POD_SPEC = "io.k8s.api.core.v1.PodSpec"


@pytest.mark.parametrize(
    ("v3", "prefix"), [(True, "#/components/schemas/"), (False, "#/definitions/")], ids=["v3", "v2"]
)
def test_reference_adds_the_type_and_those_that_it_refers_to(v3: bool, prefix: str):
    schemas = Schemas(v3=v3)
    assert schemas.reference("core/v1.PodSpec") == {"$ref": prefix + POD_SPEC}
    assert schemas.schemas[POD_SPEC]["required"] == ["containers"]
    containers = schemas.schemas[POD_SPEC]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert "io.k8s.api.core.v1.Container" in schemas.schemas


def test_kind_of_a_type():
    schemas = Schemas(v3=True)
    schemas.reference("core/v1.Pod")
    pod = schemas.schemas["io.k8s.api.core.v1.Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]


@pytest.mark.parametrize(
    ("of", "versions"),
    [(("apps", "v1"), [("", "v1"), ("apps", "v1")]), (("", "v1"), [("", "v1")])],
)
def test_kinds_of_every_version_are_limited_to_the_document(of: tuple[str, str], versions: list[tuple[str, str]]):
    schemas = Schemas(v3=True, of=of)
    schemas.reference("meta/v1.DeleteOptions")
    kinds = schemas.schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]["x-kubernetes-group-version-kind"]
    assert [(kind["group"], kind["version"]) for kind in kinds] == versions


def test_custom_resource_is_named_by_its_reversed_group():
    schemas = Schemas(v3=True, of=None)
    schemas.define("example.com", "v1", "Widget", {"properties": {"status": {}}})
    name = schemas.type_name("example.com", "v1", "Widget")
    assert (name, schemas.reference(name)) == (
        "com.example.v1.Widget",
        {"$ref": "#/components/schemas/com.example.v1.Widget"},
    )
    assert schemas.has_status(name)


@pytest.mark.parametrize(("type_name", "expected"), [("core/v1.Pod", True), ("core/v1.ConfigMap", False)])
def test_type_with_a_status(type_name: str, expected: bool):
    assert Schemas(v3=True).has_status(type_name) is expected


@pytest.mark.parametrize(("text", "expected"), [("podSpec", "PodSpec"), ("", "")])
def test_title(text: str, expected: str):
    assert title(text) == expected
