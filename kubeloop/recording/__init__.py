"""Recordings of clusters: the format, `kubeloop record`, and readers of what other tools write.

    changes.py       RecordedChange, Finding, ClusterState: what every reader returns
    resources.py     resources that are recorded
    projection.py    fields that are recorded
    anonymization.py names, label values and images by a key
    gzip_lines.py    lines in a gzip stream that can be cut off at any byte
    writer.py        objects to lines
    reader.py        lines to changes
    recorder.py      watches of a cluster, for `kubeloop record`
    validation.py    check of objects in edited and other files
    memory.py        limit of the memory that a cluster may take
    sources/         other inputs: manifests, SimKube traces, exports of kube-scheduler-simulator, CSV files

docs/recording.md describes the format. May import `kube`, `informers`, `devcluster` and `process`.
"""
