"""Elastic links along the optimal motion: numbers of an independent program."""

import json

import numpy as np
import pytest
import rich.console
import xarray
import zarr

import jaxgrip as jg
from experiments.gripper import elastic
from jaxgrip.config import ConfigError, validate
from jaxgrip.flexible import LinkMotion
from jaxgrip.report import Run


def _config(**given):
    return validate(elastic.Config, {"experiment": "gripper/elastic", **given}, "elastic.toml")


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """Folder of a run that holds the motion with competing drives."""
    folder = tmp_path_factory.mktemp("motion")
    run = Run(folder, _config(), console=rich.console.Console(quiet=True))
    t, q, qd, torque = elastic._solved(_config(), run)
    run.finish()
    fast = torque * np.array([1.0, 0.0, 1.0])
    arrays = {
        "angle": (("time", "joint"), q, {"units": "rad"}),
        "rate": (("time", "joint"), qd, {"units": "rad/s"}),
        "torque": (
            ("time", "drive"),
            np.concatenate([fast, torque[:, 1:2]], axis=1),
            {"units": "N m"},
        ),
    }
    coordinates = {
        "time": ("time", t, {"units": "s"}),
        "joint": ("joint", [1, 2, 3], {"units": "1"}),
        "drive": ("drive", ["1", "2 fast", "3", "2 slow"], {"units": "1"}),
    }
    run.arrays("rates_A", xarray.Dataset(arrays, coordinates))
    return folder


@pytest.fixture(scope="module")
def motion(solved):
    settings = _config(motion_from=str(solved), step=1e-4)
    return elastic._motion(settings, None, jg.models.gripper_finger("A"))


@pytest.mark.long
def test_loads_of_link_2(motion):
    """At the start and in the middle, where angles are given too."""
    link = LinkMotion(jg.models.gripper_finger("A").tree, "link2", motion.joints.evaluate)
    frame, wrench = link.frame(0.0), link.wrenches(0.0)
    np.testing.assert_allclose(frame.acceleration, [3.35522, -9.21838, 2.06835], atol=1e-5)
    np.testing.assert_allclose(frame.angular_acceleration, [35.3708, -97.1806, 1102.134], rtol=5e-6)
    np.testing.assert_allclose(wrench[:3], [7.40597, 2.60788, -2.04517], atol=5e-5)
    np.testing.assert_allclose(wrench[3:], [0.038375, 0.066863, 0.4], atol=1e-6)
    middle = link.wrenches(0.137 / 2)
    q = motion.joints.evaluate(0.137 / 2).q
    np.testing.assert_allclose(q, [0.387987, -0.465249, -1.969423], atol=2e-5)
    np.testing.assert_allclose(middle[:3], [-1.76219, 5.28177, 1.11229], atol=2e-3)
    np.testing.assert_allclose(middle[3:], [-0.071132, 0.030168, -0.207816], atol=2e-4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("link", "density", "atol"), [(2, "material", 5e-9), (3, "match_mass", 1e-9)]
)
def test_displacement_of_the_free_end(motion, link, density, atol):
    """|U| of node 662; this step is four times that of the reference, which the start needs."""
    settings, finger = _config(), jg.models.gripper_finger("A")
    body = elastic.link_body(settings, finger, link, "square", density)
    response = elastic.respond(body, finger, motion, link)
    assert response.node == 661
    expected = np.array(elastic.REFERENCE[link, "square", density]["displacement"])
    found = response.displacement[:: (len(motion.time) - 1) // 10]
    np.testing.assert_allclose(found, expected, rtol=0.005, atol=atol)


@pytest.mark.long
def test_a_run_has_numbers_pictures_and_fields(solved, tmp_path):
    settings = _config(
        motion_from=str(solved),
        step=2e-4,
        links=[2],
        shapes=["cylinder"],
        densities=["match_mass"],
        instants=[1.0],
        mesh={"along": 2, "across": 2},
    )
    run = Run(tmp_path, settings, console=rich.console.Console(quiet=True))
    elastic.run(settings, run)
    run.finish()
    summary = json.loads((tmp_path / "summary.json").read_text())
    results, key = summary["results"], "link2_cylinder_match_mass"
    assert results[f"safety_factor_{key}"] == pytest.approx(240e6 / results[f"von_mises_{key}"])
    assert results[f"peak_displacement_{key}"] >= max(results[f"displacement_{key}"])
    assert not summary["reference"]
    pictures = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"over_time.png", "start.png", "von_mises_link2.png", "motion_link2.gif"} <= pictures
    assert {"strain_link2_1000.png", "stress_link2_1000.png"} <= pictures
    assert (tmp_path / "fields" / "link2.pvd").exists()
    arrays = xarray.open_zarr(tmp_path / "results.zarr", group=key, consolidated=False)
    assert arrays.stress.dims == ("instant", "node", "component")
    np.testing.assert_allclose(arrays.von_mises.max(), results[f"von_mises_{key}"])


def test_densities_give_the_mass():
    finger = jg.models.gripper_finger("A")
    area = {"square": 7.5e-5, "cylinder": np.pi * 25e-6}
    # The mesh of a cylinder lies inside it and is 1.2 % smaller.
    for shape, lost in (("square", 0.0), ("cylinder", 0.0117)):
        for density, mass in (
            ("material", 2700.0 * area[shape] * 0.06 * (1 - lost)),
            ("match_mass", 0.16),
        ):
            body = elastic.link_body(_config(), finger, 2, shape, density)
            weight = jg.fem.gravity(body, np.ones(3)).sum(axis=0)
            exact = lost == 0.0 or density == "match_mass"
            np.testing.assert_allclose(weight, np.full(3, mass), rtol=1e-12 if exact else 1e-4)


def test_samples_of_arcs_are_exact_for_cubics_and_jump():
    t = np.concatenate([np.linspace(0.0, 1.0, 5), np.linspace(1.0, 3.0, 6)])
    values = np.where(np.arange(11) < 5, t**3, 7.0 - t)[:, None]
    at = np.array([0.0, 0.3, 1.0, 2.2, 3.0])
    expected = np.array([0.0, 0.027, 6.0, 4.8, 4.0])[:, None]
    np.testing.assert_allclose(elastic._sample(t, values, at), expected, atol=1e-14)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"mesh": {"across": 5}}, "across = 5 leaves no node in the middle"),
        ({"material": {"poisson": 0.5}}, "material.poisson: must be less than 0.5"),
        ({"shapes": []}, "shapes"),
        ({"links": [1]}, "must be 2 or 3"),
        ({"links": [2, 2]}, "links: entry 2 repeats 2"),
        ({"shapes": ["square", "square"]}, 'shapes: entry 2 repeats "square"'),
        ({"step": 1e-12}, r"makes 1\.4e\+11 steps, .* about 2\.3e\+06 GB"),
        ({"mesh": {"along": 1000, "across": 100}}, r"10201 nodes in each of 1001 layers"),
        ({"motion_from": "nowhere"}, 'motion_from: there is no "nowhere"'),
        ({"step": -1.0}, "step: must be greater than 0"),
        ({"motion": "fastest"}, "'drive_rates' or 'time_optimal'"),
    ],
)
def test_bad_configurations_get_a_sentence(given, sentence):
    with pytest.raises(ConfigError, match=sentence):
        _config(**given)


def test_a_folder_without_the_motion_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no .*results\.zarr"):
        _config(motion_from=str(tmp_path))


def test_arrays_that_unpack_to_more_than_a_motion(tmp_path):
    """A store of a few hundred bytes may say that it holds gigabytes."""
    group = zarr.open_group(tmp_path / "results.zarr", mode="w").create_group("rates_A")
    group.create_array("time", shape=(10**11,), dtype="f8", dimension_names=["time"], chunks=10**7)
    with pytest.raises(ConfigError, match=r"would unpack to 8e\+11 bytes; a motion has at most"):
        _config(motion_from=str(tmp_path))
