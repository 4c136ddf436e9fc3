"""Text of histogram families, compared with that of prometheus_client."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from kubeloop.process.metrics.histogram_families import HistogramCopy, HistogramFamily
from kubeloop.process.metrics.metrics_registry import MetricsRegistry

EXAMPLES = st.none() | st.tuples(st.just("0af7651916cd43dd8448eb211c80319c"), st.floats(0, 1e9))
HISTOGRAMS = st.builds(
    HistogramCopy,
    labels=st.tuples(*[st.sampled_from(["a", 'quoted "b"', "line\nbreak", "back\\slash", ""])] * 2),
    counts=st.lists(st.integers(0, 10**9), min_size=4, max_size=4),
    sum=st.floats(0, 1e12),
    examples=st.just([]) | st.lists(EXAMPLES, min_size=4, max_size=4),
)


@given(st.lists(HISTOGRAMS, max_size=4))
def test_text_equals_that_of_prometheus_client(histograms):
    family = HistogramFamily("h_seconds", "A \\ histogram.", ("kind", "ns"), (0.001, 2.5, 3600.0), histograms)
    registry = MetricsRegistry()
    registry.register(family_collector(family))
    assert "".join(family.text(exemplars=False)) == generate_latest(registry).decode()
    assert "".join(family.text(exemplars=True)) + "# EOF\n" == openmetrics(registry).decode()


def test_family_without_labels():
    family = HistogramFamily("h_seconds", "A histogram.", (), (1.0,), [HistogramCopy((), [1, 2], 5.0)])
    assert [*family.text(exemplars=False)] == [
        "# HELP h_seconds A histogram.\n# TYPE h_seconds histogram\n",
        'h_seconds_bucket{le="1.0"} 1.0\nh_seconds_bucket{le="+Inf"} 3.0\nh_seconds_count 3.0\nh_seconds_sum 5.0\n',
    ]


def family_collector(family):
    class Collector:
        def collect(self):
            return [family]

    return Collector()
