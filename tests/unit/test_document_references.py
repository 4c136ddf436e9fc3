"""Names in README.md, CONTRIBUTING.md and docs/ exist: files, anchors, decisions, options, metrics, attributes, ...

Code is what is in backticks, in fenced blocks and in indented lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click
import msgspec
import opentelemetry.sdk.environment_variables as otel_variables
import pytest

from kubeloop.cli.main import commands
from kubeloop.scheduler.config import v1
from kubeloop.testing.cluster_options import ClusterOptions
from kubeloop.testing.plugin import OPTIONS
from support.development.product_names import FILES, PACKAGES, ROOT, product_names, resolves, unknown_gates

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGE = pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
LINKING_PAGES = [*PAGES, ROOT / "benchmarks/README.md", ROOT / "devcluster/README.md"]
LINKING_PAGE = pytest.mark.parametrize(
    "page", LINKING_PAGES, ids=[str(page.relative_to(ROOT)) for page in LINKING_PAGES]
)

FOREIGN_OPTIONS = {
    "--allocate-node-cidrs": "kube-controller-manager",
    "--authorization-config": "kube-apiserver",
    "--compile-bytecode": "uv pip install",
    "--enable-feature": "prometheus",
    "--first": "make mutants",
    "--follow": "kubectl logs",
    "--hypothesis-profile": "pytest",
    "--label-filter": "ginkgo",
    "--metrics-bind-address": "the operator",
    "--procs": "ginkgo",
    "--root-ca-file": "kube-controller-manager",
    "--runtime-config": "kube-apiserver",
    "--seed": "make hostile",
    "--since": "kubectl logs",
    "--tests": "make mutants",
    "--timestamps": "kubectl logs",
    "--tracing-config-file": "kube-apiserver",
    "--tty": "kubectl exec",
    "--use-service-account-credentials": "kube-controller-manager",
    "--verb": "support.comparison.differential",
    "--without-vectors": "make mutants",
}
"""Options of other programs, where the text names the program."""

FOREIGN_METRICS = {"kubelet_pod_start_sli_duration_seconds"}

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_METRIC = re.compile(r"\b(?:kubeloop|scheduler|workqueue|kubelet|kubernetes|apiserver|rest_client)_[a-z_]+\b(?:_?\*)?")
_FILE = re.compile(r"(?:[\w.-]+/)*[\w-]+\.(?:py|md|json|txt|toml)")
_FOLDER = re.compile(r"(?:" + "|".join((*PACKAGES, "tests", "benchmarks", "deploy", "docs")) + r")/(?:[\w-]+/)*[\w-]*")
_ATTRIBUTE = re.compile(r"(?<![\w/-])kubeloop(?:\.dev/|\.io/|\.)[a-z_-]*[a-z](?:\.[a-zA-Z_]+)*")

# --- code of a page ---------------------------------------------------------------------------------------------------


def spans(text: str) -> list[str]:
    """Return what is in backticks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE))


def code(text: str) -> list[str]:
    """Return all pieces of code: what is in backticks, and the lines of blocks."""
    fenced = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in fenced for line in block.splitlines()] + re.findall(r"^    (.*)$", text, re.MULTILINE)
    return [*spans(text), *lines]


def options_of(command: click.Command) -> set[str]:
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    children = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*map(options_of, children))


@cache
def command_options() -> dict[str, set[str]]:
    return {name: options_of(command) | {"--help", "--help-all"} for name, command in commands.commands.items()}


PYTEST_OPTIONS = {f"--kubeloop-{name.replace('_', '-')}" for name in (*OPTIONS, "keep", "shared")}

# --- checks -----------------------------------------------------------------------------------------------------------


def unknown_options(text: str) -> list[str]:
    """Return the options that the command in the same piece of code does not have; without one, that none has."""
    unknown = []
    commands_options = command_options()
    anywhere = set().union(*commands_options.values()) | PYTEST_OPTIONS | FOREIGN_OPTIONS.keys()
    for piece in code(text):
        if match := re.search(r"(?:^|[$] |=\S+ |&& )kubeloop (\w[\w-]*)([^|]*)", piece):
            command, rest = match[1], re.sub(r"'[^']*'", "", match[2])  # without another program's command
            known = commands_options.get(command)
            if known is None:
                unknown.append(f"kubeloop {command}")
            else:
                unknown += [f"{command} {name}" for name in _OPTION.findall(rest) if name not in known]
        elif piece.startswith("--"):
            unknown += [name for name in _OPTION.findall(piece) if name not in anywhere]
    return unknown


def unknown_paths(page: Path, text: str) -> list[str]:
    places = (ROOT, page.parent, *(ROOT / package for package in PACKAGES))
    file_names = {path.name for path in FILES}
    return [
        span
        for span in spans(text)
        if (_FILE.fullmatch(span) or _FOLDER.fullmatch(span))
        and not re.search(r"\b[A-Z]{3,}\b(?!\.md)", span)  # kinds/GROUP/KIND.py
        and span not in file_names
        and not any((place / span).exists() for place in places)
        and span not in text.replace(f"`{span}`", "")  # a file of the page itself
    ]


def unknown_metrics(text: str) -> list[str]:
    words = product_names().words
    found = [name for span in spans(text) for name in _METRIC.findall(span)]
    return [
        name
        for name in found
        if name not in FOREIGN_METRICS
        and name not in {f"kubeloop_{option}" for option in (*OPTIONS, "keep", "shared", "namespace", "cluster")}
        and not words & {name, name.removesuffix("_total")}
        and not (name.endswith("*") and any(word.startswith(name.rstrip("*")) for word in words))
        and name.removeprefix("scheduler_").removesuffix("_total") not in words
    ]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub derives them."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def unknown_anchors(page: Path, text: str) -> list[str]:
    links = re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", text)
    return [f"{file}#{anchor}" for file, anchor in links if anchor not in anchors(page.parent / file if file else page)]


def loose_decisions(text: str) -> list[str]:
    """Return mentions of a decision by number that are not a link to it, and links to another one."""
    without = re.sub(r"\[[Dd]ecision (\d+)\]\([\w./]*#\1-[\w-]+\)", "", text)
    return re.findall(r"\b(?:[Dd]ecision|[Rr]ecord) \d+", without)


# --- pages ------------------------------------------------------------------------------------------------------------


@PAGE
def test_named_options_exist(page: Path):
    assert unknown_options(page.read_text()) == []


@PAGE
def test_named_files_and_folders_exist(page: Path):
    assert unknown_paths(page, page.read_text()) == []


@PAGE
def test_named_metrics_exist(page: Path):
    assert unknown_metrics(page.read_text()) == []


@LINKING_PAGE
def test_anchors_of_links_exist(page: Path):
    assert unknown_anchors(page, page.read_text()) == []


@LINKING_PAGE
def test_decisions_are_named_by_links(page: Path):
    """The anchor of a link has the number and the title, so that a changed number is noticed."""
    assert loose_decisions(page.read_text()) == []


@PAGE
def test_named_feature_gates_exist(page: Path):
    assert unknown_gates(page.read_text()) == []


@PAGE
def test_named_functions_and_classes_exist(page: Path):
    """Names such as `run_filters`, `FitError` and `Snapshot.assume_pod`, unless the page's examples define them."""
    text = page.read_text()
    names = product_names()
    blocks = set(re.findall(r"\w+", "\n".join(set(code(text)) - set(spans(text)))))
    shaped = [
        span.removesuffix("()")
        for span in spans(text)
        if re.fullmatch(r"(?:[A-Z]\w*\.)?(?:[a-z]\w*_\w+|[A-Z][a-z]\w*[A-Z]\w*)(?:\(\))?", span)
        and not _METRIC.fullmatch(span)
    ]
    known = names.words | blocks | FOREIGN_NAMES
    unknown = [span for span in shaped if not set(re.findall(r"\w+", span)) <= known]
    for class_name, member in (span.split(".") for span in shaped if "." in span):
        if class_name in names.classes and not names.has_member(class_name, member):
            unknown.append(f"{class_name}.{member}")
    assert unknown == []


FOREIGN_NAMES = {
    "PodFeatureUnsupported",  # a reason of kubelets that simulated ones never give
    "DefaultPodTopologySpread",  # a feature gate of v1.20
    "NodeAdd",  # the event NodeAdd, composed of kind and action
    "OutOfcpu",  # composed of the resource's name
    "expected_skips",  # in pyproject.toml
    "malloc_trim",  # of glibc
    "always_on",
    "always_off",
    "parentbased_always_on",
    "parentbased_traceidratio",
    "labelPreference",  # fields of Policy documents
    "labelsPresence",
    "serviceAffinity",
    "serviceAntiAffinity",
}


@PAGE
def test_named_variables_of_opentelemetry_exist(page: Path):
    known = {*vars(otel_variables), *product_names().words}
    assert [name for name in re.findall(r"\bOTEL_[A-Z_]+[A-Z]\b", page.read_text()) if name not in known] == []


@cache
def attributes() -> tuple[re.Pattern[str], ...]:
    """Return patterns of the attributes and annotations in the code, where a part may be computed."""
    text = "\n".join(path.read_text() for path in FILES)
    found = set(re.findall(r"kubeloop(?:\.dev/|\.io/|\.)[\w.{}-]+", text))
    return tuple(re.compile(re.sub(r"{.*?}|\.[A-Z]+$", r"[\\w.]+", name)) for name in found)


def is_attribute(name: str) -> bool:
    """Return True for an attribute of spans, an annotation, or a module of kubeloop and a name in it."""
    return resolves(name) or any(pattern.fullmatch(name) for pattern in attributes())


def test_named_attributes_and_annotations_exist():
    named = {
        (page.name, name)
        for page in PAGES
        for span in spans(page.read_text())
        for name in _ATTRIBUTE.findall(span)
        if span not in {f"deploy/{name}", f"../deploy/{name}"}
    }
    assert len(named) > 80
    assert sorted((page, name) for page, name in named if not is_attribute(name)) == []


# --- tables of defaults -----------------------------------------------------------------------------------------------


def shown(value: object) -> str:
    """Return a default as the tables show it."""
    if isinstance(value, bool | float):
        return f"{value:g}" if isinstance(value, float) else str(value).lower()
    return "" if value in ((), "", None) else str(value)


def test_defaults_of_the_pytest_options_are_documented():
    rows = re.findall(r"^\| (`kubeloop_.*?) \| (.*?) ?\| ", (ROOT / "docs/testing.md").read_text(), re.MULTILINE)
    documented = {}
    for names, defaults in rows:
        for name, default in zip(re.findall(r"`(?:kubeloop)?_(\w+)`", names), defaults.split(", "), strict=False):
            documented[name] = default.strip("`")
    expected = {name: shown(getattr(ClusterOptions(), name)) for name in OPTIONS}
    assert {name: documented.get(name, "") for name in expected} == expected
    assert documented.keys() - expected.keys() <= {"keep", "shared", "seed"}


def test_defaults_in_the_help_of_the_pytest_options_are_true():
    defaults = {name: re.search(r"\(([^()]+)\)\.$", text) for name, text in OPTIONS.items()}
    stated = {name: match[1] for name, match in defaults.items() if match}
    assert len(stated) > 10
    assert stated == {name: shown(getattr(ClusterOptions(), name)) for name in stated}


def test_defaults_of_the_kubeloop_section_are_documented():
    section = (ROOT / "docs/scheduler.md").read_text().partition("The section `kubeloop`")[2]
    rows = dict(re.findall(r"^\| `(\w+)` \| `?(\w+)`? \|", section.partition("## ")[0], re.MULTILINE))
    fields = msgspec.structs.fields(v1.KubeloopSettings)
    assert rows == {field.encode_name: shown(field.default) or "none" for field in fields}


# --- each check notices a planted error -------------------------------------------------------------------------------

_PAGE = ROOT / "docs/observe.md"


@pytest.mark.parametrize(
    ("check", "arguments", "expected"),
    [
        (unknown_options, ("`kubeloop up --nodes 3`, `--zones`, `--tty`",), []),
        (unknown_options, ("`kubeloop up --no-such`",), ["up --no-such"]),
        (unknown_options, ("`kubeloop observe --zones 3`",), ["observe --zones"]),
        (unknown_options, ("    kubeloop start",), ["kubeloop start"]),
        (unknown_options, ("```sh\nkubeloop trace --no-such\n```",), ["trace --no-such"]),
        (unknown_options, ("`--no-such=3`",), ["--no-such"]),
        (unknown_paths, (_PAGE, "`kube/values/times.py`, `tests/parity`, `tracing.md`, `kinds/GROUP/KIND.py`"), []),
        (unknown_paths, (_PAGE, "`kube/no_such.py`"), ["kube/no_such.py"]),
        (unknown_paths, (_PAGE, "`devcluster/validation/no_such/`"), ["devcluster/validation/no_such/"]),
        (unknown_metrics, ("`kubeloop_traces_open`, `scheduler_podgroup_*`",), []),
        (unknown_metrics, ("`kubeloop_traces_closed_total`",), ["kubeloop_traces_closed_total"]),
        (unknown_anchors, (_PAGE, "[a](#permissions) [b](nodes.md#stages)"), []),
        (unknown_anchors, (_PAGE, "[a](#permission) [b](nodes.md#stage)"), ["#permission", "nodes.md#stage"]),
        (loose_decisions, ("[decision 13](decisions.md#13-kubeloop-run-maps)",), []),
        (loose_decisions, ("[decision 12](decisions.md#13-kubeloop-run-maps)",), ["decision 12"]),
        (loose_decisions, ("Record 73 is about HTTP/2.",), ["Record 73"]),
        (is_attribute, ("kubeloop.rejected.PLUGIN",), True),
        (is_attribute, ("kubeloop.refused.PLUGIN",), False),
        (is_attribute, ("kubeloop.scheduler.api.handle",), True),
        (is_attribute, ("kubeloop.testing.Cluster",), True),
        (is_attribute, ("kubeloop.testing.Clusters",), False),
        (is_attribute, ("kubeloop.dev/fail",), True),
        (is_attribute, ("kubeloop.dev/unfit",), False),
        (unknown_gates, ("the feature gates GangScheduling and, with feature gate `NoSuch`",), ["NoSuch"]),
        (shown, (True,), "true"),
        (shown, (0.05,), "0.05"),
    ],
)
def test_planted_error_is_noticed(check: Callable[..., object], arguments: tuple[object, ...], expected: object):
    assert check(*arguments) == expected
