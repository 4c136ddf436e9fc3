"""`kubeloop replay`.

Modules

    replay.py      the command
    trace_file.py  its traces as a file
"""
