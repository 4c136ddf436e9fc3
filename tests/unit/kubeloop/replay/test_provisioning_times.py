"""Times of the provisioning of volumes, by StorageClass."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.replay.provisioning_times import ProvisioningTimes


def claim(name: str, annotation: str = "", **spec: Any) -> dict[str, Any]:
    annotations = {f"volume.kubernetes.io/{annotation}": "x"} if annotation else {}
    return {"metadata": {"name": name, "uid": name, "annotations": annotations}, "spec": spec}


@pytest.mark.parametrize(
    ("annotation", "initial", "median"),
    [
        pytest.param("selected-node", False, 5.0, id="waits for its consumer"),
        pytest.param("storage-provisioner", False, 5.0, id="immediate"),
        pytest.param("", False, None, id="not provisioned"),
        pytest.param("selected-node", True, None, id="requested before the recording"),
    ],
)
def test_time_is_from_the_request_to_the_binding(annotation: str, initial: bool, median: float | None):
    times = ProvisioningTimes()
    times.observe(1.0, claim("a", storageClassName="fast"), initial=initial)
    times.observe(2.0, claim("a", annotation, storageClassName="fast"), initial=initial)
    times.observe(4.0, claim("a", annotation, storageClassName="fast"), initial=initial)
    times.observe(7.0, claim("a", annotation, storageClassName="fast", volumeName="v"), initial=False)
    times.observe(9.0, claim("a", annotation, storageClassName="fast", volumeName="v"), initial=False)
    assert times.median("fast") == median
    assert times.median("other") is None
