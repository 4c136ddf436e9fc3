"""Strategy of CustomResourceDefinitions."""

from __future__ import annotations

from kubeloop.devcluster.kinds.apiextensions.custom_resource_definition import STRATEGY


def test_names_and_conversion_of_a_definition_have_defaults():
    definition = {"spec": {"names": {"kind": "CronTab"}}}
    assert STRATEGY.default is not None
    STRATEGY.default(definition)
    assert definition["spec"] == {
        "names": {"kind": "CronTab", "listKind": "CronTabList", "singular": "crontab"},
        "conversion": {"strategy": "None"},
    }
