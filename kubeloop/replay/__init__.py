"""`kubeloop replay`: a recorded cluster runs again in virtual time, under the same or other conditions.

    workloads.py     top owners of pods
    pod_times.py     start-up and run times of a workload's pods
    user_actions.py  what users did in a recording, and what the cluster had at its start
    replay.py        a cluster in memory in which the users act again
    measurement.py   what happens to pods and nodes, from a recording or a replay
    report.py        figures of one or several runs
    text.py, page.py, charts.py    the report for a terminal, and as one HTML page

May import `planning`, `recording`, `testing`, `process` and the packages below them.
"""
