"""DefaultTolerationSeconds."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.default_toleration_seconds import TolerationSeconds, add_default_tolerations
from kubeloop.devcluster.server.apiserver import ServingSettings
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]


def toleration(key: str) -> JSON:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
ADDED_FOR_BOTH = [toleration(NOT_READY), toleration(UNREACHABLE)]


@pytest.mark.parametrize(
    ("own", "added"),
    [
        pytest.param([], ADDED_FOR_BOTH, id="none"),
        pytest.param([{"key": NOT_READY, "effect": "NoExecute"}], [toleration(UNREACHABLE)], id="not-ready"),
        pytest.param([{"key": UNREACHABLE}], [toleration(NOT_READY)], id="unreachable with any effect"),
        pytest.param([{"operator": "Exists"}], [], id="any taint"),
        pytest.param([{"key": NOT_READY, "effect": "NoSchedule"}], ADDED_FOR_BOTH, id="another effect"),
    ],
)
def test_tolerations_are_added_unless_the_pod_has_its_own(own: list[JSON], added: list[JSON]):
    pod: JSON = {"spec": {"tolerations": own}}
    add_default_tolerations(pod, TolerationSeconds())
    assert pod["spec"]["tolerations"] == [*own, *added]


async def test_settings_decide_tolerations_and_node_ports():
    settings = ServingSettings(toleration_seconds=TolerationSeconds(5, 6), node_ports=range(31000, 31001))
    api = InProcessApi(settings=settings)
    namespace = "/api/v1/namespaces/default"
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    tolerations = api("POST", f"{namespace}/pods", pod)[1]["spec"]["tolerations"]
    assert [toleration["tolerationSeconds"] for toleration in tolerations] == [5, 6]
    service = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
    assert api("POST", f"{namespace}/services", service)[1]["spec"]["ports"][0]["nodePort"] == 31000
    service["metadata"] = {"name": "t"}
    service["spec"] = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 31001}]}
    message = api("POST", f"{namespace}/services", service)[1]["message"]
    assert "provided port is not in the valid range. The range of valid ports is 31000-31000" in message
