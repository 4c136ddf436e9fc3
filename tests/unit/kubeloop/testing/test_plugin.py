"""Options of the pytest plugin."""

from _pytest.config.argparsing import Parser

from kubeloop.testing.plugin import pytest_addoption


def test_command_line_has_the_options_of_a_cluster():
    parser = Parser(_ispytest=True)
    pytest_addoption(parser)
    options = parser.parse(["--kubeloop-nodes", "3", "--kubeloop-keep"])
    assert options.kubeloop_nodes == "3"
    assert options.kubeloop_keep is True
    assert options.kubeloop_shared is None
