"""The peer's half of the rigid-body benchmark: runs where `pin` is installed, prints JSON."""

import json
import sys
import time

import numpy as np
import pinocchio as pin


def build(tree):
    """Pinocchio's model of the bodies and joints that the other half sent."""
    model = pin.Model()
    for i, parent in enumerate(tree["parents"]):
        place = pin.SE3(np.array(tree["rotation"][i]), np.array(tree["translation"][i]))
        kind = {"revolute": pin.JointModelRZ, "prismatic": pin.JointModelPZ}[tree["joint_types"][i]]
        joint = model.addJoint(parent + 1, kind(), place, f"joint{i}")
        inertia = pin.Inertia(
            tree["mass"][i], np.array(tree["com"][i]), np.array(tree["inertia"][i])
        )
        model.appendBodyToJoint(joint, inertia, pin.SE3.Identity())
    model.gravity.linear = np.array(tree["gravity"])
    return model


def states(seed, n, batch):
    """The same random states in both halves: coordinates, rates, accelerations or torques."""
    drawn = np.random.default_rng(seed).normal(size=(3, n, batch))
    return tuple(np.asfortranarray(x) for x in drawn)


def fastest(work, repeats):
    """Least wall time of some runs [s]."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    """Read the task on standard input, print times per element and sample results."""
    task = json.load(sys.stdin)
    model = build(task["tree"])
    n, batch, threads, repeats = model.nv, task["batch"], task["threads"], task["repeats"]
    q, qd, third = states(task["seed"], n, batch)
    pool, out = pin.ModelPool(model, threads), np.zeros((n, batch), order="F")
    answer = {"version": pin.__version__}

    def parallel(function):
        seconds = fastest(lambda: function(threads, pool, q, qd, third, out), repeats)
        return {"run_s": seconds / batch, "sample": out[:, 0].tolist()}

    answer["rnea"] = parallel(pin.rneaInParallel)
    answer["aba"] = parallel(pin.abaInParallel)
    data, count = model.createData(), min(batch, 4096)
    columns = [(q[:, k].copy(), qd[:, k].copy(), third[:, k].copy()) for k in range(count)]

    def derivatives():
        for x, v, t in columns:
            pin.computeABADerivatives(model, data, x, v, t)

    # There is no parallel call: the time for two threads is taken as half that of one.
    seconds = fastest(derivatives, max(3, repeats // 4)) / count / threads
    x, v, t = columns[0]
    sample = pin.computeABADerivatives(model, data, x, v, t)[0]
    answer["derivatives"] = {"run_s": seconds, "sample": sample[0].tolist()}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
