"""A new kind of force outside the package: one class that acts and is in files."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jaxgrip import mechanism
from jaxgrip.config import ConfigError
from jaxgrip.joints import Guide, Hinge
from jaxgrip.mechanism import Applied, Connection, Force, Part, System


class Pole(eqx.Module):
    """Strength of a pole [A m]."""

    strength: Float[Array, ""]

    def __init__(self, strength):
        self.strength = jnp.asarray(strength, float)


class Magnet(Force):
    """Attraction of two poles by the square of their distance, none beyond `reach`."""

    north: Pole
    south: Pole
    reach: Float[Array, ""]

    acts: ClassVar[str] = "between"

    def __init__(self, north, south, *, reach=1.0):
        self.north, self.south, self.reach = north, south, jnp.asarray(reach, float)
        if self.reach <= 0:
            raise ValueError(f"The reach of a magnet is {reach}; it must be positive.")

    def wrench(self, place, rate):
        square = place.origin @ place.origin
        size = 1e-7 * self.north.strength * self.south.strength / square
        pull = jnp.where(square < self.reach**2, size, 0.0)
        return jnp.concatenate([-pull * place.origin / jnp.sqrt(square), jnp.zeros(3)])


KINDS = {"magnet": Magnet}
FILE = """
[ground]
rail = [[0, 0, 0], [0, 0, 1], [1, 0, 0]]

[[part]]
name = "core"
position = [0, 0, 0.2]
mass = 0.5
inertia = [0.01, 0.01, 0.01]
attachments.rail = [[0, 0, 0], [0, 0, 1], [1, 0, 0]]

[[joint]]
name = "guide"
kind = "guide"
first = "ground.rail"
second = "core.rail"

[[force]]
name = "coil"
kind = "magnet"
first = "ground.rail"
second = "core.rail"
reach = 0.5
north.strength = 3000
south.strength = 2000
"""


def test_it_is_in_a_file(tmp_path):
    path, copy = tmp_path / "magnet.toml", tmp_path / "copy.json"
    path.write_text(FILE)
    system = mechanism.read(path, kinds=KINDS)
    mechanism.write(system, copy, kinds=KINDS)
    again = mechanism.read(copy, kinds=KINDS)
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(system), strict=True):
        np.testing.assert_array_equal(one, other)
    coil = again.forces[0].force
    assert isinstance(coil, Magnet)
    assert float(coil.reach) == 0.5


@pytest.mark.long
def test_it_acts(tmp_path):
    """The core falls under its weight and the attraction of both poles."""
    path = tmp_path / "magnet.toml"
    path.write_text(FILE)
    found = mechanism.inverse_dynamics(mechanism.read(path, kinds=KINDS))
    pull = 1e-7 * 3000 * 2000 / 0.2**2
    np.testing.assert_allclose(found.acceleration[0, :3], [0, 0, -9.81 - pull / 0.5], atol=1e-9)


def test_unknown_and_wrong_kinds_get_a_sentence(tmp_path):
    path = tmp_path / "magnet.toml"
    path.write_text(FILE)
    with pytest.raises(ConfigError, match=r"force 1 .coil.: there is no kind .magnet."):
        mechanism.read(path)
    system = mechanism.read(path, kinds=KINDS)
    with pytest.raises(ValueError, match="Force 'coil' is a Magnet, which is not among the kinds"):
        mechanism.write(system, tmp_path / "copy.toml")
    with pytest.raises(ValueError, match="The kind 'hinge' is already known"):
        mechanism.read(path, kinds={"hinge": Hinge})
    with pytest.raises(ValueError, match=r"The kind .part. is .*must be a subclass of Joint or F"):
        mechanism.read(path, kinds={"part": Part})
    path.write_text(FILE.replace("reach = 0.5", "reach = -2"))
    with pytest.raises(ConfigError, match=r"coil.: The reach of a magnet is -2; it must be"):
        mechanism.read(path, kinds=KINDS)


class LoudGuide(Guide):
    """A joint of one's own."""


def test_a_joint_of_ones_own_is_in_a_file(tmp_path):
    rail = [[0, 0, 0], [0, 0, 1], [1, 0, 0]]
    guide = Connection("guide", LoudGuide(), "ground.rail", "core.rail")
    spring = Applied("spring", mechanism.Spring(3.0), "ground.rail", "core.rail")
    system = System([Part("core", {"rail": rail})], [guide], {"rail": rail}, [spring])
    kinds, path = {"loud_guide": LoudGuide}, tmp_path / "guide.toml"
    mechanism.write(system, path, kinds=kinds)
    assert isinstance(mechanism.read(path, kinds=kinds).joint("guide"), LoudGuide)
