"""Informer factory: sharing, and the end of released informers."""

import random

from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.resources import NODES, PODS


def factory() -> InformerFactory:
    return InformerFactory(None, clock=SystemClock(), rng=random.Random(0))  # type: ignore[arg-type] # sends no request


def test_same_resource_shares_one_informer():
    informers = factory()
    pods = informers.informer(PODS)
    assert informers.informer(PODS) is pods
    assert informers.informer(NODES) is not pods
    assert len(informers.informers) == 2


def test_acquired_informer_reuses_an_existing_one():
    informers = factory()
    pods = informers.informer(PODS)
    assert informers.acquire_informer(PODS) is pods


def test_released_informer_ends_unless_it_is_used_otherwise():
    informers = factory()
    acquired = informers.acquire_informer(PODS)
    informers.release(acquired.add_handler(object()))
    assert informers.informers == []

    acquired = informers.acquire_informer(NODES)
    assert informers.informer(NODES) is acquired
    informers.release(acquired.add_handler(object()))
    assert informers.informers == [acquired]
