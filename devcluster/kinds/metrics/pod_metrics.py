"""PodMetrics. They are computed on each read (server.metrics_api)."""

from __future__ import annotations

from kubeloop.devcluster.api.strategy import Strategy
from kubeloop.devcluster.printers.columns import row, text_of

STRATEGY = Strategy(cells=row(text_of("window")))
