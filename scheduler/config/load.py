"""Load a scheduler configuration: a KubeSchedulerConfiguration, or a document of another kind, in YAML or JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from kubeloop.kube import yaml
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.config.defaults import API_VERSION
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.config.v1 import decode_v1

Decoder = Callable[[Mapping[str, JSONValue]], SchedulerConfiguration]
NO_OTHER_KINDS: Mapping[str, Decoder] = MappingProxyType({})


def load_configuration(
    text: str, gates: FeatureGates = DEFAULT_FEATURE_GATES, other_kinds: Mapping[str, Decoder] = NO_OTHER_KINDS
) -> SchedulerConfiguration:
    """Return the configuration of a YAML or JSON text. Raises UserError with kube-scheduler's messages.

    other_kinds: decoders by kind, such as legacy_policy.policy.POLICY_KIND.
    """
    return read_configuration(read_document(text), gates, other_kinds)


def read_document(text: str) -> Mapping[str, JSONValue]:
    """Return the document of a YAML or JSON text. Raises UserError."""
    try:
        document, repeated = yaml.read_first(text)
    except yaml.InvalidYaml as error:
        raise UserError(
            f"the scheduler configuration is not YAML: {error.place}", hint="check its indentation"
        ) from None
    if repeated:
        raise UserError(f"the scheduler configuration: {repeated[0]}", hint="remove one of the two")
    if not isinstance(document, dict):
        raise UserError(
            "the scheduler configuration is not a map", hint=f"it must start with apiVersion: {API_VERSION}"
        )
    return document


def read_configuration(
    document: Mapping[str, JSONValue],
    gates: FeatureGates = DEFAULT_FEATURE_GATES,
    other_kinds: Mapping[str, Decoder] = NO_OTHER_KINDS,
) -> SchedulerConfiguration:
    """Return the configuration of a document in plain JSON. Raises UserError."""
    decode = other_kinds.get(str(document.get("kind")))
    return decode(document) if decode is not None else decode_v1(document, gates)
