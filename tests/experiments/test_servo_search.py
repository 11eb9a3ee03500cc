"""The benchmark of searches for a servo's parameters."""

import numpy as np
import pytest

from experiments.benchmarks import servo_search


def test_peers_stop_when_their_simulations_are_spent():
    def search(counted, size, seed):
        while True:
            counted(np.full(size, 0.5))

    counts = []

    def residuals(s, *_):
        counts.append(len(s))
        return np.ones((len(s), 3))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(servo_search, "_residuals", residuals)
        _, best = servo_search._spent(search, (), 7, 2, 0)
    assert sum(counts) == 7
    assert best == 3.0


@pytest.mark.long
def test_all_search_the_same_residuals():
    rows = servo_search.main("", seeds=1, starts=1)
    assert {row.peer for row in rows} >= {"SciPy least_squares"}
    for row in rows:
        assert row.run_s > 0.0
        assert row.peer_run_s > 0.0
