"""The admission plugins that kube-apiserver v1.36 runs by default, and how much of each this server implements.

docs/devcluster.md has the same table. Source: pkg/kubeapiserver/options/plugins.go.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal

from kubeloop.kube.user_error import UserError

DEFAULT_PLUGINS: dict[str, Literal["complete", "partly", "not"]] = {
    "NamespaceLifecycle": "complete",
    "LimitRanger": "complete",
    "ServiceAccount": "complete",
    "TaintNodesByCondition": "complete",
    "PodSecurity": "partly",
    "Priority": "complete",
    "DefaultTolerationSeconds": "complete",
    "DefaultStorageClass": "complete",
    "StorageObjectInUseProtection": "complete",
    "PodGroupProtection": "complete",
    "PersistentVolumeClaimResize": "complete",
    "RuntimeClass": "complete",
    "CertificateApproval": "complete",
    "CertificateSigning": "complete",
    "ClusterTrustBundleAttest": "complete",
    "CertificateSubjectRestriction": "complete",
    "DefaultIngressClass": "complete",
    "PodTopologyLabels": "complete",
    "PodGroupWorkloadExists": "complete",
    "NodeDeclaredFeatureValidator": "complete",
    "JobValidation": "complete",
    "PodResizeValidator": "complete",
    "MutatingAdmissionPolicy": "partly",
    "MutatingAdmissionWebhook": "complete",
    "ValidatingAdmissionPolicy": "partly",
    "ValidatingAdmissionWebhook": "complete",
    "ResourceQuota": "complete",
}
"""In kube-apiserver's order."""

OTHER_PLUGINS = frozenset({
    "AlwaysAdmit", "AlwaysDeny", "AlwaysPullImages", "DenyServiceExternalIPs", "EventRateLimit",
    "ExtendedResourceToleration", "ImagePolicyWebhook", "LimitPodHardAntiAffinityTopology", "NamespaceAutoProvision",
    "NamespaceExists", "NodeRestriction", "OwnerReferencesPermissionEnforcement", "PodNodeSelector",
    "PodTolerationRestriction",
})  # fmt: skip
"""Plugins that do not run by default. This server has none of them."""

WITHOUT_ACCOUNTS = frozenset({"ServiceAccount"})
"""The plugins that envtest disables: where no controller creates ServiceAccounts, all pods would be refused."""


def parse_disabled_plugins(texts: Iterable[str]) -> frozenset[str]:
    """Return the plugins of comma-separated lists. Raises UserError for another name or NamespaceLifecycle."""
    names = frozenset(name.strip() for text in texts for name in text.split(",") if name.strip())
    for name in sorted(names - DEFAULT_PLUGINS.keys() - OTHER_PLUGINS):
        similar = difflib.get_close_matches(name, DEFAULT_PLUGINS, n=1)
        hint = f"did you mean {similar[0]}?" if similar else f"there are {', '.join(DEFAULT_PLUGINS)}"
        raise UserError(f"disable-admission-plugins: no plugin '{name}' runs by default", hint=hint)
    if "NamespaceLifecycle" in names:
        problem = "disable-admission-plugins: NamespaceLifecycle cannot be disabled"
        raise UserError(problem, hint="objects always need an existing namespace; leave it out")
    return names


def check_enabled_plugins(texts: Iterable[str]) -> None:
    """Raise UserError unless the plugins of comma-separated lists run: those that run by default, and AlwaysAdmit."""
    names = {name.strip() for text in texts for name in text.split(",") if name.strip()}
    for name in sorted(names - DEFAULT_PLUGINS.keys() - {"AlwaysAdmit"}):
        if name not in OTHER_PLUGINS:
            problem = f'enable-admission-plugins plugin "{name}" is unknown'
            raise UserError(problem, hint=f"there are {', '.join(sorted([*DEFAULT_PLUGINS, *OTHER_PLUGINS]))}")
        problem = f"enable-admission-plugins: kubeloop has no plugin {name}"
        raise UserError(problem, hint="leave it out, if no test depends on it")
