"""Structures used in several tests."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxgrip as jg

js = jg.fem.structures
STEEL = jg.fem.Isotropic(210e9, 0.3, 7850.0)
BOX = jg.fem.BeamSection(STEEL, A=0.02, Iy=3e-4, Iz=2e-4, J=4e-4, orientation=(0.3, 1.0, 0.2))
TILTED = (0.9, 0.1, -0.3, 0.2)


def frame_between_pins(reach=3.0):
    """A frame of beams with pins at y = ±1 and a tip forward."""
    nodes = [[0, -1, 0], [0, 1, 0], [reach, 0, 0.4], [reach / 2, 0.3, -0.5]]
    beams = js.Beams([(0, 2), (1, 2), (0, 3), (1, 3), (2, 3)], BOX)
    named = {"pins": (0, 1), "pin": (0,), "three": (0, 1, 2), "tip": (2,)}
    return js.FramePart(nodes, [beams], named)


def two_frames(joint, first="pins", second="pins", **options):
    """Two frames, joined or not, and poses in which they are, at a slant and turned by 0.7."""
    frames = {"lower": frame_between_pins(), "upper": frame_between_pins(-2.0)}
    if first == "three":
        frames["upper"] = frame_between_pins()
    parts = [frame.part(name) for name, frame in frames.items()]
    joints = []
    if joint is not None:
        joints = [jg.mechanism.Connection("joint", joint, f"lower.{first}", f"upper.{second}")]
    structure = js.Structure(jg.mechanism.System(parts, joints), frames, **options)
    q = np.array(TILTED) / np.linalg.norm(TILTED)
    turn = 0.0 if first == "three" else 0.7
    about_y = np.array([np.cos(turn / 2), 0.0, np.sin(turn / 2), 0.0])
    w, v = q[0], q[1:]
    second_q = np.concatenate(
        [
            [w * about_y[0] - v @ about_y[1:]],
            w * about_y[1:] + about_y[0] * v + np.cross(v, about_y[1:]),
        ]
    )
    place = np.array([2.0, -1.0, 0.5])

    poses = jg.mechanism.Poses(jnp.array([place, place]), jnp.array([q, second_q]))
    return structure, poses


def tee(length):
    """Pins at y = ±1, a beam forward from between them."""
    nodes = [[0, 1, 0], [0, -1, 0], [0, 0, 0], [length / 2, 0, 0], [length, 0, 0]]
    return js.FramePart(nodes, [js.Beams([(0, 2), (2, 1), (2, 3), (3, 4)], BOX)])


def bracket(length):
    """A tee with pins at its far end as well."""
    nodes = np.array([[0, 1, 0], [0, -1, 0], [0, 0, 0], [1, 0, 0], [1, 1, 0], [1, -1, 0.0]])
    nodes[3:, 0] = length
    return js.FramePart(nodes, [js.Beams([(0, 2), (2, 1), (2, 3), (3, 4), (3, 5)], BOX)])


def crane_frames(system):
    """Beams along the bodies of the reference crane; the superstructure is rigid."""
    upper = system.parts[system.part("superstructure")]
    nodes = np.concatenate(
        [np.asarray(upper.attachments["slewing ring"])[:2]]
        + [np.asarray(upper.attachments[f"{k} foot"])[:2] for k in ("boom", "mast", "a-frame")]
        + [[[-6.0, 0.0, 1.0]]]
    )
    links = js.RigidLinks([(0, k) for k in range(1, len(nodes))])
    far = {name: float(part.attachments["tip"][0, 0]) for name, part in _named(system, "tip")}
    rods = float(system.parts[system.part("rods")].attachments["mast end"][0, 0])
    rod_nodes = [[0, 0, 0], [rods, 0, 0], [rods, 1, 0], [rods, -1, 0]]
    return {
        "superstructure": js.FramePart(nodes, [links]),
        "a-frame": tee(far["a-frame"]),
        "rods": js.FramePart(rod_nodes, [js.Beams([(0, 1), (1, 2), (1, 3)], BOX)]),
        "mast": bracket(far["mast"]),
        "boom": tee(far["boom"]),
    }


def _named(system, attachment):
    return [(part.name, part) for part in system.parts if attachment in part.attachments]


def crane_structure(system, **changes):
    """The reference crane, pinned: its A-frame is held by a rope down to the superstructure."""
    options = {
        "transfer": {"slew": "lock", "luffing rope": js.Rope(5e7)},
        "ties": {"pull-down": js.Tie(js.Rope(8e7), "a-frame.tip", ("superstructure", 8))},
    }
    return js.Structure(system, crane_frames(system), **options | changes)


def crane_poses(boom_deg, slew=0.0):
    """Closed form of the reference crane with its A-frame at 150 and its mast at 120 degrees."""
    turn = np.array([[np.cos(slew), -np.sin(slew), 0], [np.sin(slew), np.cos(slew), 0], [0, 0, 1]])
    feet = {k: np.array([x, 0, 2.5]) for k, x in (("a", -3.0), ("mast", 0.5), ("boom", 1.5))}

    def along(angle):
        return np.array([np.cos(angle), 0, np.sin(angle)])

    tip = feet["a"] + 7 * along(np.deg2rad(150))
    way = feet["mast"] + 30 * along(np.deg2rad(120)) - tip
    pitches = np.array([0, np.deg2rad(150), np.arctan2(way[2], way[0]), np.deg2rad(120)])
    pitches = np.append(pitches, np.deg2rad(boom_deg)) / 2
    places = np.array([[0, 0, 1.5], feet["a"], tip, feet["mast"], feet["boom"]])
    c, s, ch, sh = np.cos(slew / 2), np.sin(slew / 2), np.cos(pitches), np.sin(pitches)
    quaternion = np.stack([c * ch, s * sh, -c * sh, s * ch], axis=1)
    return jg.mechanism.Poses(
        jnp.array([[0, 0, 0.0], *(places @ turn.T)]), jnp.array([[1, 0, 0, 0.0], *quaternion])
    )


def chain(nodes, *, held=("root",), turned=True, reach=None, released=((), ()), section=BOX):
    """Beams from node to node, held at the first, at a slant."""
    beams = js.Beams(
        [(k, k + 1) for k in range(len(nodes) - 1)], section, reach=reach, released=released
    )
    frame = js.FramePart(nodes, [beams], {"root": (0,), "tip": (len(nodes) - 1,)})
    quaternion = TILTED if turned else (1.0, 0, 0, 0)
    system = jg.mechanism.System(
        [frame.part("part", (1.0, -2.0, 0.5), quaternion)],
        [jg.mechanism.Connection("anchor", jg.joints.Clamp(), "part")],
    )
    supports = {f"part.{name}": "all" for name in held}
    return js.Structure(system, {"part": frame}, supports=supports), jg.mechanism.start(system)


def check_derivatives(function, at, tolerance):
    """Both modes against central differences of fourth order."""
    step = 5e-3
    function = jax.jit(function)

    def difference(k, h):
        return (function(at.at[k].add(h)) - function(at.at[k].add(-h))) / (2 * h)

    columns = [(4 * difference(k, step / 2) - difference(k, step)) / 3 for k in range(len(at))]
    expected = np.stack(columns, axis=1)
    scale = np.maximum(np.abs(expected).max(axis=1, keepdims=True), 1e-300)
    for mode in (jax.jacfwd, jax.jacrev):
        error = np.abs(np.asarray(jax.jit(mode(function))(at)) - expected) / scale
        assert error.max() < tolerance, error
