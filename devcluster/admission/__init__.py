"""Admission plugins, ResourceQuota, LimitRanger, PodSecurity and admission policies."""
