"""Validation of ConfigMaps and Secrets."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from kubeloop.devcluster.kinds.core.config_map import validate_config_map, validate_config_map_update
from kubeloop.devcluster.kinds.core.secret import validate_secret, validate_secret_update
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes

LIMIT = 1 << 20


@pytest.mark.parametrize(
    ("obj", "causes"),
    [
        pytest.param({"data": {"a.b_c-D": "x"}, "binaryData": {"b": "AA=="}}, [], id="valid"),
        pytest.param({"data": {"a": "x" * LIMIT}}, [], id="1 MiB"),
        pytest.param(
            {"data": {"a": "x" * LIMIT}, "binaryData": {"b": "AA=="}},
            ["[]: Too long: may not be more than 1048576 bytes"],
            id="1 MiB and a byte",
        ),
        pytest.param({"data": {"..": "x"}}, ["data[..]: Invalid value: \"..\": must not be '..'"], id="parent folder"),
        pytest.param(
            {"data": {"..a": "x"}}, ["data[..a]: Invalid value: \"..a\": must not start with '..'"], id="two dots"
        ),
    ],
)
def test_config_map_causes(obj: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_config_map, obj) == causes


def test_immutable_config_map_stays_immutable() -> None:
    old = {"immutable": True, "data": {}}
    assert validator_causes(validate_config_map_update, {"immutable": True}, old) == []
    assert validator_causes(validate_config_map_update, {"binaryData": {"a": "AA=="}}, old) == [
        f"{field}: Forbidden: field is immutable when `immutable` is set" for field in ("immutable", "binaryData")
    ]


def secret(kind: str, data: dict[str, str], **annotations: str) -> JSON:
    encoded = {key: b64encode(text.encode()).decode() for key, text in data.items()}
    return {"metadata": {"annotations": annotations}, "type": kind, "data": encoded}


@pytest.mark.parametrize(
    ("kind", "data", "causes"),
    [
        pytest.param("Opaque", {"a": "x"}, [], id="opaque"),
        pytest.param(
            "kubernetes.io/service-account-token",
            {},
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
            id="token without service account",
        ),
        pytest.param("kubernetes.io/basic-auth", {"username": "u"}, [], id="user name only"),
        pytest.param(
            "kubernetes.io/basic-auth",
            {},
            ["data[username]: Required value", "data[password]: Required value"],
            id="no credentials",
        ),
        pytest.param(
            "kubernetes.io/ssh-auth", {"ssh-privatekey": ""}, ["data[ssh-privatekey]: Required value"], id="empty key"
        ),
        pytest.param("kubernetes.io/tls", {"tls.crt": "", "tls.key": ""}, [], id="empty TLS pair"),
        pytest.param("kubernetes.io/dockerconfigjson", {".dockerconfigjson": "{}"}, [], id="docker configuration"),
        pytest.param(
            "kubernetes.io/dockercfg",
            {".dockercfg": "[]"},
            [
                'data[.dockercfg]: Invalid value: "<secret contents redacted>": '
                "json: cannot unmarshal array into Go value of type map[string]interface {}"
            ],
            id="list as a docker configuration",
        ),
        pytest.param(
            "kubernetes.io/dockerconfigjson",
            {".dockerconfigjson": "{"},
            ['data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": unexpected end of JSON input'],
            id="incomplete JSON",
        ),
    ],
)
def test_secret_causes(kind: str, data: dict[str, str], causes: list[str]) -> None:
    assert validator_causes(validate_secret, secret(kind, data)) == causes


def test_secret_is_validated_again_when_annotations_change() -> None:
    fields: dict[str, Any] = {"kind": "kubernetes.io/basic-auth", "data": {}}
    old = secret(**fields)
    assert validator_causes(validate_secret_update, old, old) == []
    assert len(validator_causes(validate_secret_update, secret(**fields, a="b"), old)) == 2
