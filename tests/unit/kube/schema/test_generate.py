"""The generator reads facts from Go sources: names, types, numbers and markers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from support.development import generate_schema

TYPES = """package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Sort is a sort.
// +enum
type Sort string

const (
	// Good is good.
	Good Sort = "Good"
	Bad  = Sort("Bad")
)

// Widget is an example.
type Widget struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// Parts belong together.
	// +listType=map
	// +listMapKey=name
	// +listMapKey=sort
	Parts []Part `json:"parts" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,2,rep,name=parts"`
	// +required
	Size *int32 `json:"size,omitempty" protobuf:"varint,3,opt,name=size"`
	// +default=5
	Port intstr.IntOrString `json:"port,omitempty" protobuf:"bytes,4,opt,name=port"`
	hidden int
}

// +structType=atomic
type Part struct {
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
	// +optional
	Sort Sort `json:"sort" protobuf:"bytes,2,opt,name=sort"`
}

type Empty struct{}

type Marker struct {
	// Its presence is the value.
}
"""
REGISTER = """package v1

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(
		SchemeGroupVersion,
		&Widget{},
		&Elsewhere{},
	)
}
"""


@pytest.fixture
def clones(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not on the PATH")
    files = {"api": {"apps/v1/types.go": TYPES, "apps/v1/register.go": REGISTER}}
    for name in ("api", "apimachinery", "apiextensions-apiserver", "kube-aggregator"):
        folder = tmp_path / name
        folder.mkdir()
        for path, text in files.get(name, {"README": ""}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
        for arguments in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "x"), ("tag", "v1")):
            subprocess.run(("git", "-C", str(folder), *arguments), check=True, capture_output=True)
    return tmp_path


def test_generator_reads_structs_kinds_enums_and_markers(clones: Path):
    tables = generate_schema.read(clones, "v1")
    assert tables.kinds == {"apps/v1/Widget": "apps/v1.Widget"}
    assert tables.aliases == {"apps/v1.Sort": "string"}
    assert tables.enums == {"apps/v1.Sort": ["Good", "Bad"]}
    assert tables.atomic == {"apps/v1.Part"}
    merged = {"patchStrategy": "merge", "patchMergeKey": "name", "listType": "map", "listMapKeys": ["name", "sort"]}
    assert tables.types == {
        "apps/v1.Widget": [
            ["TypeMeta", "", "meta/v1.TypeMeta", 0, "", "ie"],
            ["ObjectMeta", "metadata", "meta/v1.ObjectMeta", 1, "bytes", "eo"],
            ["Parts", "parts", "[]apps/v1.Part", 2, "bytes", "r", merged],
            ["Size", "size", "*int32", 3, "varint", "or"],
            ["Port", "port", "intstr.IntOrString", 4, "bytes", "o", {"default": 5}],
        ],
        "apps/v1.Part": [
            ["Name", "name", "string", 1, "bytes", "r"],
            ["Sort", "sort", "apps/v1.Sort", 2, "bytes", ""],
        ],
        "apps/v1.Empty": [],
        "apps/v1.Marker": [],
    }
    assert json.loads(generate_schema.render(tables))["types"] == tables.types


def test_missing_clone_is_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="kubernetes/api "):
        generate_schema.read(tmp_path, "v1")
