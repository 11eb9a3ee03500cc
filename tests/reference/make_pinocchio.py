"""Write pinocchio.npz: random trees and what Pinocchio says of them.

Run in an environment with `pin` (4.1.0 made the stored file):
python tests/reference/make_pinocchio.py
"""

from pathlib import Path

import numpy as np
import pinocchio as pin

SIZES = (1, 2, 3, 6, 6, 10, 20)


def random_rotation(rng):
    q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return q if np.linalg.det(q) > 0 else -q


def random_tree(rng, size):
    kinds = rng.choice(["revolute", "prismatic", "fixed"], size=size, p=[0.6, 0.25, 0.15])
    kinds[0] = "revolute"
    inertia = []
    for _ in range(size):
        masses = rng.uniform(0.1, 0.5, 3)
        turn = random_rotation(rng)
        inertia.append(turn @ np.diag(0.02 * (masses.sum() - masses)) @ turn.T)
    return {
        "parents": np.array([-1, *(rng.integers(max(-1, i - 3), i) for i in range(1, size))]),
        "kinds": kinds.astype("U9"),
        "rotation": np.array([random_rotation(rng) for _ in range(size)]),
        "translation": rng.uniform(-0.4, 0.4, (size, 3)),
        "mass": rng.uniform(0.2, 3.0, size),
        "com": rng.uniform(-0.2, 0.2, (size, 3)),
        "inertia": np.array(inertia),
        "gravity": np.array([0.7, -1.3, -9.81]),
    }


def depth_first(parents, root=-1):
    for i in np.flatnonzero(parents == root):
        yield int(i)
        yield from depth_first(parents, i)


def build(tree):
    model = pin.Model()
    model.gravity.linear = tree["gravity"]
    places = {}
    # Pinocchio wants the joints of a subtree to be neighbours.
    for i in depth_first(tree["parents"]):
        parent = tree["parents"][i]
        joint, offset = (0, pin.SE3.Identity()) if parent < 0 else places[parent]
        place = offset * pin.SE3(tree["rotation"][i], tree["translation"][i])
        inertia = pin.Inertia(tree["mass"][i], tree["com"][i], tree["inertia"][i])
        kind = tree["kinds"][i]
        if kind == "fixed":
            places[i] = (joint, place)
            model.appendBodyToJoint(joint, inertia, place)
            continue
        made = pin.JointModelRZ() if kind == "revolute" else pin.JointModelPZ()
        joint = model.addJoint(joint, made, place, f"j{i}")
        places[i] = (joint, pin.SE3.Identity())
        model.appendBodyToJoint(joint, inertia, pin.SE3.Identity())
    return model, places


def main():
    rng = np.random.default_rng(2007)
    stored = {"count": len(SIZES), "version": pin.__version__}
    for k, size in enumerate(SIZES):
        tree = random_tree(rng, size)
        model, places = build(tree)
        moving = [i for i in range(size) if tree["kinds"][i] != "fixed"]
        column = [model.joints[places[i][0]].idx_v for i in moving]
        q, qd, qdd, tau = rng.normal(size=(4, len(moving)))

        def theirs(x, column=column):
            y = np.empty_like(x)
            y[column] = x
            return y

        data = model.createData()
        a, b, c, d = (theirs(x) for x in (q, qd, qdd, tau))
        pin.computeAllTerms(model, data, a, b)
        mass = np.triu(data.M) + np.triu(data.M, 1).T
        potential = pin.computePotentialEnergy(model, data, a)
        kinetic = pin.computeKineticEnergy(model, data, a, b)
        torque = pin.rnea(model, data, a, b, c).copy()
        bias = pin.nonLinearEffects(model, data, a, b).copy()
        acceleration = pin.aba(model, data, a, b, d).copy()
        derivatives = [x.copy() for x in pin.computeABADerivatives(model, data, a, b, d)]
        derivatives[2] = np.triu(derivatives[2]) + np.triu(derivatives[2], 1).T
        pin.forwardKinematics(model, data, a)
        poses = [data.oMi[places[i][0]] * places[i][1] for i in range(size)]
        both = np.ix_(column, column)
        stored |= {f"{key}_{k}": value for key, value in tree.items()}
        stored |= {
            f"q_{k}": q,
            f"qd_{k}": qd,
            f"qdd_{k}": qdd,
            f"tau_{k}": tau,
            f"M_{k}": mass[both],
            f"rnea_{k}": torque[column],
            f"bias_{k}": bias[column],
            f"aba_{k}": acceleration[column],
            f"daba_dq_{k}": derivatives[0][both],
            f"daba_dqd_{k}": derivatives[1][both],
            f"daba_dtau_{k}": derivatives[2][both],
            f"position_{k}": np.array([p.translation for p in poses]),
            f"orientation_{k}": np.array([p.rotation for p in poses]),
            f"kinetic_{k}": kinetic,
            f"potential_{k}": potential,
        }
    np.savez_compressed(Path(__file__).parent / "pinocchio.npz", **stored)


if __name__ == "__main__":
    main()
