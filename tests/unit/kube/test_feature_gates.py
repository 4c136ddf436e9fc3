"""Feature gates: parsing, upstream's errors, and the consistency of the tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubeloop.kube.feature_gates import (
    DEFAULT_FEATURE_GATES,
    GATES,
    FeatureGates,
    Part,
    known_features,
)
from kubeloop.kube.user_error import UserError


def test_gates_without_a_value_have_their_default():
    assert DEFAULT_FEATURE_GATES.enabled("PodDeletionCost")
    assert not DEFAULT_FEATURE_GATES.enabled("GangScheduling")
    assert FeatureGates.parse([]) is DEFAULT_FEATURE_GATES


def test_enabled_raises_for_an_unknown_gate():
    with pytest.raises(KeyError):
        DEFAULT_FEATURE_GATES.enabled("PodDeletionCosts")


@pytest.mark.parametrize("texts", [["MemoryQoS=true,SELinuxMount=false"], ["MemoryQoS=T", " SELinuxMount = 0 ,"]])
def test_pairs_of_all_occurrences_are_read(texts):
    gates = FeatureGates.parse(texts)
    assert gates.values == {"MemoryQoS": True, "SELinuxMount": False}
    assert gates.text() == "MemoryQoS=true,SELinuxMount=false"


def test_a_later_value_of_a_gate_takes_precedence():
    assert not FeatureGates.parse(["MemoryQoS=true", "MemoryQoS=false"]).enabled("MemoryQoS")


def test_the_kube_prefix_is_accepted():
    assert FeatureGates.parse(["kube:MemoryQoS=true"]).enabled("MemoryQoS")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NoSuchGate=true", "unrecognized feature gate: NoSuchGate"),
        ("MemoryQoS", "missing bool value for MemoryQoS"),
        ("MemoryQoS=yes", 'invalid value of MemoryQoS=yes, err: strconv.ParseBool: parsing "yes": invalid syntax'),
        ("SidecarContainers=false", "cannot set feature gate SidecarContainers to false, feature is locked to true"),
        ("wardle:MemoryQoS=true", "component not registered: wardle"),
        (
            "kube:MemoryQoS=true,CRIListStreaming=true",
            "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use",
        ),
        (
            "GracefulNodeShutdown=false",
            "[GracefulNodeShutdownBasedOnPodPriority is enabled, but depends on features that are disabled:"
            " [GracefulNodeShutdown], WindowsGracefulNodeShutdown is enabled, but depends on features that are"
            " disabled: [GracefulNodeShutdown]]",
        ),
        (
            "NativeHistograms=true",
            "cannot set feature gate NativeHistograms to true: kubeloop has no native histograms",
        ),
    ],
    ids=["unknown", "no value", "no boolean", "locked", "other component", "mixed", "dependency", "refused"],
)
def test_invalid_gates_are_user_errors_with_the_message_of_kubernetes(text, message):
    with pytest.raises(UserError) as raised:
        FeatureGates.parse([text])
    assert str(raised.value) == message


def test_an_unknown_gate_has_a_hint_with_the_similar_name():
    with pytest.raises(UserError) as raised:
        FeatureGates.parse(["PodDeletionCosts=true"])
    assert raised.value.hint == "did you mean PodDeletionCost?"


def test_a_locked_gate_can_be_set_to_its_default():
    (warning,) = FeatureGates.parse(["SidecarContainers=true"]).warnings
    assert warning == "setting GA feature gate SidecarContainers=true. It will be removed in a future release."


def test_a_gate_of_a_missing_part_is_accepted_with_a_warning():
    (warning,) = FeatureGates.parse({"MemoryQoS": True}).warnings
    assert warning == "feature gate MemoryQoS=true has no effect: it belongs to a part that kubeloop lacks"
    assert FeatureGates.parse({"MemoryQoS": False}).warnings == ()


@pytest.mark.parametrize("value", ["true", "false"])
@pytest.mark.parametrize(("name", "stage"), [("AllAlpha", "ALPHA"), ("AllBeta", "BETA")])
def test_all_gates_of_a_stage_are_set_except_those_refused(name, stage, value):
    gates = FeatureGates.parse([f"{name}={value}"])
    expected = value == "true"
    for gate_name, gate in GATES.items():
        if gate.stage == stage and not gate.locked and gate_name != name:
            refused = gate.refused != "" and gate.default != expected
            assert gates.enabled(gate_name) == (gate.default if refused else expected), gate_name
            assert refused == any(gate_name in warning for warning in gates.warnings), gate_name


def test_a_gate_that_is_set_keeps_its_value_with_all_alpha():
    assert not FeatureGates.parse(["AllAlpha=true,MemoryQoS=false"]).enabled("MemoryQoS")


def test_gates_with_an_effect_can_be_set():
    for name, gate in GATES.items():
        assert not (gate.locked and (gate.obeyed or gate.refused)), name
        assert not (gate.default and gate.refused), f"{name} switches something off"
        assert not (gate.obeyed and gate.refused), name


def test_dependencies_hold_for_the_defaults():
    assert any(gate.depends for gate in GATES.values())
    for name, gate in GATES.items():
        assert not gate.default or all(GATES[dependency].default for dependency in gate.depends), name


def test_gates_are_in_alphabetical_order():
    assert list(GATES) == sorted(GATES)


def test_help_lists_only_gates_with_an_effect():
    lines = known_features(("apiserver", "controllers", "scheduler"))
    assert "kube:PodDeletionCost=true|false (BETA - default=true)" in lines
    assert "kube:AllAlpha=true|false (ALPHA - default=false)" in lines
    assert not any("SidecarContainers" in line or "MemoryQoS" in line for line in lines)
    assert len(lines) == 2 + sum(bool(gate.obeyed) for gate in GATES.values())


def quoted_in(*places: str) -> set[str]:
    """Return the words in quotes in the sources of these files and folders."""
    root = Path(__file__).parents[3]
    files = (
        file for place in places for file in ((root / place).rglob("*.py") if "." not in place else [root / place])
    )
    return {word for file in files for word in re.findall(r'"(\w+)"', file.read_text())}


def test_gates_are_listed_for_the_parts_that_read_them():
    words: dict[Part, set[str]] = {
        "apiserver": quoted_in("devcluster", "kube/objects/resources.py"),
        "controllers": quoted_in("controllers", "kubeloop/process/control_plane/controller_table.py"),
        "scheduler": quoted_in("scheduler"),
    }
    declared = {name: set(gate.obeyed) for name, gate in GATES.items() if gate.obeyed}
    del declared["UnknownVersionInteroperabilityProxy"]  # without an effect on a single API server
    assert declared == {name: {part for part, names in words.items() if name in names} for name in declared}
    assert not any("OpenAPIEnums" in line for line in known_features(("controllers", "scheduler")))


def test_documentation_lists_the_gates_that_have_an_effect():
    text = (Path(__file__).parents[3] / "docs/feature-gates.md").read_text()
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in text.splitlines() if line[:1] == "|"]
    assert rows[2:] == [
        (name, gate.stage, str(gate.default).lower(), gate.refused or "**yes**")
        for name, gate in GATES.items()
        if gate.obeyed or gate.refused
    ]
