"""Warnings about pods."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.validation.warnings.object_warnings import write_warnings
from kubeloop.kube.objects.resources import PODS
from support.validation_causes import pod

MASTER = {"node-role.kubernetes.io/master": "a"}

USE = 'use "node-role.kubernetes.io/control-plane" instead'

TERM = {"matchExpressions": [{"key": next(iter(MASTER)), "operator": "In", "values": ["-"]}]}


def test_warning_about_impossible_preferred_label_values():
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}]}
    key, value = write_warnings(PODS, {"metadata": {"name": "a"}, "spec": {"affinity": {"nodeAffinity": preferred}}})
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
    assert write_warnings(PODS, body) == [
        'spec.containers[1].ports[0]: duplicate port name "http" with spec.containers[0].ports[0], services and probes '
        "that select ports by name will use spec.containers[0].ports[0]",
        'spec.hostAliases[0].ip: IPv6 address "FE80::1" should be in RFC 5952 canonical format ("fe80::1")',
    ]
