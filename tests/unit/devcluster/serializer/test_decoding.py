"""Decoding: dropped, added and canonicalized fields, unknown fields, and type errors."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.api.served_resources import LIMIT_RANGES, RUNTIME_CLASSES
from kubeloop.devcluster.serializer.decoding import DecodeError, decode, decode_named, decode_patched
from kubeloop.kube.objects.resources import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    LEASES,
    NODES,
    PODS,
    Resource,
)
from kubeloop.kube.values import times


def pod(**spec: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def test_nulls_and_empty_optional_fields_are_dropped():
    obj, strict = decode(
        PODS, pod(containers=[{"name": "c", "env": [], "ports": None, "stdin": False}], nodeSelector={}, affinity={})
    )
    assert strict == []
    assert obj["spec"] == {"containers": [{"name": "c", "resources": {}}], "affinity": {}}


def test_fields_that_go_always_encodes_are_added():
    obj, _ = decode(NODES, {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    assert obj["spec"] == {}
    assert obj["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}
    assert obj["status"]["nodeInfo"]["kubeletVersion"] == ""
    assert obj["status"]["conditions"] == [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": None, "lastTransitionTime": None}
    ]


def test_zero_of_a_pointer_field_is_kept():
    obj, _ = decode(DEPLOYMENTS, {"metadata": {}, "spec": {"replicas": 0, "minReadySeconds": 0}})
    assert obj["spec"]["replicas"] == 0
    assert "minReadySeconds" not in obj["spec"]


@pytest.mark.parametrize(
    ("quantity", "canonical"),
    [
        pytest.param("0.5", "500m", id="decimal"),
        pytest.param(2, "2", id="number"),
        pytest.param("1.0001", "1001m", id="rounded up to thousandths"),
        pytest.param("1e9", "1e9", id="exponent"),
        pytest.param("010", "010", id="leading zero"),
        pytest.param("+10", "+10", id="sign"),
        pytest.param("1E+3", "1E+3", id="uppercase exponent"),
        pytest.param("01Gi", "01Gi", id="binary"),
        pytest.param(" 1000 ", "1k", id="blanks"),
        pytest.param("1.5Gi", "1536Mi", id="binary fraction"),
        pytest.param("84e-12", "1e-3", id="rounded, with its exponent"),
        pytest.param("-1.0001", "-1001m", id="rounded away from zero"),
    ],
)
def test_quantities_are_canonicalized(quantity, canonical):
    obj, _ = decode(PODS, pod(containers=[{"name": "c", "resources": {"limits": {"cpu": quantity}}}]))
    assert obj["spec"]["containers"][0]["resources"]["limits"]["cpu"] == canonical


def test_runtime_class_overhead_is_not_rounded():
    obj, _ = decode(RUNTIME_CLASSES, {"handler": "h", "overhead": {"podFixed": {"cpu": "1n"}}})
    assert obj["overhead"] == {"podFixed": {"cpu": "1n"}}


def test_unknown_fields_are_dropped_and_reported():
    obj, strict = decode(PODS, pod(containers=[{"name": "c", "imagee": "x"}], foo=1))
    assert sorted(strict) == ['unknown field "spec.containers[0].imagee"', 'unknown field "spec.foo"']
    assert "foo" not in obj["spec"]


@pytest.mark.parametrize(
    ("resource", "obj", "message"),
    [
        pytest.param(
            PODS,
            pod(containers={"name": "c"}),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
            id="object for a list",
        ),
        pytest.param(
            PODS,
            pod(containers=[], terminationGracePeriodSeconds="5"),
            "json: cannot unmarshal string into Go struct field PodSpec.spec.terminationGracePeriodSeconds"
            " of type int64",
            id="string for a number",
        ),
        pytest.param(
            PODS,
            {"metadata": {"labels": {"a": 1}}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            id="number in a map of strings",
        ),
        pytest.param(
            PODS,
            pod(containers=[{"resources": {"limits": {"cpu": "abc"}}}]),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            id="invalid quantity",
        ),
        pytest.param(
            LEASES,
            {"metadata": {}, "spec": {"renewTime": "yesterday"}},
            'parsing time "yesterday" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "yesterday" as "2006"',
            id="invalid time",
        ),
        pytest.param(
            LEASES,
            {"metadata": {}, "spec": {"renewTime": "2024-01-02T03:04:05Z"}},
            'parsing time "2024-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000"',
            id="micro time without a fraction",
        ),
        pytest.param(
            CONFIG_MAPS,
            {"metadata": {}, "binaryData": {"a": "AA=!"}},
            "illegal base64 data at input byte 2",
            id="invalid base64",
        ),
    ],
)
def test_type_errors_have_go_messages(resource: Resource[object], obj, message):
    with pytest.raises(DecodeError) as raised:
        decode(resource, obj)
    assert str(raised.value) == message


def test_times_are_converted_to_utc():
    obj, _ = decode_named("meta/v1.ObjectMeta", {"creationTimestamp": "2024-01-02T05:04:05.5+02:00"})
    assert obj["creationTimestamp"] == "2024-01-02T03:04:05Z"


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00+14:00", "0000-12-31T10:00:00Z"),
        ("0999-12-31T23:59:59Z", "0999-12-31T23:59:59Z"),
        ("9999-12-31T23:59:59-12:00", "10000-01-01T11:59:59Z"),
        ("2026-01-01T1:00:00,5Z", "2026-01-01T01:00:00Z"),
        ("2026-01-01T00:00:00+24:60", "2025-12-30T23:00:00Z"),
    ],
)
def test_times_that_go_accepts(text: str, stored: str | None):
    obj, _ = decode_named("meta/v1.ObjectMeta", {"deletionTimestamp": text})
    assert obj["deletionTimestamp"] == stored
    obj, _ = decode_named("meta/v1.ObjectMeta", {"creationTimestamp": text})
    assert obj.get("creationTimestamp") == stored


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2026-02-29T00:00:00Z", ": day out of range"),
        ("2026-00-01T00:00:00Z", ": month out of range"),
        ("2026-01-01T24:00:00Z", ": hour out of range"),
        ("2026-01-01T23:60:00Z", ": minute out of range"),
        ("2026-01-01T23:00:60Z", ": second out of range"),
        ("2026-01-01T00:00:00+25:00", ": time zone offset hour out of range"),
        ("2026-01-01T00:00:00-00:61", ": time zone offset minute out of range"),
        ("2026-01-01T00:00:00Zx", ': extra text: "x"'),
        ("10000-01-01T00:00:00Z", ' as "2006-01-02T15:04:05Z07:00": cannot parse "0-01-01T00:00:00Z" as "-"'),
        ("2026-01-01T00:00:00é", r' as "2006-01-02T15:04:05Z07:00": cannot parse "\xc3\xa9" as "Z07:00"'),
    ],
)
def test_invalid_times_have_go_messages(text: str, problem: str):
    with pytest.raises(DecodeError) as raised:
        decode_named("meta/v1.ObjectMeta", {"deletionTimestamp": text})
    assert str(raised.value) == f"parsing time {times.quoted_text(text)}{problem}"


def test_input_is_not_modified():
    limit_range = {
        "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "0.5"}, "min": {}}]},
    }
    decode(LIMIT_RANGES, limit_range)
    assert limit_range["spec"] == {"limits": [{"type": "Container", "max": {"cpu": "0.5"}, "min": {}}]}


def test_patched_object_shares_only_managed_fields_with_the_live_one():
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i:1"}], "terminationGracePeriodSeconds": 30}
    metadata = {
        "name": "p",
        "labels": {"b": "1", "a": "2"},
        "managedFields": [{"manager": "m", "fieldsV1": {"f:x": {}}}],
    }
    live, _ = decode(PODS, {**pod(**spec), "metadata": metadata, "status": {"phase": "Running"}})
    patched = {**live, "metadata": {**live["metadata"], "uid": "u", "resourceVersion": "7"}, "status": {"phase": None}}
    decoded, unknown = decode_patched(PODS, patched, live)
    assert (list(decoded.items()), unknown) == (list(decode(PODS, patched)[0].items()), [])
    assert list(decoded["metadata"]) == list(decode(PODS, patched)[0]["metadata"])
    decoded["spec"]["containers"].clear()
    decoded["metadata"]["labels"].clear()
    assert live["spec"]["containers"][0]["name"] == "c"
    assert live["metadata"]["labels"] == {"a": "2", "b": "1"}
    assert decoded["metadata"]["managedFields"] is live["metadata"]["managedFields"]


def test_patched_status_shares_all_other_values_with_the_live_object():
    live, _ = decode(PODS, {**pod(nodeName="n"), "metadata": {"labels": {"a": "1"}}, "status": {"phase": "Running"}})
    for status in (live["status"], {"phase": "Failed"}):
        patched = {**live, "status": status}
        decoded, unknown = decode_patched(PODS, patched, live, writes_status=True)
        assert (list(decoded.items()), unknown) == (list(decode(PODS, patched)[0].items()), [])
        assert decoded["spec"] is live["spec"]
        assert decoded["metadata"]["labels"] is live["metadata"]["labels"]
        assert decoded["status"] is not live["status"]


def test_unknown_fields_of_a_patched_object_are_reported():
    live, _ = decode(PODS, pod(containers=[]))
    patched = {**live, "metadata": {**live["metadata"], "foo": 1}, "bar": {}}
    assert decode_patched(PODS, patched, live)[1] == ['unknown field "metadata.foo"', 'unknown field "bar"']


def test_patched_object_has_the_same_raw_data():
    live, _ = decode(CONTROLLER_REVISIONS, {"metadata": {"name": "r"}, "data": {"b": 1, "a": 2}, "revision": 1})
    decoded, _ = decode_patched(CONTROLLER_REVISIONS, {**live, "revision": 2}, live)
    assert decoded["data"] is live["data"]
