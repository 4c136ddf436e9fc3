"""`kubeloop trace`.

Modules

    trace.py    the command
    sources.py  running process or file from which it reads
    watch.py    its option --watch
"""
