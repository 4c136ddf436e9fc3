"""Feature gates of Kubernetes v1.36: names, defaults, stages, and the values of one process.

`GATES` holds every gate that the binaries of Kubernetes v1.36 know, so that the same --feature-gates works for all
components. A gate is in one of three groups:

- `OBEYED`: both settings do what they do in Kubernetes. The controllers, the scheduler, the garbage collector and the
  development API server read these with FeatureGates.enabled().
- `REFUSED`: it would switch on something that kubeloop does not have. That is an error; AllAlpha and AllBeta leave the
  gate at its default, with a warning.
- All others: gates of parts that kubeloop does not have (kubelet, kube-proxy, other controllers, internals of client-go
  and the API server without an effect on responses). They can be set, with a warning that it has no effect.

Sources: pkg/features, the features packages of apiserver, apiextensions-apiserver, client-go, controller-manager and
component-base; component-base/featuregate/feature_gate.go for the rules of FeatureGates.parse().

Imports `errors` only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from kubeloop.kube.errors import UserError

Stage = Literal["ALPHA", "BETA", "GA", "DEPRECATED"]
_COMPONENT = "kube"
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_ALL_OF_STAGE: dict[str, Stage] = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}


class Gate(msgspec.Struct, frozen=True):
    """A gate as of v1.36. locked: cannot be set to anything but its default."""

    default: bool
    stage: Stage
    locked: bool = False


class FeatureGates(msgspec.Struct, frozen=True):
    """Values of the feature gates of one process.

    values: of gates that are set. warnings: messages about gates whose setting has no effect, or that will be removed.
    """

    values: Mapping[str, bool]
    warnings: tuple[str, ...] = ()

    def enabled(self, name: str) -> bool:
        """Return the value of a gate. Raises KeyError for a gate that Kubernetes v1.36 does not know."""
        value = self.values.get(name)
        return GATES[name].default if value is None else value

    @classmethod
    def parse(cls, texts: Iterable[str] | Mapping[str, bool]) -> FeatureGates:
        """Return the values that the --feature-gates of a command line, or a mapping, select.

        texts: values of the option, "A=true,B=false"; a later one takes precedence. Raises UserError.
        """
        requested = dict(texts) if isinstance(texts, Mapping) else _parsed_pairs(texts)
        if not requested:
            return DEFAULT_FEATURE_GATES
        problems, warnings = [], []
        values: dict[str, bool] = {}
        for name, value in requested.items():
            gate = GATES.get(name)
            if gate is None:
                raise _unrecognized(name)
            if gate.locked and value != gate.default:
                problems.append(
                    f"cannot set feature gate {name} to {_text(value)}, feature is locked to {_text(gate.default)}"
                )
            elif value != gate.default and name in REFUSED:
                problems.append(f"cannot set feature gate {name} to {_text(value)}: {REFUSED[name]}")
            else:
                warnings += _warnings_of(name, gate, value)
                values[name] = value
        if problems:
            raise UserError(_aggregate(problems), hint=_hint())
        for name, stage in _ALL_OF_STAGE.items():
            if name in requested:
                warnings += _set_stage(values, stage, requested[name])
        problems = [
            f"{name} is enabled, but depends on features that are disabled: [{' '.join(disabled)}]"
            for name, dependencies in DEPENDENCIES.items()
            if _enabled(values, name)
            and (disabled := [dependency for dependency in dependencies if not _enabled(values, dependency)])
        ]
        if problems:
            raise UserError(_aggregate(problems), hint="set the gates that it depends on to the same value")
        return cls(values, tuple(warnings))

    def all(self) -> list[tuple[str, str, bool]]:
        """Return name, stage and value of every gate; the stage of GA is "", as in Kubernetes' metric."""
        return [
            (name, "" if gate.stage == "GA" else gate.stage, self.enabled(name)) for name, gate in sorted(GATES.items())
        ]

    def text(self) -> str:
        """Return the values that are set, as --feature-gates takes them."""
        return ",".join(f"{name}={_text(self.values[name])}" for name in sorted(self.values))


def _parsed_pairs(texts: Iterable[str]) -> dict[str, bool]:
    """Return the values by name. Raises UserError."""
    pairs: dict[str, bool] = {}
    components = set()
    for entry in filter(None, ",".join(texts).split(",")):
        component, separator, pair = (part.strip() for part in entry.rpartition(":"))
        components.add(component)
        if separator and component != _COMPONENT:
            raise UserError(f"component not registered: {component}", hint="write NAME=true or kube:NAME=true")
        name, separator, value = (part.strip() for part in pair.partition("="))
        if not separator:
            raise UserError(f"missing bool value for {name}", hint=f"write {name}=true or {name}=false")
        if value not in _TRUE | _FALSE:
            raise UserError(
                f'invalid value of {name}={value}, err: strconv.ParseBool: parsing "{value}": invalid syntax',
                hint=f"write {name}=true or {name}=false",
            )
        pairs[name] = value in _TRUE
    if len(components) > 1:
        raise UserError(
            "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use",
            hint="write NAME=true for all",
        )
    return pairs


def _set_stage(values: dict[str, bool], stage: Stage, value: bool) -> list[str]:
    """Set all gates of a stage that are not set. Returns warnings about those that cannot be set."""
    refused = []
    for name, gate in GATES.items():
        if gate.stage == stage and name not in values and not gate.locked and name not in _ALL_OF_STAGE:
            if value != gate.default and name in REFUSED:
                refused.append(name)
            else:
                values[name] = value
    if not refused:
        return []
    gates = "AllAlpha" if stage == "ALPHA" else "AllBeta"
    return [f"{gates}={_text(value)} leaves the gates at their default that kubeloop cannot set: {', '.join(refused)}"]


def _warnings_of(name: str, gate: Gate, value: bool) -> list[str]:
    warnings = []
    if gate.stage in ("GA", "DEPRECATED"):
        stage = "GA" if gate.stage == "GA" else "deprecated"
        warnings.append(f"setting {stage} feature gate {name}={_text(value)}. It will be removed in a future release.")
    if name not in OBEYED and value != gate.default and name not in _ALL_OF_STAGE:
        warnings.append(f"feature gate {name}={_text(value)} has no effect: it belongs to a part that kubeloop lacks")
    return warnings


def _enabled(values: Mapping[str, bool], name: str) -> bool:
    return values.get(name, GATES[name].default)


def _unrecognized(name: str) -> UserError:
    import difflib  # rarely needed

    similar = difflib.get_close_matches(name, GATES, n=1)
    return UserError(f"unrecognized feature gate: {name}", hint=f"did you mean {similar[0]}?" if similar else _hint())


def _aggregate(problems: list[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


def _hint() -> str:
    return "kubeloop run --help lists the feature gates; docs/feature-gates.md says which can be set"


def _text(value: bool) -> str:
    return "true" if value else "false"


def known_features() -> list[str]:
    """Return one line per gate that --help lists: alpha and beta gates, as kube-scheduler --help does."""
    return [
        f"{_COMPONENT}:{name}=true|false ({gate.stage} - default={_text(gate.default)})"
        for name, gate in sorted(GATES.items())
        if gate.stage in ("ALPHA", "BETA") and not gate.locked
    ]


GATES: dict[str, Gate] = {
    "APIResponseCompression": Gate(True, "BETA"),
    "APIServerIdentity": Gate(True, "BETA"),
    "APIServerTracing": Gate(True, "GA", locked=True),
    "APIServingWithRoutine": Gate(False, "ALPHA"),
    "AggregatedDiscoveryRemoveBetaType": Gate(True, "DEPRECATED", locked=True),
    "AllAlpha": Gate(False, "ALPHA"),
    "AllBeta": Gate(False, "BETA"),
    "AllowDNSOnlyNodeCSR": Gate(False, "DEPRECATED"),
    "AllowInsecureKubeletCertificateSigningRequests": Gate(False, "DEPRECATED"),
    "AllowOverwriteTerminationGracePeriodSeconds": Gate(False, "DEPRECATED", locked=True),
    "AllowParsingUserUIDFromCertAuth": Gate(True, "BETA"),
    "AllowServiceExternalIPs": Gate(True, "GA"),
    "AllowUnsafeMalformedObjectDeletion": Gate(False, "ALPHA"),
    "AnonymousAuthConfigurableEndpoints": Gate(True, "GA", locked=True),
    "AnyVolumeDataSource": Gate(True, "GA", locked=True),
    "AtomicFIFO": Gate(True, "BETA"),
    "AuthorizeNodeWithSelectors": Gate(True, "GA", locked=True),
    "AuthorizePodWebsocketUpgradeCreatePermission": Gate(True, "BETA"),
    "AuthorizeWithSelectors": Gate(True, "GA", locked=True),
    "BtreeWatchCache": Gate(True, "GA", locked=True),
    "CBORServingAndStorage": Gate(False, "ALPHA"),
    "CPUManagerPolicyAlphaOptions": Gate(False, "ALPHA"),
    "CPUManagerPolicyBetaOptions": Gate(True, "BETA"),
    "CPUManagerPolicyOptions": Gate(True, "GA", locked=True),
    "CRDObservedGenerationTracking": Gate(True, "BETA"),
    "CRDValidationRatcheting": Gate(True, "GA", locked=True),
    "CRIListStreaming": Gate(False, "ALPHA"),
    "CSIServiceAccountTokenSecrets": Gate(True, "GA", locked=True),
    "CSIVolumeHealth": Gate(False, "ALPHA"),
    "ChangeContainerStatusOnKubeletRestart": Gate(False, "DEPRECATED"),
    "ClearingNominatedNodeNameAfterBinding": Gate(True, "BETA"),
    "ClientsAllowCARotation": Gate(True, "BETA"),
    "ClientsAllowCBOR": Gate(False, "ALPHA"),
    "ClientsAllowTLSCacheGC": Gate(True, "BETA"),
    "ClientsPreferCBOR": Gate(False, "ALPHA"),
    "CloudControllerManagerWatchBasedRoutesReconciliation": Gate(False, "ALPHA"),
    "CloudControllerManagerWebhook": Gate(False, "ALPHA"),
    "ClusterTrustBundle": Gate(False, "BETA"),
    "ClusterTrustBundleProjection": Gate(False, "BETA"),
    "ComponentFlagz": Gate(True, "BETA"),
    "ComponentStatusz": Gate(True, "BETA"),
    "ConcurrentWatchObjectDecode": Gate(False, "BETA"),
    "ConsistentListFromCache": Gate(True, "GA", locked=True),
    "ConstrainedImpersonation": Gate(True, "BETA"),
    "ContainerCheckpoint": Gate(True, "BETA"),
    "ContainerRestartRules": Gate(True, "BETA"),
    "ContainerStopSignals": Gate(False, "ALPHA"),
    "ContextualLogging": Gate(True, "BETA"),
    "ControllerManagerReleaseLeaderElectionLockOnExit": Gate(False, "ALPHA"),
    "CoordinatedLeaderElection": Gate(False, "BETA"),
    "CrossNamespaceVolumeDataSource": Gate(False, "ALPHA"),
    "CustomCPUCFSQuotaPeriod": Gate(True, "GA"),
    "CustomResourceFieldSelectors": Gate(True, "GA", locked=True),
    "DRAAdminAccess": Gate(True, "GA", locked=True),
    "DRAConsumableCapacity": Gate(True, "BETA"),
    "DRADeviceBindingConditions": Gate(True, "BETA"),
    "DRADeviceTaintRules": Gate(False, "BETA"),
    "DRADeviceTaints": Gate(True, "BETA"),
    "DRAExtendedResource": Gate(True, "BETA"),
    "DRAListTypeAttributes": Gate(False, "ALPHA"),
    "DRANodeAllocatableResources": Gate(False, "ALPHA"),
    "DRAPartitionableDevices": Gate(True, "BETA"),
    "DRAPrioritizedList": Gate(True, "GA"),
    "DRAResourceClaimDeviceStatus": Gate(True, "BETA"),
    "DRAResourceClaimGranularStatusAuthorization": Gate(True, "BETA"),
    "DRAResourcePoolStatus": Gate(False, "ALPHA"),
    "DRASchedulerFilterTimeout": Gate(True, "BETA"),
    "DRAWorkloadResourceClaims": Gate(False, "ALPHA"),
    "DeclarativeValidation": Gate(True, "GA", locked=True),
    "DeclarativeValidationBeta": Gate(True, "BETA"),
    "DeclarativeValidationTakeover": Gate(False, "DEPRECATED"),
    "DeploymentReplicaSetTerminatingReplicas": Gate(True, "BETA"),
    "DetectCacheInconsistency": Gate(True, "BETA"),
    "DisableAllocatorDualWrite": Gate(True, "GA", locked=True),
    "DisableCPUQuotaWithExclusiveCPUs": Gate(True, "DEPRECATED"),
    "DisableNodeKubeProxyVersion": Gate(True, "DEPRECATED", locked=True),
    "DynamicResourceAllocation": Gate(True, "GA", locked=True),
    "EnvFiles": Gate(True, "BETA"),
    "EventedPLEG": Gate(False, "ALPHA"),
    "ExecProbeTimeout": Gate(True, "GA", locked=True),
    "ExtendWebSocketsToKubelet": Gate(True, "BETA"),
    "ExternalServiceAccountTokenSigner": Gate(True, "GA", locked=True),
    "GangScheduling": Gate(False, "ALPHA"),
    "GenericWorkload": Gate(False, "ALPHA"),
    "GitRepoVolumeDriver": Gate(False, "DEPRECATED", locked=True),
    "GracefulNodeShutdown": Gate(True, "BETA"),
    "GracefulNodeShutdownBasedOnPodPriority": Gate(True, "BETA"),
    "HPAConfigurableTolerance": Gate(True, "BETA"),
    "HPAScaleToZero": Gate(False, "ALPHA"),
    "HostnameOverride": Gate(True, "BETA"),
    "ImageMaximumGCAge": Gate(True, "GA", locked=True),
    "ImageVolume": Gate(True, "GA", locked=True),
    "ImageVolumeWithDigest": Gate(False, "ALPHA"),
    "InOrderInformers": Gate(True, "GA", locked=True),
    "InOrderInformersBatchProcess": Gate(True, "BETA"),
    "InPlacePodLevelResourcesVerticalScaling": Gate(True, "BETA"),
    "InPlacePodVerticalScaling": Gate(True, "GA", locked=True),
    "InPlacePodVerticalScalingExclusiveCPUs": Gate(False, "ALPHA"),
    "InPlacePodVerticalScalingExclusiveMemory": Gate(False, "ALPHA"),
    "InPlacePodVerticalScalingInitContainers": Gate(True, "BETA"),
    "InformerResourceVersion": Gate(True, "GA"),
    "JobBackoffLimitPerIndex": Gate(True, "GA", locked=True),
    "JobManagedBy": Gate(True, "GA", locked=True),
    "JobPodReplacementPolicy": Gate(True, "GA", locked=True),
    "JobSuccessPolicy": Gate(True, "GA", locked=True),
    "KMSv1": Gate(False, "DEPRECATED"),
    "KubeletCgroupDriverFromCRI": Gate(True, "GA", locked=True),
    "KubeletCrashLoopBackOffMax": Gate(True, "BETA"),
    "KubeletEnsureSecretPulledImages": Gate(True, "BETA"),
    "KubeletFineGrainedAuthz": Gate(True, "GA", locked=True),
    "KubeletInUserNamespace": Gate(False, "ALPHA"),
    "KubeletPSI": Gate(True, "GA", locked=True),
    "KubeletPodResourcesDynamicResources": Gate(True, "GA", locked=True),
    "KubeletPodResourcesGet": Gate(True, "GA", locked=True),
    "KubeletPodResourcesListUseActivePods": Gate(True, "DEPRECATED"),
    "KubeletRegistrationGetOnExistsOnly": Gate(False, "DEPRECATED"),
    "KubeletSeparateDiskGC": Gate(True, "BETA"),
    "KubeletServiceAccountTokenForCredentialProviders": Gate(True, "BETA"),
    "KubeletTracing": Gate(True, "GA", locked=True),
    "ListFromCacheSnapshot": Gate(True, "BETA"),
    "LocalStorageCapacityIsolationFSQuotaMonitoring": Gate(False, "BETA"),
    "LogarithmicScaleDown": Gate(True, "GA", locked=True),
    "LoggingAlphaOptions": Gate(False, "ALPHA"),
    "LoggingBetaOptions": Gate(True, "BETA"),
    "ManifestBasedAdmissionControlConfig": Gate(False, "ALPHA"),
    "MatchLabelKeysInPodAffinity": Gate(True, "GA", locked=True),
    "MatchLabelKeysInPodTopologySpread": Gate(True, "BETA"),
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": Gate(True, "BETA"),
    "MaxUnavailableStatefulSet": Gate(False, "BETA"),
    "MemoryQoS": Gate(False, "ALPHA"),
    "MultiCIDRServiceAllocator": Gate(True, "GA", locked=True),
    "MutableCSINodeAllocatableCount": Gate(True, "GA", locked=True),
    "MutablePVNodeAffinity": Gate(False, "ALPHA"),
    "MutablePodResourcesForSuspendedJobs": Gate(True, "BETA"),
    "MutableSchedulingDirectivesForSuspendedJobs": Gate(True, "BETA"),
    "MutatingAdmissionPolicy": Gate(True, "GA"),
    "NFTablesProxyMode": Gate(True, "GA", locked=True),
    "NativeHistograms": Gate(False, "ALPHA"),
    "NodeDeclaredFeatures": Gate(True, "BETA"),
    "NodeInclusionPolicyInPodTopologySpread": Gate(True, "GA", locked=True),
    "NodeLogQuery": Gate(True, "GA", locked=True),
    "NodeSwap": Gate(True, "GA", locked=True),
    "NominatedNodeNameForExpectation": Gate(True, "BETA"),
    "OpenAPIEnums": Gate(True, "BETA"),
    "OpportunisticBatching": Gate(True, "BETA"),
    "OrderedNamespaceDeletion": Gate(True, "GA", locked=True),
    "PLEGOnDemandRelist": Gate(True, "BETA"),
    "PersistentVolumeClaimUnusedSinceTime": Gate(False, "ALPHA"),
    "PodAndContainerStatsFromCRI": Gate(False, "ALPHA"),
    "PodCertificateRequest": Gate(False, "BETA"),
    "PodDeletionCost": Gate(True, "BETA"),
    "PodLevelResourceManagers": Gate(False, "ALPHA"),
    "PodLevelResources": Gate(True, "BETA"),
    "PodLifecycleSleepAction": Gate(True, "GA", locked=True),
    "PodLifecycleSleepActionAllowZero": Gate(True, "GA", locked=True),
    "PodLogsQuerySplitStreams": Gate(False, "ALPHA"),
    "PodObservedGenerationTracking": Gate(True, "GA", locked=True),
    "PodReadyToStartContainersCondition": Gate(True, "BETA"),
    "PodSchedulingReadiness": Gate(True, "GA", locked=True),
    "PodTopologyLabelsAdmission": Gate(True, "BETA"),
    "PodsAPI": Gate(False, "ALPHA"),
    "PortForwardWebsockets": Gate(True, "BETA"),
    "PreferSameTrafficDistribution": Gate(True, "GA", locked=True),
    "PreventStaticPodAPIReferences": Gate(True, "BETA"),
    "ProcMountType": Gate(True, "GA", locked=True),
    "QOSReserved": Gate(False, "ALPHA"),
    "RecoverVolumeExpansionFailure": Gate(True, "GA", locked=True),
    "RecursiveReadOnlyMounts": Gate(True, "GA", locked=True),
    "ReduceDefaultCrashLoopBackOffDecay": Gate(False, "ALPHA"),
    "RelaxedDNSSearchValidation": Gate(True, "GA", locked=True),
    "RelaxedEnvironmentVariableValidation": Gate(True, "GA", locked=True),
    "RelaxedServiceNameValidation": Gate(True, "BETA"),
    "ReloadKubeletClientCAFile": Gate(True, "BETA"),
    "ReloadKubeletServerCertificateFile": Gate(True, "BETA"),
    "RemoteRequestHeaderUID": Gate(True, "BETA"),
    "ResilientWatchCacheInitialization": Gate(True, "GA", locked=True),
    "ResourceHealthStatus": Gate(True, "BETA"),
    "ResourceHealthStatusMessage": Gate(True, "BETA"),
    "RestartAllContainersOnContainerExits": Gate(True, "BETA"),
    "RetryGenerateName": Gate(True, "GA", locked=True),
    "RotateKubeletServerCertificate": Gate(True, "BETA"),
    "RuntimeClassInImageCriApi": Gate(False, "ALPHA"),
    "SELinuxChangePolicy": Gate(True, "GA", locked=True),
    "SELinuxMount": Gate(False, "BETA"),
    "SELinuxMountReadWriteOncePod": Gate(True, "GA", locked=True),
    "SchedulerAsyncAPICalls": Gate(False, "BETA"),
    "SchedulerAsyncPreemption": Gate(True, "BETA"),
    "SchedulerPopFromBackoffQ": Gate(True, "BETA"),
    "SchedulerQueueingHints": Gate(True, "GA", locked=True),
    "SeparateCacheWatchRPC": Gate(False, "DEPRECATED", locked=True),
    "SeparateTaintEvictionController": Gate(True, "GA", locked=True),
    "ServiceAccountNodeAudienceRestriction": Gate(True, "BETA"),
    "ServiceAccountTokenJTI": Gate(True, "GA", locked=True),
    "ServiceAccountTokenNodeBinding": Gate(True, "GA", locked=True),
    "ServiceAccountTokenNodeBindingValidation": Gate(True, "GA", locked=True),
    "ServiceAccountTokenPodNodeInfo": Gate(True, "GA", locked=True),
    "ServiceCIDRStatusFieldWiping": Gate(True, "DEPRECATED"),
    "ShardedListAndWatch": Gate(False, "ALPHA"),
    "SidecarContainers": Gate(True, "GA", locked=True),
    "SizeBasedListCostEstimate": Gate(True, "BETA"),
    "StaleControllerConsistencyDaemonSet": Gate(True, "BETA"),
    "StaleControllerConsistencyJob": Gate(True, "BETA"),
    "StaleControllerConsistencyReplicaSet": Gate(True, "BETA"),
    "StaleControllerConsistencyStatefulSet": Gate(True, "BETA"),
    "StatefulSetSemanticRevisionComparison": Gate(True, "BETA"),
    "StorageCapacityScoring": Gate(False, "ALPHA"),
    "StorageNamespaceIndex": Gate(True, "DEPRECATED"),
    "StorageVersionAPI": Gate(False, "ALPHA"),
    "StorageVersionHash": Gate(True, "BETA"),
    "StorageVersionMigrator": Gate(False, "BETA"),
    "StreamingCollectionEncodingToJSON": Gate(True, "GA", locked=True),
    "StreamingCollectionEncodingToProtobuf": Gate(True, "GA", locked=True),
    "StrictIPCIDRValidation": Gate(True, "BETA"),
    "StructuredAuthenticationConfiguration": Gate(True, "GA", locked=True),
    "StructuredAuthenticationConfigurationEgressSelector": Gate(True, "BETA"),
    "StructuredAuthenticationConfigurationJWKSMetrics": Gate(True, "BETA"),
    "SupplementalGroupsPolicy": Gate(True, "GA", locked=True),
    "SystemdWatchdog": Gate(True, "GA", locked=True),
    "TaintTolerationComparisonOperators": Gate(False, "ALPHA"),
    "TokenRequestServiceAccountUIDValidation": Gate(True, "BETA"),
    "TopologyAwareWorkloadScheduling": Gate(False, "ALPHA"),
    "TopologyManagerPolicyAlphaOptions": Gate(False, "ALPHA"),
    "TopologyManagerPolicyBetaOptions": Gate(True, "BETA"),
    "TopologyManagerPolicyOptions": Gate(True, "GA", locked=True),
    "TranslateStreamCloseWebsocketRequests": Gate(True, "BETA"),
    "UnauthenticatedHTTP2DOSMitigation": Gate(True, "BETA"),
    "UnknownVersionInteroperabilityProxy": Gate(True, "BETA"),
    "UnlockWhileProcessingFIFO": Gate(True, "BETA"),
    "UserNamespacesHostNetworkSupport": Gate(False, "ALPHA"),
    "UserNamespacesSupport": Gate(True, "GA", locked=True),
    "VolumeAttributesClass": Gate(True, "GA", locked=True),
    "VolumeLimitScaling": Gate(False, "ALPHA"),
    "WatchCacheInitializationPostStartHook": Gate(True, "BETA"),
    "WatchList": Gate(True, "BETA"),
    "WatchListClient": Gate(True, "BETA"),
    "WinDSR": Gate(True, "GA", locked=True),
    "WinOverlay": Gate(True, "GA", locked=True),
    "WindowsCPUAndMemoryAffinity": Gate(False, "ALPHA"),
    "WindowsGracefulNodeShutdown": Gate(True, "BETA"),
    "WindowsHostNetwork": Gate(False, "DEPRECATED"),
    "WorkloadAwarePreemption": Gate(False, "ALPHA"),
    "WorkloadWithJob": Gate(False, "ALPHA"),
}
"""All gates of v1.36."""

DEPENDENCIES: dict[str, tuple[str, ...]] = {
    "AuthorizeNodeWithSelectors": ("AuthorizeWithSelectors",),
    "ClusterTrustBundleProjection": ("ClusterTrustBundle",),
    "DRAAdminAccess": ("DynamicResourceAllocation",),
    "DRAConsumableCapacity": ("DynamicResourceAllocation",),
    "DRADeviceBindingConditions": ("DRAResourceClaimDeviceStatus", "DynamicResourceAllocation"),
    "DRADeviceTaintRules": ("DRADeviceTaints",),
    "DRADeviceTaints": ("DynamicResourceAllocation",),
    "DRAExtendedResource": ("DynamicResourceAllocation",),
    "DRAListTypeAttributes": ("DynamicResourceAllocation",),
    "DRANodeAllocatableResources": ("DynamicResourceAllocation",),
    "DRAPartitionableDevices": ("DynamicResourceAllocation",),
    "DRAPrioritizedList": ("DynamicResourceAllocation",),
    "DRAResourceClaimGranularStatusAuthorization": ("DRAResourceClaimDeviceStatus", "DynamicResourceAllocation"),
    "DRAResourcePoolStatus": ("DynamicResourceAllocation",),
    "DRASchedulerFilterTimeout": ("DynamicResourceAllocation",),
    "DRAWorkloadResourceClaims": ("DynamicResourceAllocation", "GenericWorkload"),
    "DeclarativeValidationBeta": ("DeclarativeValidation",),
    "DeclarativeValidationTakeover": ("DeclarativeValidation",),
    "DisableAllocatorDualWrite": ("MultiCIDRServiceAllocator",),
    "ExtendWebSocketsToKubelet": ("NodeDeclaredFeatures",),
    "GangScheduling": ("GenericWorkload",),
    "GracefulNodeShutdownBasedOnPodPriority": ("GracefulNodeShutdown",),
    "ImageVolumeWithDigest": ("ImageVolume",),
    "InPlacePodLevelResourcesVerticalScaling": (
        "InPlacePodVerticalScaling",
        "NodeDeclaredFeatures",
        "PodLevelResources",
    ),
    "InPlacePodVerticalScalingExclusiveCPUs": ("InPlacePodVerticalScaling",),
    "InPlacePodVerticalScalingExclusiveMemory": ("InPlacePodVerticalScaling",),
    "InPlacePodVerticalScalingInitContainers": ("InPlacePodVerticalScaling", "NodeDeclaredFeatures"),
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": ("MatchLabelKeysInPodTopologySpread",),
    "PodCertificateRequest": ("AuthorizeNodeWithSelectors",),
    "PodLevelResourceManagers": ("PodLevelResources",),
    "PodLifecycleSleepActionAllowZero": ("PodLifecycleSleepAction",),
    "ProcMountType": ("UserNamespacesSupport",),
    "ResourceHealthStatus": ("DynamicResourceAllocation",),
    "ResourceHealthStatusMessage": ("ResourceHealthStatus",),
    "RestartAllContainersOnContainerExits": ("ContainerRestartRules", "NodeDeclaredFeatures"),
    "ServiceAccountTokenNodeBinding": ("ServiceAccountTokenNodeBindingValidation",),
    "StaleControllerConsistencyDaemonSet": ("AtomicFIFO",),
    "StaleControllerConsistencyJob": ("AtomicFIFO",),
    "StaleControllerConsistencyReplicaSet": ("AtomicFIFO",),
    "StaleControllerConsistencyStatefulSet": ("AtomicFIFO",),
    "StorageVersionAPI": ("APIServerIdentity",),
    "StructuredAuthenticationConfigurationEgressSelector": ("StructuredAuthenticationConfiguration",),
    "StructuredAuthenticationConfigurationJWKSMetrics": ("StructuredAuthenticationConfiguration",),
    "TopologyAwareWorkloadScheduling": ("GenericWorkload",),
    "UnknownVersionInteroperabilityProxy": ("APIServerIdentity",),
    "UserNamespacesHostNetworkSupport": ("NodeDeclaredFeatures", "UserNamespacesSupport"),
    "WindowsGracefulNodeShutdown": ("GracefulNodeShutdown",),
    "WorkloadAwarePreemption": ("GangScheduling",),
    "WorkloadWithJob": ("GenericWorkload",),
}

OBEYED: frozenset[str] = frozenset(
    {
        "APIResponseCompression",
        "APIServerIdentity",
        "CRDObservedGenerationTracking",
        "ClearingNominatedNodeNameAfterBinding",
        "ComponentFlagz",
        "ComponentStatusz",
        "ContainerRestartRules",
        "ContainerStopSignals",
        "CrossNamespaceVolumeDataSource",
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions",
        "DRADeviceTaintRules",
        "DRADeviceTaints",
        "DRAExtendedResource",
        "DRAListTypeAttributes",
        "DRANodeAllocatableResources",
        "DRAPartitionableDevices",
        "DRAPrioritizedList",
        "DRAResourceClaimDeviceStatus",
        "DRAResourceClaimGranularStatusAuthorization",
        "DRASchedulerFilterTimeout",
        "DRAWorkloadResourceClaims",
        "DeploymentReplicaSetTerminatingReplicas",
        "EnvFiles",
        "ExtendWebSocketsToKubelet",
        "GangScheduling",
        "GenericWorkload",
        "HPAConfigurableTolerance",
        "HPAScaleToZero",
        "HostnameOverride",
        "ImageVolumeWithDigest",
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
        "MatchLabelKeysInPodTopologySpread",
        "MatchLabelKeysInPodTopologySpreadSelectorMerge",
        "MaxUnavailableStatefulSet",
        "MutablePVNodeAffinity",
        "MutablePodResourcesForSuspendedJobs",
        "MutableSchedulingDirectivesForSuspendedJobs",
        "MutatingAdmissionPolicy",
        "NodeDeclaredFeatures",
        "NominatedNodeNameForExpectation",
        "OpenAPIEnums",
        "OpportunisticBatching",
        "PodDeletionCost",
        "PodLevelResources",
        "PodLogsQuerySplitStreams",
        "PodTopologyLabelsAdmission",
        "PortForwardWebsockets",
        "RelaxedServiceNameValidation",
        "ResourceHealthStatus",
        "ResourceHealthStatusMessage",
        "RestartAllContainersOnContainerExits",
        "SELinuxMount",
        "SchedulerAsyncAPICalls",
        "SchedulerAsyncPreemption",
        "SchedulerPopFromBackoffQ",
        "ServiceCIDRStatusFieldWiping",
        "ShardedListAndWatch",
        "StaleControllerConsistencyJob",
        "StaleControllerConsistencyReplicaSet",
        "StaleControllerConsistencyStatefulSet",
        "StatefulSetSemanticRevisionComparison",
        "StorageCapacityScoring",
        "StorageVersionHash",
        "StrictIPCIDRValidation",
        "TaintTolerationComparisonOperators",
        "TokenRequestServiceAccountUIDValidation",
        "TopologyAwareWorkloadScheduling",
        "TranslateStreamCloseWebsocketRequests",
        "UnknownVersionInteroperabilityProxy",
        "UserNamespacesHostNetworkSupport",
        "VolumeLimitScaling",
        "WatchList",
        "WorkloadAwarePreemption",
        "WorkloadWithJob",
    }
)
"""Gates of which both settings do what they do in Kubernetes."""

GANG_SCHEDULING_GATES = (
    "GenericWorkload",
    "GangScheduling",
    "TopologyAwareWorkloadScheduling",
    "WorkloadAwarePreemption",
    "WorkloadWithJob",
    "DRAWorkloadResourceClaims",
)
"""Gates that the option --gang-scheduling enables."""


def gang_scheduling_text() -> str:
    """Return the value of --feature-gates that enables gang scheduling."""
    return ",".join(f"{gate}=true" for gate in GANG_SCHEDULING_GATES)


REFUSED: dict[str, str] = {
    **dict.fromkeys(
        (
            "ClusterTrustBundle",
            "ClusterTrustBundleProjection",
            "CoordinatedLeaderElection",
            "PodCertificateRequest",
            "StorageVersionAPI",
            "StorageVersionMigrator",
        ),
        "kubeloop does not serve the API that it switches on",
    ),
    "DRAResourcePoolStatus": "kubeloop has no such extension of dynamic resource allocation (DRA)",
    "AllowUnsafeMalformedObjectDeletion": "the development API server stores no object that it cannot decode",
    "CBORServingAndStorage": "the development API server has no CBOR serializer",
    "KMSv1": "the development API server does not encrypt what it stores",
    "ManifestBasedAdmissionControlConfig": "the development API server reads no admission configuration from files",
    "NativeHistograms": "kubeloop has no native histograms",
}
"""Gates that cannot be switched on, with the reason."""

DEFAULT_FEATURE_GATES = FeatureGates({})
