"""ServiceAccounts. Source: pkg/registry/core/serviceaccount of Kubernetes v1.36."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy

STRATEGY = Strategy(update_steps="uws")
