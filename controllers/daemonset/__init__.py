"""DaemonSet controller: one pod per matching node, rolling updates, history. Source: pkg/controller/daemon."""
