"""Admission plugins that do not run by default, one module each, in the order in which kube-apiserver runs them.

They run on a request after the default plugins of their phase; a server imports those that it runs.
NamespaceAutoProvision runs before all others and is part of AdmissionChain; AlwaysAdmit does nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module

from kubeloop.devcluster.admission.optional.plugin import OptionalPlugin, PluginEnvironment

_MODULES = {
    "NamespaceExists": "namespace_exists",
    "LimitPodHardAntiAffinityTopology": "limit_pod_hard_anti_affinity_topology",
    "NodeRestriction": "node_restriction",
    "AlwaysPullImages": "always_pull_images",
    "PodNodeSelector": "pod_node_selector",
    "PodTolerationRestriction": "pod_toleration_restriction",
    "EventRateLimit": "event_rate_limit",
    "ExtendedResourceToleration": "extended_resource_toleration",
    "OwnerReferencesPermissionEnforcement": "owner_references_permission_enforcement",
    "DenyServiceExternalIPs": "deny_service_external_ips",
    "AlwaysDeny": "always_deny",
}


def optional_plugins(names: Collection[str], environment: PluginEnvironment) -> tuple[OptionalPlugin, ...]:
    """Return the optional ones of these plugins, in the order in which they run."""
    plugins: list[OptionalPlugin] = []
    for name, module in _MODULES.items():
        if name in names:
            plugin: type[OptionalPlugin] = getattr(import_module(f"{__name__}.{module}"), name)
            plugins.append(plugin(environment))
    return tuple(plugins)
