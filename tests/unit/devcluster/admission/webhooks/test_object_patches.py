"""Patches of mutating webhooks: decoding, application, defaults."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.admission.webhooks.object_patches import (
    UndecodablePatch,
    decode_patch,
    in_request_form,
    patched_object,
)
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.api.slow_work import start
from kubeloop.kube.objects.resources import CONFIG_MAPS, PODS

MAPS = get_served_resource(CONFIG_MAPS)
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}}


@pytest.mark.parametrize(
    ("patch", "error"),
    [
        (b"{}", "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
        (b"[1]", "json: cannot unmarshal number into Go value of type jsonpatch.Operation"),
        (b"x", "invalid character 'x' looking for beginning of value"),
    ],
)
def test_undecodable_patch_has_the_error_of_go(patch: bytes, error: str):
    with pytest.raises(UndecodablePatch) as raised:
        decode_patch(patch)
    assert str(raised.value) == error


def test_null_patch_has_no_operations():
    assert decode_patch(b"null") == []


def test_patched_object_has_defaults():
    operations = decode_patch(b'[{"op": "add", "path": "/spec/containers/-", "value": {"name": "s", "image": "i:1"}}]')
    changed, is_changed = patched_object(get_served_resource(PODS), POD, operations)
    assert is_changed
    assert changed["spec"]["containers"][1]["imagePullPolicy"] == "IfNotPresent"


def test_patch_to_the_same_object_is_no_change():
    same = {"op": "replace", "path": "/data/a", "value": "b"}
    assert patched_object(MAPS, MAP, [same])[1] is False
    assert patched_object(MAPS, MAP, [{**same, "value": "c"}])[1] is True


def test_unknown_field_is_dropped():
    changed, is_changed = patched_object(MAPS, MAP, [{"op": "add", "path": "/colour", "value": "red"}])
    assert (changed, is_changed) == (MAP, False)


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ({"op": "test", "path": "/data/a", "value": "x"}, "testing value /data/a failed: test failed"),
        ({"op": "add", "path": "/x/y", "value": "x"}, 'add operation does not apply: doc is missing path: "/x/y"'),
        ({"op": "add", "path": "/data", "value": 1}, "json: cannot unmarshal number into Go struct field"),
    ],
)
def test_patch_that_does_not_fit_is_an_internal_error(operation: dict[str, object], error: str):
    with pytest.raises(StatusError) as raised:
        patched_object(MAPS, MAP, [operation])
    assert raised.value.code == 500
    assert raised.value.message.startswith(f"Internal error occurred: {error}")


def test_object_of_a_built_in_kind_needs_no_webhook():
    assert start(in_request_form(MAPS, MAPS, MAP)) is MAP
