"""Differences between kube-apiserver's internal types and v1; error messages show values in their internal form.

Lists only types with another order of fields, or other fields. Source: pkg/apis/core/types.go of Kubernetes v1.36.
"""

from __future__ import annotations

HOST_FIELDS = ("HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers")
"""Fields of a v1 PodSpec that belong to the security context in the internal version."""

_VOLUME_SOURCES = (
    "GCEPersistentDisk", "AWSElasticBlockStore", "HostPath", "Glusterfs", "NFS", "RBD", "Quobyte", "ISCSI",
    "FlexVolume", "Cinder", "CephFS", "FC", "Flocker", "AzureFile", "VsphereVolume", "AzureDisk",
    "PhotonPersistentDisk", "PortworxVolume", "ScaleIO", "Local", "StorageOS", "CSI",
)  # fmt: skip

ORDER: dict[str, tuple[str, ...]] = {
    "core/v1.PodSpec": (
        "Volumes", "InitContainers", "Containers", "EphemeralContainers", "RestartPolicy",
        "TerminationGracePeriodSeconds", "ActiveDeadlineSeconds", "DNSPolicy", "NodeSelector", "ServiceAccountName",
        "AutomountServiceAccountToken", "NodeName", "SecurityContext", "ImagePullSecrets", "Hostname", "Subdomain",
        "SetHostnameAsFQDN", "Affinity", "SchedulerName", "Tolerations", "HostAliases", "PriorityClassName",
        "Priority", "PreemptionPolicy", "DNSConfig", "ReadinessGates", "RuntimeClassName", "Overhead",
        "EnableServiceLinks", "TopologySpreadConstraints", "OS", "SchedulingGates", "ResourceClaims", "Resources",
        "HostnameOverride", "SchedulingGroup",
    ),
    "core/v1.Volume": (
        "Name", "HostPath", "EmptyDir", "GCEPersistentDisk", "AWSElasticBlockStore", "GitRepo", "Secret", "NFS",
        "ISCSI", "Glusterfs", "PersistentVolumeClaim", "RBD", "Quobyte", "FlexVolume", "Cinder", "CephFS", "Flocker",
        "DownwardAPI", "FC", "AzureFile", "ConfigMap", "VsphereVolume", "AzureDisk", "PhotonPersistentDisk",
        "Projected", "PortworxVolume", "ScaleIO", "StorageOS", "CSI", "Ephemeral", "Image",
    ),
    "core/v1.PersistentVolumeSource": _VOLUME_SOURCES,
    "core/v1.PersistentVolumeSpec": (
        "Capacity", *_VOLUME_SOURCES, "AccessModes", "ClaimRef", "PersistentVolumeReclaimPolicy", "StorageClassName",
        "MountOptions", "VolumeMode", "NodeAffinity", "VolumeAttributesClassName",
    ),
    "core/v1.NodeSpec": (
        "PodCIDRs", "ProviderID", "Unschedulable", "Taints", "ConfigSource", "DoNotUseExternalID",
    ),
    "core/v1.PodSecurityContext": (
        "HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers", "SELinuxOptions",
        "WindowsOptions", "RunAsUser", "RunAsGroup", "RunAsNonRoot", "SupplementalGroups",
        "SupplementalGroupsPolicy", "FSGroup", "FSGroupChangePolicy", "Sysctls", "SeccompProfile", "AppArmorProfile",
        "SELinuxChangePolicy",
    ),
    "core/v1.PodStatus": (
        "ObservedGeneration", "Phase", "Conditions", "Message", "Reason", "NominatedNodeName", "HostIP", "HostIPs",
        "PodIPs", "StartTime", "QOSClass", "InitContainerStatuses", "ContainerStatuses",
        "EphemeralContainerStatuses", "Resize", "ResourceClaimStatuses", "ExtendedResourceClaimStatus",
        "AllocatedResources", "Resources", "NodeAllocatableResourceClaimStatuses",
    ),
}  # fmt: skip
"""Go names of the fields of an internal type, in order."""

PLAIN = frozenset(
    {
        ("apps/v1.DeploymentSpec", "Replicas"), ("apps/v1.ReplicaSetSpec", "Replicas"),
        ("apps/v1.StatefulSetSpec", "Replicas"), ("apps/v1.RollingUpdateStatefulSetStrategy", "Partition"),
        ("apps/v1.RollingUpdateDaemonSet", "MaxUnavailable"), ("apps/v1.RollingUpdateDaemonSet", "MaxSurge"),
        ("apps/v1.RollingUpdateDeployment", "MaxUnavailable"), ("apps/v1.RollingUpdateDeployment", "MaxSurge"),
        ("admissionregistration/v1.ServiceReference", "Port"),
        ("core/v1.ServiceAccountTokenProjection", "ExpirationSeconds"),
        ("flowcontrol/v1.LimitedPriorityLevelConfiguration", "NominalConcurrencyShares"),
    }
)  # fmt: skip
"""Fields that are pointers in v1 and plain values in the internal version, where an unset field is zero."""
