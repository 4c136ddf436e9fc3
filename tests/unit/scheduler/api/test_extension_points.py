"""Types of the extension points."""

from __future__ import annotations

from kubeloop.scheduler.api.extension_points import PodGroupInfo


def test_key_of_a_pod_group():
    assert PodGroupInfo("default", "g").key == "default/g"
