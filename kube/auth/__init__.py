"""Credentials: kubeconfig, service account, exec plugins, client certificates, impersonation."""
