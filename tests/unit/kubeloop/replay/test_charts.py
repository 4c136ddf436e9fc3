"""Line charts as SVG."""

from __future__ import annotations

import pytest

from kubeloop.replay.charts import Line, clock_label, line_chart, round_up


@pytest.mark.parametrize(("value", "rounded"), [(0, 1), (1, 1), (1.2, 2), (23, 25), (251, 400), (0.03, 0.04)])
def test_axis_ends_at_a_round_number(value: float, rounded: float):
    assert round_up(value) == pytest.approx(rounded)


def test_names_are_escaped():
    chart = line_chart("<b>", [Line("<i>", [(0, 1)])], seconds=10, label=str)
    assert "<b>" not in chart
    assert "<i>" not in chart


def test_points_are_placed_on_the_axes():
    lines = [Line("a", [(0.0, 0.0), (50.0, 10.0)])]
    assert 'd="M52.0 158.0L296.0 8.0"' in line_chart("t", lines, seconds=100.0, label=str)
    assert 'd="M52.0 158.0H296.0V8.0"' in line_chart("t", lines, seconds=100.0, label=str, steps=True)


def test_clock_label_has_hours_and_minutes():
    assert clock_label(23_400.0) == "06:30"
