"""Warnings about the feature gates of --feature-gates, in the log of the process."""

from __future__ import annotations

import logging

from kubeloop.kube.feature_gates import FeatureGates

log = logging.getLogger(__name__)


def log_gate_warnings(gates: FeatureGates) -> None:
    """Log a warning for each gate whose setting has no effect, or that will be removed."""
    for warning in gates.warnings:
        log.warning(warning)
