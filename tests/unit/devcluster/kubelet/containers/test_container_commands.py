"""Ends of containers by their commands."""

from __future__ import annotations

import math

import pytest

from kubeloop.devcluster.kubelet.containers.container_commands import CommandEnd, command_end, container_end


@pytest.mark.parametrize(
    ("command", "seconds", "code"),
    [
        (("/bin/false",), 0, 1),
        (("false",), 0, 1),
        (("/usr/bin/true",), 0, 0),
        (("sleep", "5"), 5, 0),
        (("/bin/sleep", "1.5m"), 90, 0),
        (("sleep", "infinity"), math.inf, 0),
        (("echo", "hello"), 0, 0),
        (("sh", "-c", "exit 3"), 0, 3),
        (("/bin/sh", "-c", "exit"), 0, 0),
        (("sh", "-c", "false\nexit"), 0, 1),
        (("bash", "-ec", "false; sleep 5"), 0, 1),
        (("sh", "-c", "set -e\nfalse\nsleep 5"), 0, 1),
        (("sh", "-c", "echo 'starts'; sleep 2 && exit 4"), 2, 4),
        (("sh", "-c", "false && exit 5"), 0, 1),
        (("sh", "-c", "false || exit 2"), 0, 2),
        (("sh", "-c", "true &&\n  exit 5"), 0, 5),
        (("sh", "-c", "exec sleep 3\nexit 1"), 3, 0),
        (("sh", "-c", "# nothing\n"), 0, 0),
    ],
)
def test_end_of_known_command(command: tuple[str, ...], seconds: float, code: int):
    assert command_end(command) == CommandEnd(seconds, code)


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("nginx",),
        ("exit", "1"),
        ("sh",),
        ("sh", "script.sh"),
        ("sleep",),
        ("sleep", "soon"),
        ("sh", "-c", "exit $CODE"),
        ("sh", "-c", "exit x"),
        ("sh", "-c", "while true; do sleep 1; done"),
        ("sh", "-c", "sleep 1 & wait"),
        ("sh", "-c", "cat /etc/hosts | true"),
        ("sh", "-c", "echo 'a; exit 1'"),
        ("sh", "-c", "exit 1" + " " * 5000),
    ],
)
def test_end_of_other_command_is_unknown(command: tuple[str, ...]):
    assert command_end(command) is None


def test_container_without_command_runs_that_of_its_image():
    assert container_end({"image": "web:1"}) is None
    assert container_end({"args": ["false"]}) is None
    assert container_end({"command": ["sh"], "args": ["-c", "exit 1"]}) == CommandEnd(0, 1)


@pytest.mark.parametrize("args", [["sh", "-c", "exit 3"], ["/bin/sh", "-c", "exit 3"]])
def test_arguments_that_start_a_shell_are_the_command(args: list[str]):
    assert container_end({"image": "busybox", "args": args}) == CommandEnd(0, 3)


@pytest.mark.parametrize("image", ["pause", "registry.k8s.io/pause:3.10", "localhost:5000/pause@sha256:0"])
def test_pause_image_never_ends(image: str):
    assert container_end({"image": image}) == CommandEnd(math.inf, 0)
    assert container_end({"image": image, "args": ["-v"]}) is None
    assert container_end({"image": image.replace("pause", "pauses")}) is None
