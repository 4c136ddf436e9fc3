"""Root CA publisher: the ConfigMap `kube-root-ca.crt` of every namespace."""
