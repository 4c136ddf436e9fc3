"""Values in error messages, as Go encodes them."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.validation.common.go_values import go_json


@pytest.mark.parametrize(
    ("value", "type_name", "formatted"),
    [
        pytest.param({"b": "1", "a": "2"}, "", '{"a":"2","b":"1"}', id="maps are sorted"),
        pytest.param(
            {"uid": "u", "name": "n"}, "meta/v1.OwnerReference", '{"name":"n","uid":"u"}', id="meta/v1 has JSON tags"
        ),
        pytest.param(
            {"effect": "NoSchedule", "key": "k"},
            "core/v1.Taint",
            '{"Key":"k","Value":"","Effect":"NoSchedule","TimeAdded":null}',
            id="internal types have no JSON tags",
        ),
        pytest.param(
            {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "z"},
            "core/v1.PodAffinityTerm",
            '{"LabelSelector":{"matchLabels":{"a":"b"}},"Namespaces":null,"TopologyKey":"z","NamespaceSelector":null,'
            '"MatchLabelKeys":null,"MismatchLabelKeys":null}',
            id="meta/v1 type within an internal type",
        ),
    ],
)
def test_values_are_formatted_as_go_encodes_them(value: Any, type_name: str, formatted: str) -> None:
    assert go_json(value, type_name) == formatted
