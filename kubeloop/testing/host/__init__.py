"""The host process, which runs the clusters of tests.

Modules

    launch.py         its start
    host_process.py   the test's side
    host.py           the process itself
    messages.py       messages between the two
"""
