"""YAML is decoded like by kubectl; compared with `kubectl annotate --local`, which needs no server."""

import json
import shutil
import subprocess

import pytest

from kubeloop.kube.yaml import InvalidYaml, read_first

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

HEAD = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a, annotations: {x: x}}\n"


@pytest.mark.parametrize("text", [
    pytest.param("""\
spec:
  time: 12:30
  flags: [y, n, Yes, oFF, "y", ~, Null, =]
  integers: [0o17, 017, 08, 0o9, 0x1F, 0b11, -0b11, +12, 0_, 1_000]
  fractions: [1e3, 1_000.5, .5, 1., 1e999, 1e-7, 1.5e300, -0.5, .5_0, .5__0, 123456789012345678901234567890]
  dates: [2026-11-21, 2001-12-14 21:59:43.10 -5, 2026-11-21T12:30:00Z]
  tags: [!!float 3, !!str 3, !!int "3", !mine y, ! 3, !!set {x, y}, !!omap [b: 1]]
  merged: {a: 1, <<: {a: 2, b: 3}, c: {<<: [{b: 1, c: 1}, {b: 2}]}}
  twice: 1
  twice: 2
y: {on: a, off: b, 1.10: c, 1e6: d, 1e-7: e, 2: f, 2026-11-21: g}
""", id="scalars and keys"),
    "a: &x [1]\nb: &x [2]\nc: *x", "a: &x [*x]", "a: *b", "~: 1", "[a, {b: 1}]: c", "a: .inf", "a: !!bool foo",
    "<<: 1", "a: !!int", "a: [1", "a:\n  - b\n c: 1", "a:\n\tb: c", "a: b: c", "a: @x", 'a: "x', "}", "- 1\na: 2",
    "a: 'x' y", "a: \x01", "a: |\n  x\n y", "a: !!binary x", "a: !x!y z", 'a: "\\ud83d\\ude00"',
])  # fmt: skip
def test_yaml_is_decoded_like_kubectl(text: str):
    command = ["kubectl", "annotate", "--local", "--overwrite", "-f", "-", "x=x", "-o", "json"]
    result = subprocess.run(command, input=HEAD + text + "\n", capture_output=True, text=True, timeout=60, check=False)
    decoded, message = None, ""
    try:
        decoded, _ = read_first(f"{HEAD}{text}\n".encode())
    except InvalidYaml as error:
        message = f"error: error parsing STDIN: error converting YAML to JSON: {error}\n"
    assert result.stderr == message
    assert decoded == (json.loads(result.stdout) if result.stdout else None)
