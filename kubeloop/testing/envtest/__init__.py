"""Executables that stand in for kube-apiserver, etcd and kubectl in test set-ups (controller-runtime's envtest).

`kubeloop envtest` (kubeloop.cli.envtest) writes scripts that run the modules kube_apiserver, etcd and kubectl. Each
imports only what it needs, because a set-up starts several of them one after another.

Sources: controller-runtime pkg/internal/testing/controlplane and process.
"""
