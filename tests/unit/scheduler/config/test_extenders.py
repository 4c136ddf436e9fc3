"""Extenders of a configuration document."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.config.extenders import http_timeout_seconds
from kubeloop.scheduler.config.load import read_configuration
from kubeloop.scheduler.config.types import ExtenderConfiguration, ExtenderTLS, ManagedResource


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        pytest.param("1m30s", 90.0, id="duration"),
        pytest.param("0s", 5.0, id="zero: the default"),
        pytest.param(250_000_000, 0.25, id="nanoseconds of a Policy"),
        pytest.param(0, 5.0, id="zero nanoseconds: the default"),
    ],
)
def test_http_timeout_seconds(timeout: str | int, seconds: float) -> None:
    assert http_timeout_seconds(timeout) == seconds


def read_extender(**fields: Any) -> ExtenderConfiguration:
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    extender = {"urlPrefix": "https://e", **fields}
    return read_configuration(document | {"extenders": [extender]}).extenders[0]


def test_extender_has_decoded_certificates_and_resources() -> None:
    tls = {"insecure": True, "serverName": "e", "caData": base64.b64encode(b"PEM").decode(), "certFile": "/c"}
    resources = [{"name": "example.com/gpu", "ignoredByScheduler": True}]
    assert read_extender(
        filterVerb="filter", tlsConfig=tls, managedResources=resources, ignorable=True
    ) == ExtenderConfiguration(
        "https://e",
        filter_verb="filter",
        tls_config=ExtenderTLS(insecure=True, server_name="e", ca_data=b"PEM", cert_file="/c"),
        managed_resources=(ManagedResource("example.com/gpu", True),),
        ignorable=True,
    )


def test_invalid_base64_is_user_error() -> None:
    with pytest.raises(UserError, match=r"Invalid base64 encoded string - at `extenders\[0\]\.tlsConfig\.keyData`"):
        read_extender(tlsConfig={"keyData": "?"})
