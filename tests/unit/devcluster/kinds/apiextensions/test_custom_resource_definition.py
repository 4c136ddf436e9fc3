"""Strategy of CustomResourceDefinitions."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.api.strategy import Write
from kubeloop.devcluster.kinds.apiextensions.custom_resource_definition import STRATEGY
from kubeloop.kube.json_object import JSON


def test_names_and_conversion_of_a_definition_have_defaults():
    definition = {"spec": {"names": {"kind": "CronTab"}}}
    assert STRATEGY.default is not None
    STRATEGY.default(definition)
    assert definition["spec"] == {
        "names": {"kind": "CronTab", "listKind": "CronTabList", "singular": "crontab"},
        "conversion": {"strategy": "None"},
    }


@pytest.mark.parametrize(
    ("versions", "stored", "expected"),
    [
        pytest.param([{"name": "v1", "storage": True}], ["v1"], ["v1"], id="same storage version"),
        pytest.param([{"name": "v1"}, {"name": "v2", "storage": True}], ["v1"], ["v1", "v2"], id="new storage version"),
    ],
)
def test_stored_versions_of_a_definition_grow(versions: list[JSON], stored: list[str], expected: list[str]):
    obj = {"spec": {"versions": versions}, "status": {"storedVersions": stored}}
    assert STRATEGY.prepare_update is not None
    STRATEGY.prepare_update(obj, {}, Write())
    assert obj["status"]["storedVersions"] == expected


def test_new_definition_starts_with_its_storage_version():
    obj: JSON = {"spec": {"versions": [{"name": "v1"}, {"name": "v2", "storage": True}]}, "status": {"x": 1}}
    assert STRATEGY.prepare_create is not None
    STRATEGY.prepare_create(obj, Write())
    names = {"plural": "", "kind": ""}
    assert obj["status"] == {"conditions": None, "acceptedNames": names, "storedVersions": ["v2"]}
