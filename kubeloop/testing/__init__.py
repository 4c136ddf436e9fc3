"""For tests of kubeloop and of what is built on it: a loop in virtual time, a cluster in memory."""
