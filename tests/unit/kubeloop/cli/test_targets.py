"""Targets of `kubeloop trace` and `kubeloop explain`."""

from __future__ import annotations

import pytest

from kubeloop.cli.targets import join_target, parse_target
from kubeloop.kube.user_error import UserError


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


@pytest.mark.parametrize(
    ("words", "expected"),
    [([], None), (["pod/web-1"], "pod/web-1"), (["pod", "web-1"], "pod/web-1"), (["deploy", "web"], "deploy/web")],
)
def test_kind_and_name_may_be_two_arguments(words, expected):
    assert join_target(words, verb="trace") == expected


@pytest.mark.parametrize("words", [["pod/a", "pod/b"], ["pod", "a", "b"], ["pod/a", "b"]])
def test_several_targets_are_rejected(words):
    with pytest.raises(UserError, match=f"cannot explain '{' '.join(words)}'") as refused:
        join_target(words, verb="explain")
    assert refused.value.hint.startswith("kubeloop explain takes one target: pod/NAME")
