"""The reflector's backoff, in virtual time."""

from __future__ import annotations

import asyncio
import random

import pytest

from kubeloop.informers.reflector_backoff import Backoff

pytestmark = pytest.mark.virtual_time


class NoJitter(random.Random):
    def random(self) -> float:
        return 0.0


async def test_backoff_doubles_up_to_its_cap():
    backoff = Backoff(NoJitter())
    assert [backoff.next_seconds() for _ in range(8)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


async def test_backoff_starts_over_after_reset_or_two_quiet_minutes():
    backoff = Backoff(NoJitter())
    assert [backoff.next_seconds(), backoff.next_seconds()] == [0.8, 1.6]
    backoff.reset()
    assert [backoff.next_seconds(), backoff.next_seconds()] == [0.8, 1.6]
    await asyncio.sleep(121)
    assert backoff.next_seconds() == 0.8


async def test_backoff_jitter_is_at_most_the_delay_itself():
    assert 0.8 <= Backoff(random.Random(1)).next_seconds() < 1.6
