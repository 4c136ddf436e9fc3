"""Rules of one served version: decoding, writes, deprecation, columns and field selectors."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.api.strategy import Write, strategy_of
from kubeloop.devcluster.apiextensions.served_version import ServedVersion, version_rank
from kubeloop.devcluster.printers.table import table
from kubeloop.devcluster.registry.preparation import (
    prepare_for_create,
    prepare_for_subresource_update,
    prepare_for_update,
)
from kubeloop.devcluster.validation.validate import write_warnings
from support.apiserver.api_requests import InProcessApi
from support.apiserver.served_definitions import ServedDefinitions
from support.comparison.custom_resource_requests import definition

JSON = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def served_version(*versions: JSON, **version: Any) -> ServedVersion:
    """Return the last served version of a definition with one version, with the fields `version`, or `versions`."""
    obj = definition(**version)
    if versions:
        obj["spec"]["versions"] = [*versions]
    served = ServedDefinitions()
    served.create(obj)
    return served.definitions.versions()[-1]


def gear(**fields: Any) -> JSON:
    return {"apiVersion": "other.example.com/v1", "kind": "Gear", "metadata": {"name": "g", "uid": "u"}, **fields}


def test_versions_sort_in_discovery_order():
    names = ["v1alpha1", "v10", "v2", "v1beta2", "v1", "foo", "v11beta1", "v1beta1"]
    assert sorted(names, key=version_rank) == ["v10", "v2", "v1", "v11beta1", "v1beta2", "v1beta1", "v1alpha1", "foo"]


def test_decode_prunes_and_reports_unknown_fields():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    version = served_version(schema={"openAPIV3Schema": schema})
    assert version.decode(gear(a="x", b="y")) == (gear(a="x"), ['unknown field "b"'])


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        pytest.param({"apiVersion": "other.example.com/v2"}, 400, id="other version"),
        pytest.param({"kind": "Cog"}, 422, id="other kind"),
    ],
)
def test_wrong_kind_or_version_is_an_error(fields: JSON, code: int):
    assert served_version().wrong_kind(gear(**fields)).code == code


def test_status_is_written_through_its_subresource_only():
    version = served_version(subresources={"status": {}})
    created = gear(spec={"a": 1}, status={"b": 1})
    prepare_for_create(version.served, strategy_of(version.served.resource), created, Write())
    assert created == gear(spec={"a": 1}) | {"metadata": {"name": "g", "uid": "u", "generation": 1}}
    update = gear(spec={"a": 2}, status={"b": 2})
    prepare_for_update(
        version.served, strategy_of(version.served.resource), update, {**created, "status": {"b": 1}}, {}, Write()
    )
    assert (update["status"], update["metadata"]["generation"]) == ({"b": 1}, 2)
    sent = gear(spec={"a": 3}, status={"b": 3})
    written = prepare_for_subresource_update(strategy_of(version.served.resource), sent, created, "status", Write())
    assert written == {**created, "status": {"b": 3}}


def test_warnings_name_finalizers_without_a_domain():
    obj = gear()
    obj["metadata"]["finalizers"] = ["example.com/a", "foregroundDeletion", "mine"]
    (warning,) = write_warnings(strategy_of(served_version().served.resource), obj)
    assert warning.startswith('metadata.finalizers: "mine": prefer a domain-qualified finalizer name ')
    assert write_warnings(strategy_of(served_version().served.resource), obj, obj) == []


def test_deprecation_names_the_newer_version():
    fields: JSON = {"served": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    old = {**fields, "name": "v1beta1", "storage": False, "deprecated": True}
    new = {**fields, "name": "v1", "storage": True}
    assert served_version(new, old).served.deprecated == (
        "other.example.com/v1beta1 Gear is deprecated; use other.example.com/v1 Gear"
    )
    assert served_version(new).served.deprecated == ""
    assert served_version(new, {**old, "deprecationWarning": "use v1"}).served.deprecated == "use v1"


def test_cells_are_the_values_of_the_columns():
    columns = [
        {"name": "Text", "type": "string", "jsonPath": ".spec.text"},
        {"name": "Count", "type": "integer", "jsonPath": ".spec.count"},
        {"name": "On", "type": "boolean", "jsonPath": ".spec.on"},
        {"name": "Missing", "type": "string", "jsonPath": ".spec.missing"},
    ]
    version = served_version(additionalPrinterColumns=columns)
    obj = gear(spec={"text": ["a"], "count": 2.0, "on": "yes"})
    assert table(version.served, [obj], now=NOW, include_object="None", list_metadata={})["rows"][0]["cells"] == [
        "g",
        '["a"]',
        2,
        None,
        None,
    ]


def test_field_getters_read_selectable_fields():
    properties = {"on": {"type": "boolean"}, "color": {"type": "string"}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    selectable = [{"jsonPath": ".spec.on"}, {"jsonPath": ".spec.color"}]
    version = served_version(schema={"openAPIV3Schema": schema}, selectableFields=selectable)
    getters = strategy_of(version.served.resource).selectable_fields
    assert getters is not None
    values = {name: get(gear(spec={"on": True})) for name, get in getters.items()}
    assert values == {"metadata.name": "g", "spec.on": "true", "spec.color": ""}


async def test_write_in_another_version_gets_the_defaults_of_the_stored_one():
    def schema(field: str) -> JSON:
        part = {"type": "object", "default": {}, "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
        part["properties"] |= {field: {"type": "string", "default": f"default of {field}"}}
        return {"openAPIV3Schema": {"type": "object", "properties": {"spec": part, "status": part}}}

    obj = definition()
    names = obj["spec"]["names"]["plural"]
    obj["spec"]["versions"] = [
        {"name": name, "served": True, "storage": name == "v1", "schema": schema(field), "subresources": {"status": {}}}
        for name, field in (("v1", "a"), ("v2", "b"))
    ]
    api = InProcessApi()
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", obj)
    path = f"/apis/{obj['spec']['group']}/v2/{names}"
    body = {"apiVersion": f"{obj['spec']['group']}/v2", "kind": obj["spec"]["names"]["kind"], "metadata": {"name": "g"}}
    both = {"a": "default of a", "b": "default of b"}
    assert api.create(f"{path}?dryRun=All", body)["spec"] == both
    created = api.create(path, body)
    assert (created["spec"], created["status"]) == (both, {"a": "default of a"})
    assert api.succeed("PATCH", f"{path}/g", {"spec": None})["spec"] == both
