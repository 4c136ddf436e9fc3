"""Targets of `kubeloop trace` and `kubeloop explain`."""

from __future__ import annotations

import pytest

from kubeloop.cli.targets import parse_target
from kubeloop.kube.errors import UserError


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("po/web-1", ("pod", "web-1")),
        ("Deploy/web", ("deployment", "web")),
        ("deployments.apps/web", ("deployment", "web")),
        ("deployments.v1.apps/web", ("deployment", "web")),
        ("sts/db", ("statefulset", "db")),
        ("ds/agent", ("daemonset", "agent")),
        ("rs/web-5f", ("replicaset", "web-5f")),
        ("rc/old", ("replicationcontroller", "old")),
        ("job/once", ("job", "once")),
        ("cj/nightly", ("cronjob", "nightly")),
        ("podgroup/train", ("podgroup", "train")),
        ("podgroups.scheduling.k8s.io/train", ("podgroup", "train")),
        ("rollouts.argoproj.io/web", ("rollouts", "web")),
        ("sts.apps.kruise.io/db", ("sts", "db")),
        ("workflow/build", ("workflow", "build")),
    ],
)
def test_target_takes_names_of_kinds(target, expected):
    assert parse_target(target, verb="trace") == expected


@pytest.mark.parametrize("target", ["web-1", "pod/", "/web"])
def test_target_without_kind_or_name_is_rejected(target):
    with pytest.raises(UserError, match=f"cannot explain '{target}'") as refused:
        parse_target(target, verb="explain")
    assert refused.value.hint.startswith("use pod/NAME")
