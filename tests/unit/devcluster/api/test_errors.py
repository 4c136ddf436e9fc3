"""API errors: metav1.Status with Kubernetes' texts."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import API_SERVICES
from kubeloop.devcluster.api.strategy import NO_BEHAVIOUR, CustomResource
from kubeloop.kube.objects.resources import DEPLOYMENTS, NODES, PODS, SERVICES, Resource

JSON = dict[str, Any]
NO_RULES: Any = None
WIDGETS = CustomResource(
    "widgets.k8s.io", "v1", "Widget", "widgets", True, dict, strategy=NO_BEHAVIOUR, rules=NO_RULES
)  # fmt: skip


def test_status_of_an_error():
    assert errors.not_found(DEPLOYMENTS, "web").status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'deployments.apps "web" not found',
        "reason": "NotFound",
        "details": {"name": "web", "group": "apps", "kind": "deployments"},
        "code": 404,
    }


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (errors.not_found(PODS, ".."), 400, "Name parameter invalid: \"..\": may not be '..'"),
        (errors.not_found(PODS, "a%"), 400, "Name parameter invalid: \"a%\": may not contain '%'"),
        (errors.already_exists(PODS, "p"), 409, 'pods "p" already exists'),
        (
            errors.name_not_generated(PODS, "p"),
            409,
            'pods "p" already exists, the server was not able to generate a unique name for the object',
        ),
        (
            errors.conflict(DEPLOYMENTS, "d", "x", subresource="scale"),
            409,
            'Operation cannot be fulfilled on deployments/scale.apps "d": x',
        ),
        (
            errors.failed_precondition(PODS, "p", "UID", "1", "2"),
            409,
            'Operation cannot be fulfilled on pods "p": Precondition failed: UID in precondition: 1, '
            "UID in object meta: 2",
        ),
        (errors.kind_conflict("", "Pod", "p", "x"), 409, 'Operation cannot be fulfilled on Pod "p": x'),
        (errors.forbidden(PODS, "", "x"), 403, "pods is forbidden: x"),
        (errors.internal_error("x"), 500, "Internal error occurred: x"),
        (errors.too_large_revision(9, 5), 504, "Timeout: Too large resource version: 9, current: 5"),
    ],
)
def test_code_and_message(error: errors.StatusError, code: int, message: str):
    assert (error.code, error.message) == (code, message)


@pytest.mark.parametrize(
    ("causes", "message"),
    [
        pytest.param([("spec.a", "x")], 'Pod "p" is invalid: spec.a: x', id="one cause"),
        pytest.param([("a", "x"), ("a", "x"), ("", "y")], 'Pod "p" is invalid: [a: x, []: y]', id="duplicate causes"),
    ],
)
def test_invalid_object_lists_its_causes(causes: list[tuple[str, str]], message: str):
    error = errors.invalid("", "Pod", "p", [errors.cause("FieldValueInvalid", *cause) for cause in causes])
    assert (error.code, error.message, len((error.details or {})["causes"])) == (422, message, len(causes))


@pytest.mark.parametrize(
    ("seconds", "details", "headers"),
    [(10, {"retryAfterSeconds": 10}, (("Retry-After", "10"),)), (0, {}, ())],
)
def test_too_many_requests_sets_retry_after(seconds: int, details: JSON, headers: tuple[tuple[str, str], ...]):
    error = errors.too_many_requests("x", retry_after_seconds=seconds)
    assert (error.details, error.headers) == (details, headers)


@pytest.mark.parametrize(
    ("metadata", "name"),
    [({"name": "a", "generateName": "b-"}, "a"), ({"generateName": "b-"}, "b-"), ({}, "Unknown")],
)
def test_name_in_an_admission_message(metadata: JSON, name: str):
    assert errors.name_in_message({"metadata": metadata}) == name


@pytest.mark.parametrize(
    ("resource", "namespace", "key"),
    [
        (PODS, "ns", "pods/ns/a"),
        (NODES, "", "minions/a"),
        (SERVICES, "ns", "services/specs/ns/a"),
        (DEPLOYMENTS, "ns", "deployments/ns/a"),
        (API_SERVICES, "", "apiregistration.k8s.io/apiservices/a"),
        (WIDGETS, "ns", "widgets.k8s.io/widgets/ns/a"),
    ],
)
def test_storage_error_names_the_key_of_kube_apiserver(resource: Resource[Any], namespace: str, key: str):
    message = errors.failed_storage_precondition(resource, namespace, "a", "UID", "1", "2").message
    problem = "Precondition failed: UID in precondition: 1, UID in object meta: 2"
    expected = f"Key: /registry/{key}, ResourceVersion: 0, AdditionalErrorMsg: {problem}"
    assert message.endswith(f"StorageError: invalid object, Code: 4, {expected}")
    dry_run = errors.failed_storage_precondition(resource, namespace, "a", "UID", "1", "2", dry_run=True).message
    assert dry_run == message.replace("Key: /registry/", "Key: /")
