"""The source of token volumes, which is not validated."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.pod.token_source import is_token_volume, token_source
from kubeloop.devcluster.validation.pod.volumes import validate_volumes
from kubeloop.devcluster.validation.warnings.pod_warnings import overlapping_path_warnings
from kubeloop.kube.json_object import JSON


def test_source_is_valid_without_the_shortcut():
    errors = ErrorList()
    volume = {"name": "token", "projected": {**token_source(), "defaultMode": 421}}
    assert not is_token_volume(volume)
    assert validate_volumes(errors, "spec.volumes", {"volumes": [volume]}) == {"token": volume}
    assert (errors, [*overlapping_path_warnings(volume)]) == ([], [])


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        ({"name": "token", "projected": token_source()}, True),
        ({"name": "token", "projected": token_source(), "emptyDir": {}}, False),
        ({"name": "token", "projected": {"sources": [], "defaultMode": 420}}, False),
        ({"name": "token", "emptyDir": {}}, False),
    ],
)
def test_only_the_whole_volume_is_recognized(volume: JSON, expected: bool):
    assert is_token_volume(volume) is expected


def test_name_of_a_token_volume_is_checked():
    errors = ErrorList()
    validate_volumes(errors, "spec.volumes", {"volumes": [{"name": "Bad_", "projected": token_source()}]})
    assert [error["field"] for error in errors] == ["spec.volumes[0].name"]
