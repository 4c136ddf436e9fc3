"""Load a scheduler configuration: a KubeSchedulerConfiguration or a Policy document, in YAML or JSON."""

from __future__ import annotations

from collections.abc import Mapping

from kubeloop.kube import yaml
from kubeloop.kube.errors import UserError
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.scheduler.config.defaults import API_VERSION
from kubeloop.scheduler.config.policy import decode_policy
from kubeloop.scheduler.config.types import SchedulerConfiguration
from kubeloop.scheduler.config.v1 import decode_v1


def load_configuration(text: str, gates: FeatureGates = DEFAULT_FEATURE_GATES) -> SchedulerConfiguration:
    """Return the configuration of a YAML or JSON text. Raises UserError with kube-scheduler's messages."""
    return read_configuration(_document(text), gates)


def load_policy(text: str) -> SchedulerConfiguration:
    """Return the configuration of a Policy in YAML or JSON. Raises UserError, also for other documents."""
    document = _document(text)
    if document.get("kind") != "Policy":
        raise UserError(f'kind: no Policy, but "{document.get("kind", "")}"', hint="write kind: Policy")
    return decode_policy(document)


def _document(text: str) -> Mapping[str, JSONValue]:
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
    document: Mapping[str, JSONValue], gates: FeatureGates = DEFAULT_FEATURE_GATES
) -> SchedulerConfiguration:
    """Return the configuration of a document in plain JSON. Raises UserError."""
    return decode_policy(document) if document.get("kind") == "Policy" else decode_v1(document, gates)
