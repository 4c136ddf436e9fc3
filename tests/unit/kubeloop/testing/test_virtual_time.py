"""The virtual-time loop: jumps, order of timers, deadlock errors."""

from __future__ import annotations

import asyncio
import gc
import socket
from datetime import UTC, datetime, timedelta

import pytest

from kubeloop.kube.clock import pause
from kubeloop.testing.virtual_time import DeadlockError, VirtualClock, VirtualTimeLoop, run


@pytest.mark.virtual_time
async def test_marked_test_runs_in_virtual_time(clock):
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    began = clock.now()
    await asyncio.sleep(86_400)
    assert loop.time() == pytest.approx(86_400)
    assert (clock.now() - began).total_seconds() == pytest.approx(86_400)


async def test_unmarked_test_runs_in_real_time():
    assert not isinstance(asyncio.get_running_loop(), VirtualTimeLoop)


def test_timers_fire_in_order_of_their_time():
    fired = []

    async def wait(seconds):
        await asyncio.sleep(seconds)
        fired.append((seconds, asyncio.get_running_loop().time()))

    async def main():
        await asyncio.gather(wait(30), wait(10), wait(20))

    run(main())
    assert fired == [(10, 10), (20, 20), (30, 30)]


def test_time_does_not_jump_while_a_task_is_ready():
    async def main():
        loop = asyncio.get_running_loop()
        loop.call_later(1, lambda: None)
        for _ in range(100):
            await asyncio.sleep(0)
        return loop.time()

    assert run(main()) == 0


def test_small_delays_late_in_time_end():
    async def main():
        loop = asyncio.get_running_loop()
        await asyncio.sleep(3e9)
        for _ in range(1000):
            await asyncio.sleep(1e-5)
        return loop.time()

    assert run(main()) >= 3e9


def test_deadlock_error_names_the_waiting_task():
    async def main():
        asyncio.current_task().set_name("the stuck one")
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match="the stuck one"):
        run(main())


def test_timeout_ends_an_endless_wait():
    async def main():
        async with asyncio.timeout(5):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run(main())


def test_executor_work_runs_immediately():
    async def main():
        return await asyncio.to_thread(lambda: 42)

    assert run(main()) == 42


def test_executor_error_is_raised_at_the_caller():
    async def main():
        await asyncio.to_thread(lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        run(main())


def test_clock_starts_at_the_given_time_in_nanoseconds():
    async def main():
        clock = VirtualClock(start=datetime(2026, 3, 1, tzinfo=UTC))
        await asyncio.sleep(1.5)
        return clock.now(), clock.time_ns()

    now, time_ns = run(main())
    assert now == datetime(2026, 3, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert time_ns == int(datetime(2026, 3, 1, tzinfo=UTC).timestamp()) * 10**9 + 1_500_000_000


def test_clock_that_was_read_follows_the_time_and_the_running_loop():
    clock = VirtualClock(start=datetime(2026, 3, 1, tzinfo=UTC))

    async def main():
        read = []
        for _ in range(2):
            read.append((clock.now(), clock.now(), clock.time_ns()))
            await asyncio.sleep(1.5)
        return read

    start = round(datetime(2026, 3, 1, tzinfo=UTC).timestamp()) * 10**9
    for _ in range(2):  # the second loop starts at the start again
        for seconds, (now, again, time_ns) in zip((0.0, 1.5), run(main()), strict=True):
            assert now == again == datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=seconds)
            assert time_ns == start + round(seconds * 1e9)


def test_advance_moves_the_time_without_waiting():
    async def main():
        loop = asyncio.get_running_loop()
        fired = []
        loop.call_later(2, fired.append, "due")
        loop.advance(3)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return fired, loop.time()

    assert run(main()) == (["due"], 3)


async def _runs(seconds, *, due=None, until=100.0):
    """Return the times of the runs of periodic work."""
    loop, times = asyncio.get_running_loop(), []
    while loop.time() < until:
        await pause(seconds, due)
        times.append(loop.time())
    return times


def test_pause_of_an_idle_program_is_skipped():
    async def main():
        work = asyncio.ensure_future(_runs(1.0))
        other = asyncio.ensure_future(_runs(3.0))
        await asyncio.sleep(60.5)
        await asyncio.sleep(200.0)
        return await asyncio.gather(work, other)

    # The first runs follow the start of the tasks, the others the ends of the sleeps.
    assert run(main()) == [[1, 61, 261], [3, 63, 261]]


def test_pause_ends_each_period_while_others_run():
    async def main():
        work = asyncio.ensure_future(_runs(1.0, until=4.0))
        for _ in range(50):
            await asyncio.sleep(0.1)
        return await work

    assert run(main()) == pytest.approx([1, 2, 3, 4])


def test_pause_ends_in_the_period_in_which_time_gives_it_work():
    async def main():
        return await _runs(1.0, due=7.2, until=5.0)

    assert run(main()) == [1, 8]  # the first one after the start of the task


def test_pause_without_work_is_skipped_while_others_run():
    async def main():
        loop, work, times = asyncio.get_running_loop(), [], []

        async def run_work():
            while True:
                await pause(1.0, has_work=lambda: bool(work))
                times.append(loop.time())
                work.clear()

        running = asyncio.ensure_future(run_work())
        await asyncio.sleep(2.5)
        work.append("work")
        await asyncio.sleep(7.0)
        running.cancel()
        return times

    assert run(main()) == [3]


def test_pause_returns_how_late_it_ends():
    async def main():
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(pause(1.0, due=0.0))
        await asyncio.sleep(0.5)
        loop.advance(10.0)
        return await waiting

    assert run(main()) == 9.5


def test_cancelled_pause_leaves_no_timer():
    async def main():
        waiting = asyncio.ensure_future(pause(1.0))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        run(main())


def test_cancelled_timer_is_skipped():
    async def main():
        loop, fired = asyncio.get_running_loop(), []
        loop.call_later(1, fired.append, 1).cancel()
        loop.call_later(2, fired.append, 2)
        await asyncio.sleep(3)
        return fired

    assert run(main()) == [2]


def test_registered_file_is_read():
    async def main():
        loop, received = asyncio.get_running_loop(), []
        reading, writing = socket.socketpair()
        with reading, writing:
            loop.add_reader(reading, lambda: received.append(reading.recv(5)))
            writing.send(b"hello")
            await asyncio.sleep(1)
            loop.remove_reader(reading)
        return received

    assert run(main()) == [b"hello"]


def test_closed_loop_accepts_no_callback():
    loop = VirtualTimeLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_at(1.0, print)


def test_run_restores_the_thresholds_of_garbage_collection():
    async def main():
        return gc.get_threshold()

    before = gc.get_threshold()
    assert run(main())[0] > before[0]
    assert gc.get_threshold() == before
