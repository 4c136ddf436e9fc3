"""The source of token volumes, which is not validated."""

from __future__ import annotations

import msgspec
import pytest

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.token_source import (
    TOKEN_SOURCE,
    is_token_volume,
    with_common_token_volume_name,
)
from kubeloop.devcluster.validation.pod.volumes import validate_volumes
from kubeloop.devcluster.validation.warnings.pod_warnings import overlapping_path_warnings
from kubeloop.kube.json_object import JSON


def test_source_is_valid_without_the_shortcut():
    errors = ErrorList()
    volume = {"name": "token", "projected": {**TOKEN_SOURCE, "defaultMode": 421}}
    assert not is_token_volume(volume)
    assert validate_volumes(errors, "spec.volumes", {"volumes": [volume]}) == {"token": volume}
    assert (errors, [*overlapping_path_warnings(volume)]) == ([], [])


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        ({"name": "token", "projected": TOKEN_SOURCE}, True),
        ({"name": "token", "projected": TOKEN_SOURCE, "emptyDir": {}}, False),
        ({"name": "token", "projected": {"sources": [], "defaultMode": 420}}, False),
        ({"name": "token", "emptyDir": {}}, False),
    ],
)
def test_only_the_whole_volume_is_recognized(volume: JSON, expected: bool):
    assert is_token_volume(volume) is expected


def test_name_of_a_token_volume_is_checked():
    errors = ErrorList()
    validate_volumes(errors, "spec.volumes", {"volumes": [{"name": "Bad_", "projected": TOKEN_SOURCE}]})
    assert [error["field"] for error in errors] == ["spec.volumes[0].name"]


def named(name: str, *volumes: JSON, mount: str = "") -> tuple[JSON, bytes]:
    """Return a spec with a token volume after other volumes, encoded with the common name, too."""
    container = {"name": "c", "volumeMounts": [{"name": mount or name, "mountPath": "/token"}]}
    spec = {"containers": [container], "volumes": [*volumes, {"name": name, "projected": TOKEN_SOURCE}]}
    return spec, with_common_token_volume_name(spec, msgspec.json.encode(spec))


def test_specs_that_differ_in_the_generated_name_are_encoded_the_same():
    assert named("kube-api-access-bcdfg")[1] == named("kube-api-access-24567")[1]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(named("kube-api-access-bcdfg", mount="kube-api-access-xxxxx"), id="the common name is mounted"),
        pytest.param(named("kube-api-access-bcdfg", {"name": "kube-api-access-xxxxx"}), id="the common name is used"),
        pytest.param(named("kube-api-access-BCDFG"), id="an invalid name"),
        pytest.param(named("kube-api-access-bcdfg-"), id="a longer name"),
        pytest.param(named("token"), id="another name"),
    ],
)
def test_names_that_validation_may_treat_otherwise_remain(spec: tuple[JSON, bytes]):
    assert msgspec.json.decode(spec[1]) == spec[0]
