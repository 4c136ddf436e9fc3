"""Validation of containers and security contexts."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.resources import PODS
from support.validation_causes import create_causes, pod, pod_with_container

JSON = dict[str, Any]


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        pytest.param(
            pod_with_container(lifecycle={"preStop": {"exec": {}, "httpGet": {"port": 1}}}),
            [
                "spec.containers[0].lifecycle.preStop.exec.command: Required value",
                "spec.containers[0].lifecycle.preStop.httpGet: Forbidden: may not specify more than 1 handler type",
            ],
            id="two handlers",
        ),
        pytest.param(
            pod_with_container(resizePolicy=[{"resourceName": "disk", "restartPolicy": "NotRequired"}]),
            ['spec.containers[0].resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory"'],
            id="resizePolicy",
        ),
        pytest.param(
            pod_with_container(restartPolicyRules=[{"action": "Restart"}]),
            [
                "spec.containers[0].restartPolicy: Required value: "
                "must specify restartPolicy when restart rules are used",
                "spec.containers[0].restartPolicyRules[0].exitCodes: Required value: must be specified",
            ],
            id="restart rules",
        ),
        pytest.param(
            pod_with_container(resources={"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
            [
                f"spec.containers[0].resources.{part}[hugepages-2Mi]: Invalid value: "
                '"3Mi": 3Mi is not positive integer multiple of hugepages-2Mi'
                for part in ("limits", "requests")
            ],
            id="not a multiple of the huge page size",
        ),
        pytest.param(
            pod_with_container(resources={"claims": [{"name": "gpu"}]}),
            [
                'spec.containers[0].resources.claims[0]: Not found: "gpu": '
                "must be one of the names in pod.spec.resourceClaims which is empty"
            ],
            id="unknown resource claim",
        ),
        pytest.param(
            pod(os={"name": "plan9"}),
            ['spec.os: Unsupported value: "plan9": supported values: "linux", "windows"'],
            id="os",
        ),
        pytest.param(
            pod(os={"name": "windows"}, hostPID=True, securityContext={"runAsUser": 1}),
            [
                f"spec.{field}: Forbidden: cannot be set for a windows pod"
                for field in ("hostPID", "securityContext.runAsUser")
            ],
            id="windows",
        ),
        pytest.param(
            pod(hostUsers=False, hostNetwork=True),
            ["spec.hostNetwork: Forbidden: when `hostUsers` is false"],
            id="hostUsers",
        ),
        pytest.param(
            pod_with_container(securityContext={"appArmorProfile": {"type": "Localhost"}, "procMount": "Unmasked"}),
            [
                "spec.containers[0].securityContext.procMount: Invalid value: "
                '"Unmasked": `hostUsers` must be false to use `Unmasked`',
                "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Required value: "
                "must be set when AppArmor type is Localhost",
            ],
            id="a container's security context",
        ),
    ],
)  # fmt: skip
def test_container_and_security_context_causes(body: JSON, causes: list[str]):
    assert create_causes(PODS, body) == causes
