"""CertificateSigningRequests: approval of those of kubelets, and deletion of old ones."""
