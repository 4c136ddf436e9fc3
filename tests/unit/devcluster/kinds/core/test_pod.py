"""Strategy of pods."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.core.pod import STRATEGY
from kubeloop.kube.objects.resources import PODS
from support.objects.validation_causes import defaulted, pod


@pytest.mark.parametrize(("sent", "expected"), [(-5, 1), (0, 0), (7, 7)])
def test_negative_grace_period_becomes_one_second(sent: int, expected: int):
    assert defaulted(PODS, pod(terminationGracePeriodSeconds=sent))["spec"]["terminationGracePeriodSeconds"] == expected


def test_updates_are_checked_against_the_stored_metadata_first():
    assert STRATEGY.update_steps == "uws"
