"""The admission plugins of kube-apiserver v1.36, how much of each this server implements, and which ones run.

docs/devcluster.md has the same tables. Source: pkg/kubeapiserver/options/plugins.go, apiserver
pkg/server/options/admission.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from kubeloop.devcluster.admission.configuration_file import read_plugin_configuration
from kubeloop.kube.json_object import JSON
from kubeloop.kube.user_error import UserError, closest_names

Extent = Literal["complete", "partly", "not"]

DEFAULT_PLUGINS: dict[str, Extent] = {
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
"""The plugins that run by default, in kube-apiserver's order."""

OPTIONAL_PLUGINS: dict[str, Extent] = {
    "AlwaysAdmit": "complete",
    "NamespaceAutoProvision": "complete",
    "NamespaceExists": "complete",
    "LimitPodHardAntiAffinityTopology": "complete",
    "NodeRestriction": "complete",
    "AlwaysPullImages": "complete",
    "ImagePolicyWebhook": "not",
    "PodNodeSelector": "complete",
    "PodTolerationRestriction": "complete",
    "EventRateLimit": "complete",
    "ExtendedResourceToleration": "complete",
    "OwnerReferencesPermissionEnforcement": "complete",
    "DenyServiceExternalIPs": "complete",
    "AlwaysDeny": "complete",
}
"""The plugins that kube-apiserver does not run by default, in its order."""

_EXTENTS = DEFAULT_PLUGINS | OPTIONAL_PLUGINS

KUBEADM_PLUGINS = frozenset({*DEFAULT_PLUGINS, "NodeRestriction"})
"""The plugins of a cluster that kubeadm creates, such as one of kind."""

WITHOUT_ACCOUNTS = frozenset(DEFAULT_PLUGINS) - {"ServiceAccount"}
"""The plugins that envtest runs: where no controller creates ServiceAccounts, ServiceAccount would refuse all pods."""


class PluginSettings(msgspec.Struct, frozen=True):
    """The admission plugins of a server. plugins: names of those that run. configuration: see configuration_file."""

    plugins: frozenset[str] = WITHOUT_ACCOUNTS
    configuration: dict[str, JSON] = {}


def parse_plugins(
    enabled: Iterable[str], disabled: Iterable[str], default: frozenset[str], configuration_file: str = ""
) -> PluginSettings:
    """Return the plugins that comma-separated lists add to the default ones, and remove from them.

    Raises UserError for unknown names, for names in both lists, and for plugins that cannot be enabled or disabled.
    """
    added = _parse_names("enable-admission-plugins", enabled)
    removed = _parse_names("disable-admission-plugins", disabled)
    if both := sorted(added & removed):
        problem = f"[{' '.join(both)}] in --enable-admission-plugins and --disable-admission-plugins overlapped"
        raise UserError(problem, hint="name a plugin in one of them")
    for name in sorted(added):
        if _EXTENTS[name] == "not":
            problem = f"--enable-admission-plugins: kubeloop has no plugin {name}"
            raise UserError(problem, hint="leave it out, if no test depends on it")
    if "NamespaceLifecycle" in removed:
        problem = "--disable-admission-plugins: NamespaceLifecycle cannot be disabled"
        raise UserError(problem, hint="objects always need an existing namespace; leave it out")
    plugins, configuration = (default | added) - removed, dict[str, JSON]()
    if configuration_file:
        configuration = read_plugin_configuration(Path(configuration_file), plugins)
    if "EventRateLimit" in plugins and "EventRateLimit" not in configuration:
        problem = "--enable-admission-plugins: EventRateLimit has no limits"
        raise UserError(problem, hint="set them in the file of --admission-control-config-file")
    return PluginSettings(plugins, configuration)


def _parse_names(option: str, texts: Iterable[str]) -> frozenset[str]:
    names = frozenset(name.strip() for text in texts for name in text.split(",") if name.strip())
    for name in sorted(names - _EXTENTS.keys()):
        similar = closest_names(name, _EXTENTS)
        hint = f"did you mean {similar[0]}?" if similar else f"there are {', '.join(sorted(_EXTENTS))}"
        raise UserError(f'--{option} plugin "{name}" is unknown', hint=hint)
    return names
