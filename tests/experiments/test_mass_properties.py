"""Shaking forces against momenta by differences and the conditions of a balanced four-bar."""

import jax.numpy as jnp
import meshio
import numpy as np
import pytest
from jax.test_util import check_grads

from experiments.mechanisms import mass_properties as model
from jaxgrip import config, report, shapes

pytestmark = pytest.mark.long


def configured(**given):
    return config.validate(
        model.Config, {"experiment": "mechanisms/mass_properties", **given}, "here"
    )


def test_forces_and_torques_are_differences_of_momentum_and_energy():
    linkage, links = configured().links()
    speed, step = 60.0, 1e-4
    angles = jnp.asarray([0.3, 1.9, 4.0])
    found = model.shaking(linkage, links, jnp.asarray(speed), angles)
    body = model.bodies(links)

    def centres(angle):
        """With the closed form of the linkage by circles, nothing of the model."""
        a, b, c, d = 0.10, 0.25, 0.20, 0.28
        tip = a * np.array([np.cos(angle), np.sin(angle)])
        apart = np.array([d, 0.0]) - tip
        size = np.hypot(*apart)
        along = (size**2 + b**2 - c**2) / (2 * size)
        side = np.sqrt(b**2 - along**2)
        far = tip + along * apart / size + side * np.array([-apart[1], apart[0]]) / size
        foot = np.array([d, 0.0])
        places = []
        for (start, end), x in zip(
            (((0.0, 0.0), tip), (tip, far), (foot, far)), np.asarray(body.centre[:, 0]), strict=True
        ):
            start, end = np.asarray(start), np.asarray(end)
            places.append(start + x * (end - start) / np.hypot(*(end - start)))
        turned = [angle, np.arctan2(*(far - tip)[::-1]), np.arctan2(*(far - foot)[::-1])]
        return np.array(places), np.array(turned)

    mass, moment = np.asarray(body.mass), np.asarray(body.inertia[:, 2, 2])

    def energy(angle):
        (ahead, up), (behind, down) = centres(angle + step), centres(angle - step)
        rates = (ahead - behind) / (2 * step)
        return (
            0.5 * mass @ np.sum(rates**2, axis=1) + 0.5 * moment @ ((up - down) / (2 * step)) ** 2
        )

    for k, angle in enumerate(np.asarray(angles)):
        ahead, here, behind = (centres(angle + s)[0] for s in (step, 0.0, -step))
        bent = (ahead - 2 * here + behind) / step**2
        np.testing.assert_allclose(
            found.force[k], -(speed**2) * (mass @ bent), rtol=1e-5, atol=1e-4
        )
        torque = speed**2 * (energy(angle + step) - energy(angle - step)) / (2 * step)
        np.testing.assert_allclose(found.torque[k], torque, rtol=1e-5, atol=1e-4)


def test_the_optimum_satisfies_the_conditions_of_balance():
    """Berkof 1969: moments of crank and rocker balance the coupler's shares."""
    settings = configured()
    linkage, bars = settings.links(settings.beyond)
    better, _ = model.optimised(settings, linkage, bars)
    body = model.bodies(better)
    (m1, m2, m3), x = body.mass, body.centre[:, 0]
    scale = float(m2) * 0.25
    np.testing.assert_allclose(m1 * x[0], -m2 * (0.25 - x[1]) * 0.10 / 0.25, atol=1e-5 * scale)
    np.testing.assert_allclose(m3 * x[2], -m2 * x[1] * 0.20 / 0.25, atol=1e-5 * scale)
    assert np.all(better.widths >= 0.5 * 0.016)
    assert np.all(better.widths <= 0.5 * 0.13)


def test_the_objective_has_derivatives_by_the_widths():
    linkage, links = configured().links()
    angles = jnp.linspace(0.0, 6.0, 7)

    def value(widths):
        return 1e-4 * model.objective(
            linkage,
            model._with(links, jnp.asarray(widths)),
            jnp.asarray(60.0),
            angles,
            jnp.ones(()),
        )

    check_grads(value, (links.widths,), order=1, rtol=1e-4)


def test_a_file_of_ones_own_is_weighed(tmp_path):
    """A box in millimetres."""
    corners = np.array([[x, y, z] for x in (0, 200) for y in (0, 100) for z in (0, 300)], float)
    faces = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    triangles = np.array([(f[0], f[k], f[k + 1]) for f in faces for k in (1, 2)])
    meshio.write(tmp_path / "box.stl", meshio.Mesh(corners, [("triangle", triangles)]))
    settings = configured(mesh=str(tmp_path / "box.stl"), scale=1e-3)
    run = report.Run(tmp_path, settings)
    model.run(settings, run)
    box = shapes.box([0.2, 0.1, 0.3], 7850.0)
    assert run.results["mass"].value == pytest.approx(float(box.mass), rel=1e-6)
    np.testing.assert_allclose(run.results["centre"].value, [0.1, 0.05, 0.15], rtol=1e-6)
    np.testing.assert_allclose(run.results["inertia_x"].value[0], box.inertia[0, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"lengths": [0.3, 0.25, 0.2, 0.28]}, "the crank cannot turn round"),
        ({"width": 0.5}, "must lie between"),
        ({"thickness": 0.0}, "greater than 0"),
    ],
)
def test_mistakes_get_a_sentence(given, sentence):
    with pytest.raises(config.ConfigError, match=sentence):
        configured(**given)


def test_an_open_mesh_gets_a_sentence(tmp_path):
    mesh = meshio.Mesh(np.eye(3), [("triangle", np.array([[0, 1, 2]]))])
    meshio.write(tmp_path / "open.ply", mesh)
    with pytest.raises(config.ConfigError, match=r"mesh: .* is not closed"):
        configured(mesh=str(tmp_path / "open.ply"))
