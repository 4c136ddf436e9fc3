"""Types of the extension points."""

from __future__ import annotations

from kubeloop.scheduler.api.extension_points import FilterPaused, PodGroupInfo


async def test_pause_of_a_filter_is_no_error_of_the_plugin():
    done = []

    async def work() -> None:
        done.append(True)

    pause = FilterPaused(work())
    assert not isinstance(pause, Exception)
    await pause.work
    assert done == [True]


def test_key_of_a_pod_group():
    assert PodGroupInfo("default", "g").key == "default/g"
