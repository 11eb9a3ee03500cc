"""Linkages assembled from parts and joints, against closed forms and published values."""

import jax
import jax.numpy as jnp
import numpy as np
import xarray

from jaxgrip import viz
from jaxgrip.joints import Angle, Ball, Guide, Hinge, Sleeve
from jaxgrip.mechanism import Connection, Part, System, assemble, outline, velocity
from jaxgrip.mechanism.historical import planar
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

# Values of independent programs: crank, coupler and rocker angle [deg].
FOUR_BAR = {60: (32.046511404, 100.536323137), 90: (26.950666885, 109.288411224)} | {
    150: (26.671275730, 132.383858392)
}
SLIDER = {0: 4.0, 30: 3.824065295, 60: 3.372281323, 90: 2.828427125, 120: 2.372281323, 180: 2.0}
SLIDER_SLOPE = (0.0, -0.646385011, -1.016781076, -1.0, -0.715269731, 0.0)
# Coupler and rocker [deg] of the linkage 45, 120, 130, 200 by the crank [deg].
CRANK_ROCKER = {
    0: (54.64583, 131.16187),
    60: (33.19956, 126.36897),
    90: (23.86806, 133.97357),
    180: (11.95341, 168.97809),
    270: (49.22883, 159.33434),
}


def pin(x: float = 0.0, y: float = 0.0) -> np.ndarray:
    """Axis along z through a point in the plane, with x as its direction."""
    return np.array([[x, y, 0.0], [x, y, 1.0], [x + 1.0, y, 0.0]])


def bar(name: str, length: float, start: tuple[float, float], angle_deg: float) -> Part:
    """A bar along its x axis."""
    half = np.deg2rad(angle_deg) / 2
    return Part(
        name,
        {"begin": pin(), "end": pin(length)},
        position=(*start, 0.0),
        quaternion=(np.cos(half), 0.0, 0.0, np.sin(half)),
    )


def chain(frames: list[tuple[tuple, tuple]], sizes: list[tuple]) -> System:
    """Four-bars in a row, each rocker being the crank of the next.

    `frames` has the feet of crank and rocker, `sizes` crank, coupler and rocker of every one.
    The drive is `"crank"`. Ball and sleeve close each loop without redundant equations.
    """
    parts, connections, ground = [], [], {}
    for k, ((first, second), (a, b, c)) in enumerate(zip(frames, sizes, strict=True)):
        if k == 0:
            parts.append(bar("crank", a, first, 60.0))
            ground["foot 0"] = pin(*first)
            connections += [
                Connection("crank hinge", Hinge(), "ground.foot 0", "crank.begin"),
                Connection("crank", Angle(np.deg2rad(60.0)), "ground.foot 0", "crank.begin"),
            ]
        driver = "crank" if k == 0 else f"rocker {k}"
        ground[f"foot {k + 1}"] = pin(*second)
        at = (first[0] + 0.5 * a, first[1] + 0.87 * a)
        parts += [
            bar(f"coupler {k + 1}", b, at, 30.0),
            bar(f"rocker {k + 1}", c, second, 100.0),
        ]
        connections += [
            Connection(f"pin {2 * k + 1}", Hinge(), f"{driver}.end", f"coupler {k + 1}.begin"),
            Connection(f"pin {2 * k + 2}", Ball(), f"coupler {k + 1}.end", f"rocker {k + 1}.end"),
            Connection(f"foot {k + 1}", Sleeve(), f"ground.foot {k + 1}", f"rocker {k + 1}.begin"),
        ]
    return System(parts, connections, ground)


def four_bar() -> System:
    """The four-bar of crank 1, coupler 3, rocker 2.5 and frame 3.5."""
    return chain([((0.0, 0.0), (3.5, 0.0))], [(1.0, 3.0, 2.5)])


def slider_crank() -> System:
    """Crank 1, rod 3, slider along x."""
    along = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    slider = Part("slider", {"pin": pin(), "guide": along}, position=(3.4, 0.1, 0.0))
    parts = [bar("crank", 1.0, (0.0, 0.0), 60.0), bar("rod", 3.0, (0.5, 0.87), -15.0), slider]
    connections = [
        Connection("crank hinge", Hinge(), "ground.foot", "crank.begin"),
        Connection("crank", Angle(np.deg2rad(60.0)), "ground.foot", "crank.begin"),
        Connection("crank pin", Ball(), "crank.end", "rod.begin"),
        Connection("rod pin", Sleeve(), "slider.pin", "rod.end"),
        Connection("guide", Guide(), "ground.guide", "slider.guide"),
    ]
    return System(parts, connections, {"foot": pin(), "guide": along})


def at_cranks(system: System, cranks: jax.Array) -> tuple:
    """Assemblies at crank angles [rad], each started from the previous one, and their outlines."""
    base = assemble(system)

    def step(poses, crank: jax.Array) -> tuple:
        here = assemble(system, {"crank": crank}, start=poses)
        return here.poses, (here, outline(system, here.poses))

    return jax.jit(lambda s, c: jax.lax.scan(step, s, c)[1])(base.poses, cranks)


def heading(quaternion: jax.Array) -> np.ndarray:
    """Angles [deg] in [0, 360) of rotations about z."""
    return np.rad2deg(2 * np.arctan2(quaternion[..., 3], quaternion[..., 0])) % 360.0


def study(run: Run) -> None:
    """Four-bar, slider-crank and two four-bars in a row."""
    _four_bars(run)
    _slider_crank(run)
    _double(run)


def _four_bars(run: Run) -> None:
    system = four_bar()
    here, _ = at_cranks(system, jnp.deg2rad(jnp.array([60.0, 90.0, 120.0, 150.0])))
    angles = heading(here.poses.quaternion[np.array([0, 1, 3])])
    run.add("four_bar_coupler", list(angles[:, 1]), "deg", [v[0] for v in FOUR_BAR.values()])
    run.add("four_bar_rocker", list(angles[:, 2]), "deg", [v[1] for v in FOUR_BAR.values()])
    linkage = planar.FourBar(45.0, 120.0, 130.0, 200.0)
    found = jax.vmap(lambda phi: planar.position(linkage, phi))(
        jnp.deg2rad(jnp.array([*CRANK_ROCKER]))
    )
    for name, values, column in (("coupler", found.theta, 0), ("rocker", found.psi, 1)):
        run.add(
            f"crank_rocker_{name}",
            list(np.rad2deg(values) % 360.0),
            "deg",
            [v[column] for v in CRANK_ROCKER.values()],
        )


def _slider_crank(run: Run) -> None:
    system = slider_crank()
    base = assemble(system)
    degrees = np.arange(0.0, 361.0, 5.0)
    here, _ = at_cranks(system, jnp.deg2rad(60.0 + degrees))
    slopes = jax.jit(jax.vmap(lambda a: velocity(a, {"crank": 1.0}).linear[2, 0]))(here)
    at = [int(k // 5) for k in (np.array([*SLIDER]) - 60) % 360]
    displacements = np.asarray(here.poses.position[:, 2, 0])
    run.add("slider_way", list(displacements[at]), "m", list(SLIDER.values()))
    run.add("slider_way_by_angle", list(np.asarray(slopes)[at]), "m/rad", list(SLIDER_SLOPE))
    run.add("slider_crank_iterations", int(base.iterations), "1")
    order = np.argsort((60.0 + degrees[:-1]) % 360.0)
    x = ((60.0 + degrees[:-1]) % 360.0)[order]
    run.figure(
        "slider_crank",
        viz.curves(
            [
                Panel(
                    "crank angle [°]",
                    "displacement of the slider [m]",
                    [
                        Curve("assembled", x, displacements[:-1][order]),
                        Curve("published", np.array([*SLIDER]), [*SLIDER.values()], points=True),
                    ],
                ),
                Panel(
                    "crank angle [°]",
                    "its derivative [m/rad]",
                    [
                        Curve("assembled", x, np.asarray(slopes)[:-1][order]),
                        Curve("published", np.array([*SLIDER]), SLIDER_SLOPE, points=True),
                    ],
                ),
            ],
            "Slider-crank: crank 1 m, rod 3 m",
        ),
        "The derivative comes from the assembled position, without differences.",
    )


def _double(run: Run) -> None:
    feet = [((0.0, 0.0), (3.5, 0.0)), ((3.5, 0.0), (7.0, 0.0))]
    sizes = [(1.0, 3.0, 2.5), (2.5, 3.6, 2.6)]
    system = chain(feet, sizes)
    cranks = jnp.linspace(np.pi / 3, np.pi / 3 + 2 * np.pi, 181)
    here, lines = at_cranks(system, cranks)
    rockers = heading(here.poses.quaternion)[:, [2, 4]]

    def closed(crank: jax.Array) -> jax.Array:
        first = planar.position(planar.FourBar(*sizes[0], 3.5), crank).psi
        return jnp.stack([first, planar.position(planar.FourBar(*sizes[1], 3.5), first).psi])

    expected = np.rad2deg(jax.vmap(closed)(cranks)) % 360.0
    off = np.abs((rockers - expected + 180.0) % 360.0 - 180.0).max()
    run.add("double_four_bar_off_closed_form", float(np.deg2rad(off)), "rad")
    run.add("double_four_bar_assembled", int(here.succeeded.sum()), "1", len(cranks))
    parts = {
        name: xarray.DataArray(np.asarray(line), dims=("step", "point", "axis"))
        for name, line in lines.items()
    }
    tip = parts["rocker 2"].isel(point=1)
    run.figure(
        "double_four_bar",
        viz.linkage(
            parts,
            "Two four-bars in a row: the rocker of the first drives the second",
            plane="xy",
            step=20,
            paths={"path of the last pin": tip},
        ),
        "One revolution of the crank swings both rockers.",
    )
    run.animation(
        "double_four_bar",
        viz.animate_linkage(
            {name: part[::3] for name, part in parts.items()},
            "Two four-bars in a row",
            plane="xy",
            captions=[f"crank {np.rad2deg(c) % 360:3.0f}°" for c in np.asarray(cranks)[::3]],
        ),
        "One revolution of the crank.",
    )
