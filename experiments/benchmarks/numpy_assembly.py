"""Assembly by Newton's method in NumPy, one position at a time: the peer of `jaxgrip.mechanism`.

The same equations in the same unknowns, with derivatives by hand, all joints stacked.
"""

from typing import NamedTuple

import numpy as np

from jaxgrip import joints
from jaxgrip.mechanism import System


class Joints(NamedTuple):
    """Joints as arrays: bodies (j, 2), -1 for the ground; frames in the axes of the bodies."""

    kinds: tuple[str, ...]
    bodies: np.ndarray
    origins: np.ndarray
    rotations: np.ndarray
    drives: np.ndarray


def prepare(system: System) -> Joints:
    """The joints of a system whose clamped parts stay at their start."""
    kinds, bodies, origins, rotations, drives = [], [], [], [], []
    names = [part.name for part in system.parts]
    for connection in system.connections:
        joint = connection.joint
        kinds.append(type(joint).__name__)
        drives.append(float(getattr(joint, joint.parameter)) if joint.parameter else 0.0)
        if isinstance(joint, joints.Clamp):
            part = system.parts[names.index(connection.first)]
            bodies.append((-1, names.index(part.name)))
            origins.append([part.position, np.zeros(3)])
            rotations.append([_matrix(np.asarray(part.quaternion)), np.eye(3)])
            continue
        pair = [
            _attachment(system, names, place) for place in (connection.first, connection.second)
        ]
        bodies.append([body for body, _ in pair])
        frames = [joints.frame(points) for _, points in pair]
        origins.append([frame.origin for frame in frames])
        rotations.append([frame.rotation for frame in frames])
    return Joints(
        tuple(kinds),
        np.array(bodies),
        np.array(origins, dtype=float),
        np.array(rotations, dtype=float),
        np.array(drives),
    )


def assemble(
    system: Joints,
    drives: np.ndarray,
    position: np.ndarray,
    rotation: np.ndarray,
    tolerance: float = 1e-10,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Positions (n, 3), rotations (n, 3, 3) and the number of iterations, from a start."""
    for iteration in range(50):
        residual, jacobian = _equations(system, drives, position, rotation)
        if np.abs(residual).max() < tolerance:
            return position, rotation, iteration
        step = -np.linalg.solve(jacobian, residual).reshape(-1, 6)
        position = position + step[:, :3]
        rotation = _exponential(step[:, 3:]) @ rotation
    raise RuntimeError("NumPy's Newton iterations did not converge.")


def _equations(
    system: Joints, drives: np.ndarray, position: np.ndarray, rotation: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    count = len(position)
    position = np.concatenate([position, np.zeros((1, 3))])
    rotation = np.concatenate([rotation, np.eye(3)[None]])
    turned = rotation[system.bodies]
    frames = turned @ system.rotations
    arms = np.einsum("jkab,jkb->jka", turned, system.origins)
    origins = position[system.bodies] + arms
    back = np.swapaxes(frames[:, 0], 1, 2)
    relative = origins[:, 1] - origins[:, 0]
    r = np.einsum("jab,jb->ja", back, relative)
    q = back @ frames[:, 1]
    # Derivatives by (δv, δθ) of the first and the second body.
    by = np.zeros((len(r), 6, 12))
    by[:, :3, 0:3], by[:, :3, 6:9] = -back, back
    by[:, :3, 3:6] = back @ _skew(arms[:, 0] + relative)
    by[:, :3, 9:12] = -back @ _skew(arms[:, 1])
    by[:, 3:, 3:6], by[:, 3:, 9:12] = -back, back
    values, rows, owners = [], [], []
    for j, kind in enumerate(system.kinds):
        length, angular, z, x = by[j, :3], by[j, 3:], q[j, :, 2], q[j, :, 0]
        tilt = (-_skew(z) @ angular)[:2]
        match kind:
            case "Ball":
                value, row = r[j], length
            case "Hinge":
                value, row = np.append(r[j], z[:2]), np.vstack([length, tilt])
            case "Sleeve":
                value, row = np.append(r[j, :2], z[:2]), np.vstack([length[:2], tilt])
            case "Distance":
                d = drives[j]
                value, row = [(r[j] @ r[j] - d * d) / (2 * d)], (r[j] / d @ length)[None]
            case "Angle":
                sine, cosine = q[j, 1, 0] - q[j, 0, 1], q[j, 0, 0] + q[j, 1, 1]
                size = np.hypot(sine, cosine)
                missing = (sine * np.cos(drives[j]) - cosine * np.sin(drives[j])) / size
                along = (cosine * np.cos(drives[j]) + sine * np.sin(drives[j])) / size
                spin = (-_skew(x) @ angular)[1] - (-_skew(q[j, :, 1]) @ angular)[0]
                grow = (-_skew(x) @ angular)[0] + (-_skew(q[j, :, 1]) @ angular)[1]
                row = along * (cosine * spin - sine * grow)[None] / size**2
                value = [missing]
            case "Clamp":
                axial = np.array([q[j, 2, 1] - q[j, 1, 2], q[j, 0, 2] - q[j, 2, 0], 0.0])
                axial[2] = q[j, 1, 0] - q[j, 0, 1]
                value = np.append(r[j], axial / 2)
                row = np.vstack([length, (np.trace(q[j]) * np.eye(3) - q[j]) @ angular / 2])
            case _:
                raise NotImplementedError(kind)
        values.append(value)
        rows.append(row)
        owners += [j] * len(value)
    rows, owners = np.vstack(rows), np.array(owners)
    jacobian = np.zeros((len(rows), count + 1, 6))
    place = np.arange(len(rows))
    first, second = system.bodies[owners].T
    jacobian[place, first] += rows[:, :6]
    jacobian[place, second] += rows[:, 6:]
    return np.concatenate(values), jacobian[:, :count].reshape(len(rows), -1)


def _attachment(system: System, names: list[str], place: str) -> tuple[int, np.ndarray]:
    part, _, attachment = place.partition(".")
    if part == "ground":
        return -1, system.ground[attachment]
    body = names.index(part)
    return body, system.parts[body].attachments[attachment]


def _skew(v: np.ndarray) -> np.ndarray:
    matrix = np.zeros((*v.shape, 3))
    matrix[..., 2, 1], matrix[..., 0, 2], matrix[..., 1, 0] = np.moveaxis(v, -1, 0)
    return matrix - np.swapaxes(matrix, -1, -2)


def _exponential(rotation: np.ndarray) -> np.ndarray:
    angle = np.linalg.norm(rotation, axis=1)[:, None, None]
    k = _skew(rotation)
    safe = np.where(angle > 1e-8, angle, 1.0)
    sine = np.where(angle > 1e-8, np.sin(safe) / safe, 1.0)
    cosine = np.where(angle > 1e-8, (1 - np.cos(safe)) / safe**2, 0.5)
    return np.eye(3) + sine * k + cosine * (k @ k)


def _matrix(q: np.ndarray) -> np.ndarray:
    w, v = q[0], q[1:]
    return (2 * w * w - 1) * np.eye(3) + 2 * np.outer(v, v) + 2 * w * _skew(v)
