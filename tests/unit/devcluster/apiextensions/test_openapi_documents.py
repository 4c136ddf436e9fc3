"""Discovery and OpenAPI documents with custom resources."""

from __future__ import annotations

import msgspec
import pytest

from kubeloop.devcluster.apiextensions.openapi_documents import CustomResourceDocuments
from kubeloop.devcluster.openapi.discovery import get_discovery_document
from kubeloop.devcluster.openapi.documents import get_openapi_document
from support.apiserver.served_definitions import ServedDefinitions
from support.comparison.custom_resource_requests import definition

JSON_TYPE = "application/json"


@pytest.fixture
def served() -> ServedDefinitions:
    return ServedDefinitions()


@pytest.fixture
def documents(served: ServedDefinitions) -> CustomResourceDocuments:
    return CustomResourceDocuments(served.definitions)


def test_documents_without_definitions_are_the_built_in_ones(documents: CustomResourceDocuments):
    assert documents.discovery("/apis", JSON_TYPE) == get_discovery_document("/apis", JSON_TYPE)
    assert documents.openapi("/openapi/v3", JSON_TYPE) == get_openapi_document("/openapi/v3", JSON_TYPE)


def test_discovery_lists_groups_and_resources_of_definitions(
    served: ServedDefinitions, documents: CustomResourceDocuments
):
    served.create(definition(subresources={"status": {}}))
    groups = documents.discovery("/apis", JSON_TYPE)
    assert groups is not None
    assert groups[0]["groups"][-1]["name"] == "other.example.com"
    resources = documents.discovery("/apis/other.example.com/v1", JSON_TYPE)
    assert resources is not None
    assert [resource["name"] for resource in resources[0]["resources"]] == ["gears", "gears/status"]
    assert documents.discovery("/apis/other.example.com/v2", JSON_TYPE) is None


def test_openapi_document_of_a_group_has_its_schemas_and_paths(
    served: ServedDefinitions, documents: CustomResourceDocuments
):
    schema = {"type": "object", "properties": {"teeth": {"type": "integer", "nullable": True}}}
    served.create(definition(schema={"openAPIV3Schema": schema}))
    response = documents.openapi("/openapi/v3/apis/other.example.com/v1", JSON_TYPE)
    assert response is not None
    document = msgspec.json.decode(response[0])
    gear = document["components"]["schemas"]["com.example.other.v1.Gear"]
    assert gear["properties"]["teeth"] == {"type": "integer", "nullable": True}
    assert set(gear["properties"]) == {"apiVersion", "kind", "metadata", "teeth"}
    assert gear["properties"]["metadata"]["description"].startswith("Standard object's metadata. More info: https://")
    gears = document["components"]["schemas"]["com.example.other.v1.GearList"]["properties"]
    assert gears["metadata"]["description"].startswith("Standard list metadata. More info: https://")
    assert "/apis/other.example.com/v1/gears/{name}" in document["paths"]


def test_digest_changes_with_the_definitions_of_the_group(
    served: ServedDefinitions, documents: CustomResourceDocuments
):
    served.create(definition())
    name = "apis/other.example.com/v1"
    digest = documents.digest(name)
    assert digest == documents.digest(name)
    served.create(definition("cogs", "Cog"))
    assert documents.digest(name) != digest
