"""Validation of a pod's scheduling fields."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.validation.pod.scheduling import (
    validate_affinity,
    validate_node_selector,
    validate_preemption_policy,
    validate_tolerations,
    validate_topology_spread,
)
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes


@pytest.mark.parametrize(
    ("policy", "causes"),
    [
        pytest.param(None, [], id="unset"),
        pytest.param("Never", [], id="Never"),
        pytest.param("", ["p: Required value"], id="empty"),
        pytest.param(
            "Always",
            ['p: Unsupported value: "Always": supported values: "PreemptLowerPriority", "Never"'],
            id="unknown",
        ),
    ],
)
def test_preemption_policy_causes(policy: str | None, causes: list[str]) -> None:
    assert validator_causes(validate_preemption_policy, "p", policy) == causes


@pytest.mark.parametrize(
    ("toleration", "causes"),
    [
        pytest.param({"operator": "Exists"}, [], id="all taints"),
        pytest.param({"key": "a", "effect": "NoExecute", "tolerationSeconds": 1}, [], id="with seconds"),
        pytest.param(
            {"value": "v"},
            [
                't[0].operator: Invalid value: "": operator must be Exists when `key` is empty, which means '
                '"match all values and all keys"'
            ],
            id="no key",
        ),
        pytest.param(
            {"key": "a", "operator": "Exists", "value": "v"},
            ["t[0].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'"],
            id="value of Exists",
        ),
        pytest.param(
            {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1},
            ["t[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set"],
            id="seconds of another effect",
        ),
        pytest.param(
            {"key": "a", "operator": "In", "effect": "Evict"},
            [
                't[0].operator: Unsupported value: "In": supported values: "Equal", "Exists"',
                't[0].effect: Unsupported value: "Evict": '
                'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
            ],
            id="unknown operator and effect",
        ),
    ],
)
def test_toleration_causes(toleration: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_tolerations, "t", [toleration]) == causes


TERM = "s.nodeSelectorTerms[0]"


@pytest.mark.parametrize(
    ("term", "causes"),
    [
        pytest.param({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}, [], id="valid"),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "Lt", "values": ["1", "2"]}]},
            [
                f"{TERM}.matchExpressions[0].values: Required value: "
                "must be specified single value when `operator` is 'Lt' or 'Gt'"
            ],
            id="two numbers",
        ),
        pytest.param(
            {"matchFields": [{"key": "metadata.uid", "operator": "Exists"}]},
            [
                f'{TERM}.matchFields[0].operator: Invalid value: "Exists": not a valid selector operator',
                f'{TERM}.matchFields[0].key: Invalid value: "metadata.uid": not a valid field selector key',
            ],
            id="unknown field and operator",
        ),
        pytest.param(
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]},
            [
                f"{TERM}.matchFields[0].values: Required value: must be only one value when `operator` is 'In' or "
                "'NotIn' for node field selector"
            ],
            id="two names",
        ),
    ],
)
def test_node_selector_causes(term: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_node_selector, "s", {"nodeSelectorTerms": [term]}) == causes


def test_node_selector_requires_a_term() -> None:
    assert validator_causes(validate_node_selector, "s", {}) == [
        "s.nodeSelectorTerms: Required value: must have at least one node selector term"
    ]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("affinity", "causes"),
    [
        pytest.param({"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}, [], id="valid"),
        pytest.param(
            {"nodeAffinity": {PREFERRED: [{"weight": 101, "preference": {}}]}},
            [f"a.nodeAffinity.{PREFERRED}[0].weight: Invalid value: 101: must be in the range 1-100"],
            id="weight above 100",
        ),
        pytest.param(
            {"podAntiAffinity": {REQUIRED: [{"matchLabelKeys": ["v"], "topologyKey": "zone"}]}},
            [
                f"a.podAntiAffinity.{REQUIRED}[0].matchLabelKeys: Forbidden: "
                "must not be specified when labelSelector is not set"
            ],
            id="label keys without selector",
        ),
        pytest.param(
            {
                "podAffinity": {
                    REQUIRED: [
                        {
                            "labelSelector": {},
                            "matchLabelKeys": ["v"],
                            "mismatchLabelKeys": ["v"],
                            "topologyKey": "zone",
                        }
                    ]
                }
            },
            [
                f'a.podAffinity.{REQUIRED}[0].matchLabelKeys[0]: Invalid value: "v": '
                "exists in both matchLabelKeys and mismatchLabelKeys"
            ],
            id="key that must match and differ",
        ),
    ],
)
def test_affinity_causes(affinity: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_affinity, "a", affinity) == causes


SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


@pytest.mark.parametrize(
    ("constraints", "causes"),
    [
        pytest.param([SPREAD, {**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}], [], id="valid"),
        pytest.param(
            [{}],
            [
                "c[0].maxSkew: Invalid value: 0: must be greater than zero",
                "c[0].topologyKey: Required value: can not be empty",
                'c[0].whenUnsatisfiable: Unsupported value: "": supported values: "DoNotSchedule", "ScheduleAnyway"',
            ],
            id="empty",
        ),
        pytest.param(
            [SPREAD, SPREAD],
            ['c[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{zone, DoNotSchedule}"'],
            id="duplicate",
        ),
        pytest.param(
            [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 0, "nodeTaintsPolicy": "Skip"}],
            [
                "c[0].minDomains: Invalid value: 0: must be greater than zero",
                "c[0].minDomains: Invalid value: 0: "
                "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
                'c[0].nodeTaintsPolicy: Unsupported value: "Skip": supported values: "Honor", "Ignore"',
            ],
            id="minimum of domains and unknown policy",
        ),
    ],
)
def test_topology_spread_causes(constraints: list[JSON], causes: list[str]) -> None:
    assert validator_causes(validate_topology_spread, "c", constraints) == causes
