from experiments.benchmarks import batches


def test_every_public_function_is_named():
    """`python -m experiments.benchmarks.batches` calls all that take batches."""
    called = {
        name.partition(",")[0].partition(" of ")[0] for name in (*batches.CASES, *batches.HOST)
    }
    assert called | set(batches.NOT_BATCHED) == batches.names()
    assert not called & set(batches.NOT_BATCHED)
