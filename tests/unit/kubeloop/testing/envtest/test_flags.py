"""Flags of the executables for envtest: parsing, types, refusals, help."""

from __future__ import annotations

import re

import pytest

from kubeloop.testing.envtest.flags import Flag, FlagError, flag_table, help_text, parse_flags

TABLE = {
    flag.name: flag
    for flag in (
        Flag("on"),
        Flag("off", default="true"),
        Flag("names", "strings"),
        Flag("map", "mapStringString"),
        Flag("port", "int", "6443"),
        Flag("level", "Level", short="v"),
        Flag("unused", "string", accepted="there is nothing to do."),
        Flag("webhook", "string", refused="use a file"),
        Flag("tracing", refused="leave it out"),
    )
}


@pytest.mark.parametrize(
    ("arguments", "name", "texts"),
    [
        (["--on"], "on", ["true"]),
        (["--on=false"], "on", ["false"]),
        ([], "off", ["true"]),
        (["--port=1"], "port", ["1"]),
        (["--port", "1"], "port", ["1"]),
        (["--port=1", "--port=2"], "port", ["1", "2"]),
        ([], "port", ["6443"]),
        (["-v", "4"], "level", ["4"]),
        (["-v4"], "level", ["4"]),
        (["-v=4"], "level", ["4"]),
        (["--names", "a,b", "--names=c"], "names", ["a,b", "c"]),
        (["--tracing=false"], "tracing", ["false"]),
    ],
)
def test_values_of_flags(arguments: list[str], name: str, texts: list[str]):
    flags = parse_flags(TABLE, arguments)
    assert flags.all_texts(name) == texts
    assert flags.text(name) == texts[-1]


def test_lists_and_maps_are_separated_by_commas():
    flags = parse_flags(TABLE, ["--names=a,b", "--names", '"c,d"', "--map=x=1,y=2", "--map=x=3", "--map=z"])
    assert flags.strings("names") == ["a", "b", "c,d"]
    assert flags.pairs("map") == {"x": "3", "y": "2", "z": ""}
    assert flags.strings("map") == ["x=1", "y=2", "x=3", "z"]


def test_arguments_after_two_dashes_are_positional():
    assert parse_flags(TABLE, ["a", "--on", "--", "--off"]).positional == ["a", "--off"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--none"], "unknown flag: --none"),
        (["-x"], "unknown shorthand flag: 'x' in -x"),
        (["--port"], "flag needs an argument: --port"),
        (["--port=x"], 'invalid argument "x" for "--port" flag: strconv.ParseInt: parsing "x": invalid syntax'),
        (["-v", "x"], 'invalid argument "x" for "-v, --level" flag: strconv.ParseUint: parsing "x": invalid syntax'),
        (["--on=x"], 'invalid argument "x" for "--on" flag: strconv.ParseBool: parsing "x": invalid syntax'),
        (["--webhook=w"], "--webhook=w is not supported by kubeloop: use a file"),
        (["--tracing"], "--tracing=true is not supported by kubeloop: leave it out"),
    ],
)  # fmt: skip
def test_wrong_flags_are_refused_as_by_pflag(arguments: list[str], message: str):
    with pytest.raises(FlagError) as raised:
        parse_flags(TABLE, arguments)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("flag", "value", "problem"),
    [
        ("request-timeout", "x", 'time: invalid duration "x"'),
        ("bind-address", "x", 'failed to parse IP: "x"'),
        ("goaway-chance", "x", 'strconv.ParseFloat: parsing "x": invalid syntax'),
        ("service-node-port-range", "x", 'strconv.Atoi: parsing "x": invalid syntax'),
        ("tls-sni-cert-key", "x", "expected comma separated certificate and key file paths"),
        ("allow-metric-labels", "x", "x must be formatted as key=value"),
    ],
)
def test_types_of_kube_apiserver_are_checked(flag: str, value: str, problem: str):
    with pytest.raises(FlagError) as raised:
        parse_flags(flag_table("kube-apiserver"), [f"--{flag}={value}"])
    assert str(raised.value) == f'invalid argument "{value}" for "--{flag}" flag: {problem}'


def test_names_may_be_written_with_underscores():
    assert parse_flags(flag_table("kube-apiserver"), ["--secure_port=1"]).text("secure-port") == "1"


def test_go_flags_have_a_single_dash():
    flags = parse_flags(flag_table("etcd"), ["-data-dir", "x", "--unsafe-no-fsync"], single_dash=True)
    assert (flags.text("data-dir"), flags.boolean("unsafe-no-fsync")) == ("x", True)
    with pytest.raises(FlagError, match=r"^flag provided but not defined: -none$"):
        parse_flags(flag_table("etcd"), ["--none"], single_dash=True)


@pytest.mark.parametrize(
    ("program", "flag", "listed"),
    [
        # envtest decides by these patterns whether to pass a flag
        ("etcd", "unsafe-no-fsync", True),
        ("kube-apiserver", "insecure-port", False),
        ("kube-apiserver", "service-account-issuer", True),
    ],
)
def test_help_lists_flags_as_envtest_looks_for_them(program: str, flag: str, listed: bool):
    text = help_text(flag_table(program))
    assert (re.search(rf"(?m)^\s*--{flag}\b", text) is not None) is listed


def test_help_says_what_has_no_effect():
    lines = help_text(TABLE).splitlines()
    assert "      --unused string                                          No effect: there is nothing to do." in lines
    assert "      --webhook string                                         Refused: use a file" in lines
    assert "  -v, --level Level" in lines
