"""Page of all metrics, in the text format of Prometheus or in that of OpenMetrics.

Metrics are collected at once; large histogram families are formatted in slices, so that the event loop is not blocked.
Imports prometheus_client: import it at a scrape.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from prometheus_client.exposition import choose_encoder

from kubeloop.process.metrics.histogram_families import HistogramFamily
from kubeloop.process.metrics.metrics_registry import Collector

_HISTOGRAMS_PER_SLICE: Final = 100  # formatted before other tasks run: some 2 ms
_OPEN_METRICS_END: Final = "# EOF\n"


async def metrics_page(registry: Collector, accept: str) -> tuple[bytes, str]:
    """Return the page and its media type. accept: the header of the request; only OpenMetrics has exemplars."""
    encode, content_type = choose_encoder(accept)
    families = [*registry.collect()]
    rest = _Collected([family for family in families if not isinstance(family, HistogramFamily)])
    page: str = encode(rest).decode()
    is_open_metrics = page.endswith(_OPEN_METRICS_END)
    parts = [page.removesuffix(_OPEN_METRICS_END)]
    for family in families:
        if isinstance(family, HistogramFamily):
            for number, text in enumerate(family.text(exemplars=is_open_metrics), start=1):
                parts.append(text)
                if number % _HISTOGRAMS_PER_SLICE == 0:
                    await asyncio.sleep(0)
    if is_open_metrics:
        parts.append(_OPEN_METRICS_END)
    return "".join(parts).encode(), content_type


class _Collected(msgspec.Struct, frozen=True):
    """Metric families that were collected, as a registry for encoders."""

    families: list[Any]

    def collect(self) -> list[Any]:
        return self.families
