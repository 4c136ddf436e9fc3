"""Safe sort keys: pods whose queue sort fails are sorted last."""

from __future__ import annotations

import itertools
from typing import Any

from kubeloop.scheduler.queue.safe_sort import safe_sort_key


def test_pods_whose_sort_key_raises_are_last(queued: Any) -> None:
    failures = []

    def sort_key(pod: Any) -> int:
        if pod.key == "n/bad":
            raise RuntimeError("broken")
        priority: int = pod.pod.spec.priority
        return -priority

    key = safe_sort_key(sort_key, lambda pod, error: failures.append((pod.key, str(error))))
    pods = [queued("bad"), queued("low", 1), queued("high", 2)]
    assert [pod.key for pod in sorted(pods, key=key)] == ["n/high", "n/low", "n/bad"]
    assert failures == [("n/bad", "broken")]


def test_keys_that_cannot_be_compared_keep_their_order(queued: Any) -> None:
    key = safe_sort_key(lambda pod: 1 if pod.key == "n/number" else "text", lambda pod, error: None)
    pods = [queued("number"), queued("text")]
    assert sorted(pods, key=key) == pods


def test_order_of_keys_of_several_kinds_does_not_depend_on_their_arrival(queued: Any) -> None:
    keys = {"one": 1, "half": 1.5, "two": 2, "text": "x", "tuple": (1, "x"), "pair": (1, 2), "triple": (1, 3)}
    orders = set()
    for names in itertools.permutations(keys, 5):
        key = safe_sort_key(lambda pod: keys[pod.key.removeprefix("n/")], lambda pod, error: None)
        order = sorted(map(queued, names), key=key)
        orders.add((frozenset(names), tuple(pod.key for pod in order)))
    assert len(orders) == len({names for names, _ in orders})


def test_keys_are_equal_if_their_values_are(queued: Any) -> None:
    def sort_key(pod: Any) -> Any:
        if pod.key.startswith("n/bad"):
            raise RuntimeError("broken")
        return pod.pod.spec.priority

    key = safe_sort_key(sort_key, lambda pod, error: None)
    one, same, two = key(queued("a", 1)), key(queued("b", 1)), key(queued("c", 2))
    broken, also_broken = key(queued("bad-1")), key(queued("bad-2"))
    assert one == same
    assert one != two
    assert one != broken
    assert broken != also_broken
    assert broken == broken  # noqa: PLR0124, compared by its number
    assert one != 1


def test_keys_whose_comparison_fails_are_equal_to_themselves_only(queued: Any) -> None:
    class Failing:
        def __eq__(self, other: object) -> bool:
            raise TypeError("not comparable")

        __hash__ = None  # type: ignore[assignment]

    key = safe_sort_key(lambda pod: Failing(), lambda pod, error: None)
    one, two = key(queued("a")), key(queued("b"))
    assert one == one  # noqa: PLR0124, compared by its number
    assert one != two
