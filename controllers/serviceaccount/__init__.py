"""Service account controller: the ServiceAccount `default` of every namespace."""
