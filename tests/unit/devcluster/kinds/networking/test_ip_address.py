"""Validation of IPAddresses."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.networking.ip_address import STRATEGY, ip_address_name, validate_ip_address
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes

PARENT = {"group": "", "resource": "services", "namespace": "default", "name": "s"}


@pytest.mark.parametrize("name", ["10.0.0.1", "2001:db8::1"])
def test_canonical_address_is_a_name(name: str) -> None:
    assert ip_address_name(name) == ()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("a", "must be a valid IP address", id="text"),
        pytest.param("2001:DB8::1", 'must be in canonical form ("2001:db8::1")', id="upper case"),
        pytest.param("10.0.0.01", "must not have leading 0s", id="leading zero"),
    ],
)
def test_other_notations_are_not_names(name: str, problem: str) -> None:
    [message] = ip_address_name(name)
    assert message.startswith(problem)


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({"parentRef": PARENT}, [], id="valid"),
        pytest.param({}, ["spec.parentRef: Required value"], id="no parent"),
        pytest.param(
            {"parentRef": {"name": "a/b"}},
            [
                "spec.parentRef.resource: Required value",
                "spec.parentRef.name: Invalid value: \"a/b\": may not contain '/'",
            ],
            id="parent without resource",
        ),
    ],
)
def test_ip_address_causes(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_ip_address, {"spec": spec}) == causes


def test_parent_of_an_ip_address_is_immutable() -> None:
    new, old = ({"spec": {"parentRef": {**PARENT, "name": name}}} for name in "ts")
    [cause] = validator_causes(STRATEGY.validate_update, new, old)
    assert cause == (
        'spec.parentRef: Invalid value: {"Group":"","Resource":"services","Namespace":"default","Name":"t"}: '
        "field is immutable"
    )
