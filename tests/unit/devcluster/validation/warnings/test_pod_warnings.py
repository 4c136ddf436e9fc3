"""Warnings about pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.validation.validate import write_warnings
from kubeloop.devcluster.validation.warnings.pod_warnings import overlapping_path_warnings, pod_warnings
from kubeloop.kube.objects.resources import PODS
from support.objects.validation_causes import pod

MASTER = {"node-role.kubernetes.io/master": "a"}

USE = 'use "node-role.kubernetes.io/control-plane" instead'

TERM = {"matchExpressions": [{"key": next(iter(MASTER)), "operator": "In", "values": ["-"]}]}


def test_warning_about_impossible_preferred_label_values():
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}]}
    key, value = write_warnings(
        strategy_of(PODS), {"metadata": {"name": "a"}, "spec": {"affinity": {"nodeAffinity": preferred}}}
    )
    assert key.endswith(f"matchExpressions[0].key: {next(iter(MASTER))} is {USE}")
    assert ".values[0]: - is invalid, a valid label must be an empty string or consist of" in value


JSON = dict[str, Any]


def named_pod(**spec: Any) -> JSON:
    return {**pod(**spec), "metadata": {"name": "p"}}


def test_warnings_about_addresses_and_port_names():
    body = named_pod(
        hostAliases=[{"ip": "FE80::1"}],
        containers=[
            {"name": n, "image": "i", "ports": [{"name": "http", "containerPort": p, "protocol": "TCP"}]}
            for n, p in (("a", 80), ("b", 81))
        ],
    )
    assert write_warnings(strategy_of(PODS), body) == [
        'spec.containers[1].ports[0]: duplicate port name "http" with spec.containers[0].ports[0], services and probes '
        "that select ports by name will use spec.containers[0].ports[0]",
        'spec.hostAliases[0].ip: IPv6 address "FE80::1" should be in RFC 5952 canonical format ("fe80::1")',
    ]


@pytest.mark.parametrize(
    ("spec", "warnings"),
    [
        pytest.param({}, [], id="nothing deprecated"),
        pytest.param(
            {"nodeSelector": {"beta.kubernetes.io/os": "linux", "a": "b"}},
            ['spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead'],
            id="deprecated node label",
        ),
        pytest.param(
            {"imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}]},
            [
                'spec.imagePullSecrets[1].name: duplicate name "a"',
                'spec.imagePullSecrets[2].name: invalid empty name ""',
            ],
            id="duplicate and empty pull secret",
        ),
        pytest.param(
            {"terminationGracePeriodSeconds": -1},
            ["spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"],
            id="negative grace period",
        ),
        pytest.param(
            {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]},
            ['spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply'],
            id="duplicate variable",
        ),
        pytest.param(
            {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]}]},
            [],
            id="variable that refers to its previous value",
        ),
    ],
)
def test_pod_spec_warnings(spec: JSON, warnings: list[str]):
    assert pod_warnings({}, spec, "metadata", "spec") == warnings


def test_nested_paths_of_one_volume_warn():
    items = [{"key": "a", "path": "dir"}, {"key": "b", "path": "dir/file"}, {"key": "c", "path": "other"}]
    assert list(overlapping_path_warnings({"name": "v", "configMap": {"name": "m", "items": items}})) == [
        'volume "v" (ConfigMap "m"): overlapping paths: "dir/file" with "dir"'
    ]


def port(number: int, **fields: Any) -> JSON:
    return {"containerPort": number, "protocol": "TCP", **fields}


@pytest.mark.parametrize(
    ("ports", "warnings"),
    [
        pytest.param([port(80), port(80, protocol="UDP")], [], id="two protocols"),
        pytest.param([port(80), port(80)], ["ports[1]: duplicate port definition"], id="duplicate"),
        pytest.param(
            [port(80), port(80, hostPort=8080)], ["ports[1]: overlapping port definition"], id="with a host port"
        ),
        pytest.param(
            [port(80, hostPort=8080), port(80, hostPort=8080, hostIP="10.0.0.1")],
            ["ports[1]: dangerously ambiguous port definition"],
            id="with a host address",
        ),
    ],
)
def test_conflicting_ports_warn(ports: list[JSON], warnings: list[str]):
    spec = {"containers": [{"name": "c", "ports": ports}]}
    expected = [f"spec.containers[0].{warning} with spec.containers[0].ports[0]" for warning in warnings]
    assert pod_warnings({}, spec, "metadata", "spec") == expected


def test_app_armor_annotation_of_a_template_is_deprecated():
    key = "container.apparmor.security.beta.kubernetes.io/c"
    metadata, spec = {"annotations": {key: "unconfined"}}, {"containers": [{"name": "c"}]}
    assert pod_warnings(metadata, spec, "metadata", "spec") == []  # pods: see app_armor_warnings
    assert pod_warnings(metadata, spec, "template.metadata", "template.spec") == [
        f'template.metadata.annotations[{key}]: deprecated since v1.30; use the "appArmorProfile" field instead'
    ]


def test_projected_volume_without_sources_warns():
    assert list(overlapping_path_warnings({"name": "v", "projected": {"sources": [{}]}})) == [
        'volume "v" (Projected) has no sources provided'
    ]
