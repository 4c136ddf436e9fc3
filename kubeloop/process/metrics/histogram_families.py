"""Histogram families as copies, which are formatted after they were collected.

prometheus_client takes 20 us per sample, and a histogram has some twenty. Imports prometheus_client: import it at a
scrape.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

Example = tuple[str, float]
"""Trace ID, and the observed value."""

_EXPONENT_FROM = 1_000_000  # floatToGoString writes larger numbers with an exponent


class HistogramCopy(msgspec.Struct, frozen=True, gc=False):
    """Copy of one labeled histogram: label values, observations per bucket, and an example per bucket, if any."""

    labels: tuple[str, ...]
    counts: list[int]
    sum: float
    examples: list[Example | None] = []


class HistogramFamily:
    """A histogram family with the interface of prometheus_client's Metric. bounds: of buckets, without infinity."""

    type = "histogram"
    unit = ""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        bounds: Sequence[float],
        histograms: Sequence[HistogramCopy],
    ) -> None:
        self.name = name
        self.documentation = documentation
        self._labels = labels
        self._bounds = [_number(bound) for bound in (*bounds, math.inf)]
        self._histograms = histograms

    @property
    def samples(self) -> Iterator[Sample]:
        """Samples for the encoders of prometheus_client; text() has the same, formatted."""
        for histogram in self._histograms:
            family = HistogramMetricFamily(self.name, self.documentation, labels=self._labels)
            family.add_metric(histogram.labels, self._buckets(histogram), histogram.sum)
            yield from family.samples

    def text(self, *, exemplars: bool) -> Iterator[str]:
        """Yield the lines of the family's header, then those of one histogram after the other."""
        yield f"# HELP {self.name} {_escaped(self.documentation)}\n# TYPE {self.name} histogram\n"
        for histogram in self._histograms:
            yield self._histogram_text(histogram, exemplars=exemplars)

    def _histogram_text(self, histogram: HistogramCopy, *, exemplars: bool) -> str:
        labels = sorted(
            (name, f'{name}="{_label_value(value)}"')
            for name, value in zip(self._labels, histogram.labels, strict=True)
        )
        before = "".join(f"{text}," for name, text in labels if name < "le")
        after = "".join(f",{text}" for name, text in labels if name > "le")
        start, end = f'{self.name}_bucket{{{before}le="', f'"{after}}} '
        examples = histogram.examples if exemplars else []
        lines = []
        total = 0
        for number, (bound, count) in enumerate(zip(self._bounds, histogram.counts, strict=True)):
            total += count
            value = f"{total}.0" if total < _EXPONENT_FROM else _number(total)
            example = examples[number] if examples else None
            exemplar = "" if example is None else f' # {{trace_id="{example[0]}"}} {_number(example[1])}'
            lines.append(f"{start}{bound}{end}{value}{exemplar}\n")
        labels_text = ",".join(text for _, text in labels)
        suffix = f"{{{labels_text}}}" if labels_text else ""
        lines.append(f"{self.name}_count{suffix} {_number(total)}\n{self.name}_sum{suffix} {_number(histogram.sum)}\n")
        return "".join(lines)

    def _buckets(self, histogram: HistogramCopy) -> list[Any]:
        """Return (upper bound, cumulative count, exemplar or None) as HistogramMetricFamily takes them."""
        examples = histogram.examples or [None] * len(self._bounds)
        buckets = []
        total = 0
        for bound, count, example in zip(self._bounds, histogram.counts, examples, strict=True):
            total += count
            exemplar = Exemplar({"trace_id": example[0]}, example[1]) if example is not None else None
            buckets.append((bound, total, exemplar))
        return buckets


def _number(value: float) -> str:
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return text


def _escaped(documentation: str) -> str:
    return documentation.replace("\\", r"\\").replace("\n", r"\n")


def _label_value(value: str) -> str:
    return _escaped(value).replace('"', r"\"")
