"""`kubeloop plan`: the state of a cluster after changes, computed on a copy in memory and in virtual time.

May import `recording`, `testing`, `process` and the packages below them.
"""
