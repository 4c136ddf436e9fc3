"""`kubeloop completion`: completion of command lines in bash, zsh and fish.

Modules

    shells.py   the script of a shell, and what completes a line
    names.py    names of pods, owners, nodes, namespaces and contexts
"""
