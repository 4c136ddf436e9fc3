"""RBAC rules of what a controller declares."""

from __future__ import annotations

from kubeloop.controllers.api.permissions import AccessRule, rules_for
from kubeloop.controllers.api.watches import Watches
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS, SECRETS
from support.controllers.sites import Sites


def test_rules_follow_watches_and_declared_permissions():
    declared = [AccessRule(SECRETS, "get create"), AccessRule(DEPLOYMENTS, "patch", "scale"), AccessRule(PODS, "get")]
    read = ["get", "list", "watch"]
    owned = ["create", "delete", "get", "list", "patch", "update", "watch"]
    assert rules_for(Sites.watches, declared) == [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": owned},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": owned},
        {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]},
        {"apiGroups": ["example.com"], "resources": ["sites"], "verbs": [*read[:2], "patch", "update", "watch"]},
        {"apiGroups": ["example.com"], "resources": ["sites/finalizers"], "verbs": ["update"]},
        {"apiGroups": ["example.com"], "resources": ["sites/status"], "verbs": ["patch", "update"]},
    ]


def test_watches_of_other_clusters_need_no_rules():
    assert rules_for([*Sites.watches, Watches(SECRETS, cluster="west")], ()) == rules_for(Sites.watches, ())
