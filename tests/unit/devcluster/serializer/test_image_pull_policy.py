"""Default pull policy by image name."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.serializer.defaulting import image_pull_policy


@pytest.mark.parametrize(
    ("image", "policy"),
    [("web", "Always"), ("a" * 64, "IfNotPresent"), ("g" * 254, "IfNotPresent"), ("r.io/" + "g" * 240, "Always")],
)
def test_pull_policy_of_invalid_image_names(image: str, policy: str):
    assert image_pull_policy(image) == policy
