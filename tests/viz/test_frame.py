import sys

import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip import viz
from tests.fem.structures.models import chain

js = jg.fem.structures


def test_bent_line_is_the_cubic_of_a_cantilever():
    structure, poses = chain([[0, 0, 0], [2.0, 0, 0]], turned=False)
    solution = js.solve(structure, poses, js.NodalForce("part.tip", (0, 0, -1e3)))
    drawing = sys.modules["jaxgrip.viz._frame"]._Drawing.of(solution, "force")
    s = np.linspace(0, 1, drawing.moved.shape[1])[:, None]
    tip = drawing.moved[0, -1:]
    np.testing.assert_allclose(drawing.moved[0], tip * (3 * s**2 - s**3) / 2, atol=1e-15)


def test_picture_says_what_it_shows():
    structure, poses = chain([[0, 0, 0], [2.0, 0, 0]], turned=False, reach=(0.1, 0.1))
    load = js.NodalForce("part.tip", (0, 0, -1e3))
    solution = js.solve(structure, poses, load)
    loads = [load, js.Inertia()]
    figure = viz.frame(solution, "Cantilever", quantity="stress", scale=100.0, loads=loads)
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == ["undeformed", "deformed, enlarged 100 times", "support"]
    largest = np.abs(solution.part("part").beam_stresses).max()
    assert 1e3 <= largest < 1e6
    assert figure.axes[1].get_ylabel() == "largest stress, of normal force and bending [kPa]"
    np.testing.assert_allclose(figure.axes[1].get_ylim()[1], 1e-3 * largest)
    assert figure.axes[0].get_xlabel() == "x [m]"
    assert figure.axes[0].texts[0].get_text().strip() == "1 kN"
    with pytest.raises(ValueError, match="'force' or 'stress'"):
        viz.frame(solution, "Cantilever", quantity="moment")


def test_small_frames_are_in_mm_and_forces_of_members_and_loads_in_one_unit():
    structure, poses = chain([[0, 0, 0], [0.2, 0, 0]], turned=False)
    load = js.NodalForce("part.tip", (0.5, 0, -2.0))
    solution = js.solve(structure, poses, load)
    figure = viz.frame(solution, "Cantilever", loads=load)
    space, bar = figure.axes
    assert [space.get_xlabel(), space.get_ylabel(), space.get_zlabel()] == [
        "x [mm]",
        "y [mm]",
        "z [mm]",
    ]
    assert space.xaxis.get_major_formatter()(-0.1, 0) == "−100"
    assert bar.get_ylabel() == "normal force [N]: compression −, tension +"
    np.testing.assert_allclose(bar.get_ylim()[1], 0.5)
    assert space.texts[0].get_text().strip() == f"{np.hypot(0.5, 2.0):.4g} N"


def test_faces_of_a_solid_move_with_its_nodes():
    steel = jg.fem.Isotropic(210e9, 0.3, 7850.0)
    body = jg.fem.Body(jg.fem.box_mesh(0.4, 0.2, 0.1, 2, 1, 1), steel)
    ends = [[0, 0, 0], [0.4, 0, 0]]
    part = js.FramePart(ends, js.Solid((0, 1), body, ("x0", "x1")), {"foot": (0,), "tip": (1,)})
    position, quaternion = (1.0, 2.0, 3.0), (0.5, 0.5, 0.5, 0.5)
    system = jg.mechanism.System([part.part("arm", position, quaternion)], [])
    structure = js.Structure(system, {"arm": part}, supports={"arm.foot": "all"})
    poses = jg.mechanism.start(system)
    solution = js.solve(structure, poses, js.NodalForce("arm.tip", (0, 0, -1e3)))
    drawing = sys.modules["jaxgrip.viz._frame"]._Drawing.of(solution, "force")
    ((x, u),) = drawing.faces
    # The part's x, y and z axes are the ground's y, z and x axes.
    low, high = x.reshape(-1, 3).min(axis=0), x.reshape(-1, 3).max(axis=0)
    np.testing.assert_allclose([low, high], [[0.95, 2.0, 2.9], [1.05, 2.4, 3.1]])
    tip = u[np.abs(x[..., 1] - 2.4) < 1e-9].mean(axis=0)
    np.testing.assert_allclose(tip, solution.part("arm").displacements[1], rtol=1e-9, atol=1e-14)
    assert viz.frame(solution, "Arm").axes[0].collections
