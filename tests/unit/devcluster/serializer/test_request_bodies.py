"""Parsing of request bodies: unpaired surrogates, duplicate fields and kinds."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import EVENTS_V1, INGRESSES
from kubeloop.devcluster.serializer.request_bodies import check_kind, merge_strict_errors, parse_json
from kubeloop.kube.objects.resources import DEPLOYMENTS, EVENTS, PODS, REPLICA_SETS, Resource
from support.apiserver.api_requests import InProcessApi


def test_unpaired_surrogates_are_replaced():
    value, _ = parse_json(rb'{"a": "\ud800", "b": "\ud83d\ude00", "c": "\\ud800"}')
    assert value == {"a": "\ufffd", "b": "\U0001f600", "c": r"\ud800"}


def test_duplicate_fields_are_merged_and_reported():
    value, errors = parse_json(b'{"a": {"b": 1}, "c": [{"d": 1, "d": 2}], "a": {"e": 2}}')
    assert value == {"a": {"b": 1, "e": 2}, "c": [{"d": 2}]}
    assert sorted(errors) == ['duplicate field "a"', 'duplicate field "c[0].d"']


def test_at_most_100_duplicate_fields_are_reported():
    fields = ",".join(f'"{number}":1,"{number}":2' for number in range(150))
    assert parse_json(f"{{{fields}}}".encode())[1] == [f'duplicate field "{number}"' for number in range(100)]


def test_duplicate_fields_below_a_long_name_take_little_memory():
    name, repeated = "a" * 100_000, ",".join(['"b":1'] * 5_000)
    tracemalloc.start()
    try:
        _, errors = parse_json(f'{{"{name}":{{{repeated}}}}}'.encode())
        assert tracemalloc.get_traced_memory()[1] < 20 << 20  # a text of the path for each would be 500 MB
    finally:
        tracemalloc.stop()
    assert errors == [f'duplicate field "{name}.b"']


def test_unknown_fields_are_not_reported_as_duplicates():
    duplicates = ['duplicate field "spec.foo"', 'duplicate field "spec.foo.bar"', 'duplicate field "spec.a"']
    assert merge_strict_errors(duplicates, ['unknown field "spec.foo"']) == [
        'duplicate field "spec.a"', 'unknown field "spec.foo"'
    ]  # fmt: skip


MISMATCH = "the API version in the data ({}) does not match the expected API version ({})"


@pytest.mark.parametrize(
    ("resource", "api_version", "kind", "message"),
    [
        (REPLICA_SETS, "extensions/v1beta1", "ReplicaSet", MISMATCH.format("extensions/v1beta1", "apps/v1")),
        (DEPLOYMENTS, "apps/v1beta2", "Deployment", MISMATCH.format("apps/v1beta2", "apps/v1")),
        (INGRESSES, "extensions/v1beta1", "Ingress", MISMATCH.format("extensions/v1beta1", "networking.k8s.io/v1")),
        (EVENTS, "events.k8s.io/v1", "Event", MISMATCH.format("events.k8s.io/v1", "v1")),
        (EVENTS_V1, "v1", "Event", MISMATCH.format("v1", "events.k8s.io/v1")),
        (
            REPLICA_SETS,
            "apps/v1beta1",  # has no ReplicaSet
            "ReplicaSet",
            'ReplicaSet in version "v1beta1" cannot be handled as a ReplicaSet: no kind "ReplicaSet" is registered for '
            'version "apps/v1beta1"',
        ),
        (
            PODS,
            "extensions/v1beta1",
            "DaemonSet",
            'DaemonSet in version "v1beta1" cannot be handled as a Pod: converting (v1beta1.DaemonSet) to (core.Pod): '
            "unknown conversion",
        ),
    ],
)
def test_kind_of_another_version_is_refused(resource: Resource[Any], api_version: str, kind: str, message: str):
    with pytest.raises(StatusError) as raised:
        check_kind({"apiVersion": api_version, "kind": kind}, resource)
    assert (raised.value.code, message in raised.value.message) == (400, True), raised.value.message


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        (
            '{"x": 1, "metadata": {"name": "q", "y": 1, "name": "q"}, "data": {"a": "1", "a": "2"}, "z": 1, "x": 2}',
            'unknown "x", unknown "metadata.y", duplicate "metadata.name", duplicate "data.a", unknown "z"',
        ),
        ('{"metadata": {"name": "q"}, "data": {}, "data": {}, "x": {"a": 1, "a": 2}}', 'duplicate "data", unknown "x"'),
    ],
)
async def test_strict_errors_are_in_the_order_of_the_document(body: str, errors: str):
    api, path = InProcessApi(), "/api/v1/namespaces/default/configmaps?dryRun=All"
    content = api("POST", f"{path}&fieldValidation=Strict", body)[1]
    expected = errors.replace(' "', ' field "')
    assert content["message"].partition("strict decoding error: ")[2] == expected
    api.succeed("POST", f"{path}&fieldValidation=Warn", body)
    assert [warning[7:-1].replace("\\", "") for warning in api.warnings] == expected.split(", ")


def test_duplicate_objects_replace_each_other_in_untyped_json():
    value, errors = parse_json(b'{"a": {"b": 1}, "a": {"e": 2, "e": 3}}', untyped=True)
    assert value == {"a": {"e": 3}}
    assert errors == ['duplicate field "a"', 'duplicate field "a.e"']


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ({"apiVersion": "example.com/v1"}, 'Object \'Kind\' is missing in \'{"apiVersion":"example.com/v1","metadata'),
        ({"kind": "Thing"}, "the API version in the data () does not match the expected API version (example.com/v1)"),
    ],
)
async def test_custom_resource_without_kind_or_version_is_refused(kind: dict[str, str], message: str):
    api = InProcessApi()
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    definition = {"metadata": {"name": "things.example.com"}, "spec": spec}
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    status, content = api("POST", "/apis/example.com/v1/things", {**kind, "metadata": {"name": "a"}})
    assert status == 400
    assert message in content["message"]
