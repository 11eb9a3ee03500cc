"""The page "Your robot", run as it stands."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "robots.md").read_text(), re.S)


def run(blocks, monkeypatch):
    """The names that the blocks define, each with those of the blocks before."""
    monkeypatch.chdir(ROOT)
    names: dict = {}
    for block in blocks:
        exec(compile(block, "docs/robots.md", "exec"), names)
    return names


@pytest.mark.long
def test_the_page_does_what_it_says_up_to_the_fastest_motion(monkeypatch):
    names = run(BLOCKS[:-1], monkeypatch)
    push = 1e-4
    away = (names["where"](10.0 + push) - names["where"](10.0 - push)) / (2.0 * push)
    np.testing.assert_allclose(names["by_push"], away, rtol=1e-6, atol=1e-9)
    assert names["positions"].shape == (1000, 3)
    reached = jg.rigid.frame_pose(names["tree"], names["reach"].q, "tool0")
    np.testing.assert_allclose(reached.translation, names["target"].translation, atol=1e-9)
    # By virtual work, a force of 2 g at the tool.
    lift = jg.rigid.frame_jacobian(names["tree"], names["q"], "tool0")[5]
    added = jg.rigid.gravity_forces(names["loaded"], names["q"]) - names["holding"]
    np.testing.assert_allclose(added, 2.0 * 9.81 * lift, rtol=1e-9, atol=1e-9)


@pytest.mark.long
@pytest.mark.soak
def test_the_fastest_motion_of_the_page(monkeypatch):
    """The arm keeps its limits and obeys inverse dynamics."""
    names = run(BLOCKS, monkeypatch)
    solution = names["solution"]
    assert solution.certificate.passed
    assert abs(solution.final_time - 0.3602) < 5e-5
    assert np.all(np.abs(solution.x[:, 6:]) <= names["robot"].velocity * (1.0 + 1e-9))
    torque = jax.vmap(lambda x, a: jg.rigid.rnea(names["tree"], x[:6], x[6:], a))(
        solution.x, solution.x_rate[:, 6:]
    )
    limits = jnp.asarray(names["robot"].effort)[None]
    np.testing.assert_allclose(torque / limits, solution.u, atol=1e-8)
