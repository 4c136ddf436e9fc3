"""The event loop in a thread."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.testing.portal import Portal


def test_portal_returns_results_and_raises_errors():
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def failing() -> None:
        raise ZeroDivisionError

    portal = Portal()
    assert portal.wait(double(4)) == 8
    assert asyncio.run(portal.wait_async(double(5))) == 10
    with pytest.raises(ZeroDivisionError):
        portal.wait(failing())
    forever = portal.start(asyncio.sleep(3600))
    portal.close()
    assert forever.cancelled()
    portal.close()
