"""Other inputs than recordings, as recordings.

open.py            the input of one or more files
collected.py       objects that are collected from files
manifests.py       manifests, Lists, folders of them, `kubectl cluster-info dump`, exports of kube-scheduler-simulator
simkube.py         traces of SimKube
csv_tables.py      CSV tables of nodes and pods
"""
