"""Tests of the skew estimate: intervals from arrivals and from responses, windows, corrected clocks."""

from __future__ import annotations

from kubeloop.tracing.observation.clock_skew import API_SERVER, MAX_CLOCKS, WINDOW_NS, ClockSkew, SkewEstimate

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND


def test_an_arrival_limits_how_far_a_clock_is_behind():
    skew = ClockSkew()
    skew.timestamp("node-1", NOW, NOW + 300_000_000)
    assert skew.estimate("node-1") == SkewEstimate(-300_000_000, None)
    assert skew.certain_ns("node-1") == 0
    assert skew.estimate("node-2") is None


def test_a_timestamp_that_arrives_before_its_time_shows_a_fast_clock():
    skew = ClockSkew()
    skew.timestamp("node-1", NOW + 5 * SECOND, NOW)
    assert skew.estimate("node-1") == SkewEstimate(5 * SECOND, None)
    assert skew.certain_ns("node-1") == 5 * SECOND


def test_a_date_header_limits_the_skew_on_both_sides():
    skew = ClockSkew()
    skew.http_date(NOW, sent_ns=NOW + 10_000_000, received_ns=NOW + 20_000_000)
    assert skew.estimate(API_SERVER) == SkewEstimate(-20_000_000, 990_000_000)
    skew.http_date(NOW, sent_ns=NOW + 980_000_000, received_ns=NOW + 990_000_000)
    assert skew.estimate(API_SERVER) == SkewEstimate(-20_000_000, 20_000_000)
    assert skew.document() == {API_SERVER: {"lowestMs": -20, "highestMs": 20, "certainMs": 0}}


def test_bounds_expire_after_two_windows():
    skew = ClockSkew()
    skew.http_date(NOW, sent_ns=NOW, received_ns=NOW)
    for window in range(1, 3):
        now_ns = NOW + window * (WINDOW_NS + 1)
        skew.http_date(now_ns, sent_ns=now_ns - SECOND, received_ns=now_ns + SECOND)
    assert skew.estimate(API_SERVER) == SkewEstimate(-SECOND, 2 * SECOND)


def test_a_corrected_clock_starts_over():
    skew = ClockSkew()
    skew.http_date(NOW + 60 * SECOND, sent_ns=NOW, received_ns=NOW)
    skew.http_date(NOW, sent_ns=NOW, received_ns=NOW)
    assert skew.estimate(API_SERVER) == SkewEstimate(0, SECOND)


def test_the_number_of_clocks_is_limited():
    skew = ClockSkew()
    for number in range(MAX_CLOCKS + 1):
        skew.timestamp(f"node-{number}", NOW, NOW)
    assert skew.estimate("node-0") is None
    assert len(skew.document()) == MAX_CLOCKS


def test_a_slow_clock_is_certain_if_its_timestamp_is_before_its_cause():
    skew = ClockSkew()
    skew.timestamp("node-1", NOW - 5 * SECOND, NOW + SECOND, after_ns=NOW)
    assert skew.estimate("node-1") == SkewEstimate(-6 * SECOND, -4 * SECOND)
    assert (skew.certain_ns("node-1"), skew.certain_ns("node-2")) == (-4 * SECOND, 0)
