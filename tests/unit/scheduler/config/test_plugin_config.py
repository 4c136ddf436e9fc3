"""Arguments of plugins: decoding, defaults and errors."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.config.plugin_args import InterPodAffinityArgs, NodeAffinityArgs
from kubeloop.scheduler.config.plugin_config import args_type, decode_plugin_args


def test_arguments_are_decoded_with_defaults() -> None:
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "InterPodAffinityArgs",
        "hardPodAffinityWeight": 5,
    }
    args = decode_plugin_args("InterPodAffinity", document, "args")
    assert args == InterPodAffinityArgs(hard_pod_affinity_weight=5)
    null = decode_plugin_args("InterPodAffinity", {"hardPodAffinityWeight": None}, "args")
    assert null == InterPodAffinityArgs(hard_pod_affinity_weight=1)


@pytest.mark.parametrize(
    ("document", "message", "hint"),
    [
        pytest.param(
            {"kind": "VolumeBindingArgs"},
            "args: args for plugin InterPodAffinity were not of type InterPodAffinityArgs, got VolumeBindingArgs",
            "fix their kind",
            id="kind of another plugin",
        ),
        pytest.param(
            {"weight": 1},
            'strict decoding error: unknown field "weight"',
            "it takes hardPodAffinityWeight, ignorePreferredTermsOfExistingPods",
            id="unknown field",
        ),
        pytest.param(
            {"hardPodAffinityWeight": "5"},
            "decoding args for plugin InterPodAffinity: Expected `int`",
            "see InterPodAffinityArgs",
            id="wrong type",
        ),
        pytest.param(
            {"hardPodAffinityWeight": 101},
            r"args.hardPodAffinityWeight: Invalid value: 101: not in valid range \[0, 100\]",
            "see InterPodAffinityArgs",
            id="out of range",
        ),
    ],
)
def test_invalid_arguments_are_user_errors(document: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        decode_plugin_args("InterPodAffinity", document, "args")
    assert raised.value.hint == hint


@pytest.mark.parametrize(("name", "enabled"), [("NodeName", True), ("NoSuchPlugin", False)])
def test_plugins_without_arguments_accept_any_as_kube_scheduler(name: str, enabled: bool) -> None:
    assert decode_plugin_args(name, {"a": 1}, "args", enabled=enabled) == {"a": 1}


def test_enabled_plugin_that_does_not_exist_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UserError, match="no scheduler plugin named 'NodeResourceFit'"):
        decode_plugin_args("NodeResourceFit", {"a": 1}, "args")
    assert caplog.records == []
    decode_plugin_args("NodeResourceFit", {"a": 1}, "args", enabled=False)
    (record,) = caplog.records
    assert vars(record)["hint"] == "did you mean 'NodeResourcesFit'?"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        pytest.param(
            {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu"}, {"nam": "memory"}]}},
            'strict decoding error: unknown field "scoringStrategy.resources[1].nam"',
            id="nested field",
        ),
        pytest.param(
            {"apiVersion": "kubescheduler.config.k8s.io/v1beta3", "kind": "NodeResourcesFitArgs"},
            'no kind "NodeResourcesFitArgs" is registered for version "kubescheduler.config.k8s.io/v1beta3"',
            id="version",
        ),
    ],
)
def test_strict_decoding_of_arguments(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError) as raised:
        decode_plugin_args("NodeResourcesFit", args, "args")
    assert str(raised.value) == f"decoding args for plugin NodeResourcesFit: {problem}"


def test_out_of_tree_plugin_takes_plain_json() -> None:
    name = "kubeloop.scheduler.plugins.node_name:NodeName"
    assert args_type(name) is None
    assert decode_plugin_args(name, {"any": [1]}, "args") == {"any": [1]}
    assert args_type("NodeAffinity") is NodeAffinityArgs
