"""Start of the host process."""

from kubeloop.testing.host.launch import launch


def test_unused_host_process_ends_when_it_is_closed():
    launched = launch()
    assert launched.process.poll() is None
    launched.close()
    assert launched.process.poll() is not None
    assert launched.log.closed
