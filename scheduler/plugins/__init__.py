"""The in-tree plugins, one module each, under the names of kube-scheduler."""
