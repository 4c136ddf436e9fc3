"""`kubeloop explain`.

Modules

    explain.py  the command
    cluster.py  its connection to a cluster with another scheduler
"""
