"""AdmissionReviews: the version that is sent, and which responses are valid."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from kubeloop.devcluster.admission.webhooks.admission_review import (
    InvalidResponse,
    UndecodableResponse,
    admission_review,
    review_version,
    verified_response,
)
from support.apiserver.admission_attributes import create_attributes

JSON = dict[str, Any]
PATCH = b64encode(b"[]").decode()
TYPE = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}


def test_first_known_version_is_sent():
    assert review_version(["v2", "v1beta1", "v1"]) == "v1beta1"
    assert review_version(["v2"]) == ""


def test_review_has_the_fields_of_the_request():
    attributes = create_attributes()
    review = json.loads(admission_review("v1", "u", attributes, attributes.served, {"a": "b"}, None))
    request = review["request"]
    assert (review["kind"], review["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    assert (request["uid"], request["object"], request["oldObject"]) == ("u", {"a": "b"}, None)
    assert (request["operation"], request["resource"]["resource"]) == ("CREATE", "configmaps")


def _verify(response: JSON | None, *, version: str = "v1", mutates: bool = True, **more: Any) -> Any:
    review = {**TYPE, "response": response, **more}
    return verified_response(json.dumps(review).encode(), version, "u", mutates=mutates)


def test_valid_response_is_returned():
    response = _verify({"uid": "u", "allowed": True, "patch": PATCH, "patchType": "JSONPatch", "warnings": ["w"]})
    assert (response.allowed, response.patch, response.patch_type, response.warnings) == (
        True,
        b"[]",
        "JSONPatch",
        ["w"],
    )
    old = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}
    beta = _verify({"allowed": False, "patch": PATCH}, version="v1beta1", **old)
    assert (beta.allowed, beta.patch_type) == (False, "JSONPatch")
    assert _verify({"allowed": True, "patch": PATCH}, version="v1beta1", mutates=False, **old).patch == b""


@pytest.mark.parametrize(
    ("response", "mutates", "error"),
    [
        (None, True, "webhook response was absent"),
        ({"uid": "v"}, True, 'expected response.uid="u", got "v"'),
        ({"uid": "u", "patch": PATCH}, True, "webhook returned response.patch but not response.patchType"),
        ({"uid": "u", "patchType": "JSONPatch"}, True, "webhook returned response.patchType but not response.patch"),
        ({"uid": "u", "patch": PATCH, "patchType": ""}, True, 'webhook returned invalid response.patchType of ""'),
        ({"uid": "u", "patch": PATCH}, False, "validating webhook may not return response.patch"),
        ({"uid": "u", "patchType": "JSONPatch"}, False, "validating webhook may not return response.patchType"),
    ],
)
def test_invalid_response_has_the_error_of_kube_apiserver(response: JSON | None, mutates: bool, error: str):
    with pytest.raises(InvalidResponse) as raised:
        _verify(response, mutates=mutates)
    assert str(raised.value) == error


def test_response_needs_its_type():
    with pytest.raises(InvalidResponse) as raised:
        _verify({"uid": "u"}, kind="", apiVersion="")
    expected = "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
    assert str(raised.value) == expected


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"text", "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type"),
        (b"[]", "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type"),
        (b'{"kind":', "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}',
         "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion"),
        (b'{"kind": "Pod", "apiVersion": "v1"}', 'no kind "Pod" is registered for version "v1" in scheme'),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"allowed": "yes"}}',
         "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool"),
    ],
)  # fmt: skip
def test_undecodable_response_has_the_error_of_go(body: bytes, error: str):
    with pytest.raises(UndecodableResponse) as raised:
        verified_response(body, "v1", "u", mutates=True)
    assert str(raised.value).startswith(error)


def test_response_may_be_yaml():
    body = b"kind: AdmissionReview\napiVersion: admission.k8s.io/v1\nresponse: {uid: u, allowed: true}\n"
    assert verified_response(body, "v1", "u", mutates=True).allowed
