"""DefaultTolerationSeconds."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.default_toleration_seconds import add_default_tolerations

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
    add_default_tolerations(pod)
    assert pod["spec"]["tolerations"] == [*own, *added]
