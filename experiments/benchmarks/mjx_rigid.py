"""MJX's half of the rigid-body benchmark: runs where `mujoco-mjx` is installed, prints JSON."""

import json
import sys
import time
import xml.etree.ElementTree as ET

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx


def build(tree):
    """MuJoCo's model of the bodies and hinges that the other half sent; no contacts."""
    root = ET.Element("mujoco")
    ET.SubElement(root, "compiler", angle="radian", inertiafromgeom="false", autolimits="false")
    option = ET.SubElement(root, "option", gravity=_words(tree["gravity"]))
    ET.SubElement(option, "flag", contact="disable", constraint="disable")
    bodies = {-1: ET.SubElement(root, "worldbody")}
    for i, parent in enumerate(tree["parents"]):
        quaternion = np.zeros(4)
        mujoco.mju_mat2Quat(quaternion, np.ravel(tree["rotation"][i]))
        place = {"pos": _words(tree["translation"][i]), "quat": _words(quaternion)}
        bodies[i] = ET.SubElement(bodies[parent], "body", **place)
        full = np.array(tree["inertia"][i])[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
        inertia = {"mass": str(tree["mass"][i]), "fullinertia": _words(full)}
        ET.SubElement(bodies[i], "inertial", pos=_words(tree["com"][i]), **inertia)
        ET.SubElement(bodies[i], "joint", type="hinge", axis="0 0 1")
    return mujoco.MjModel.from_xml_string(ET.tostring(root, encoding="unicode"))


def _words(numbers):
    return " ".join(repr(float(x)) for x in numbers)


def main():
    """Read the task on standard input, print times per state and sample results."""
    task = json.load(sys.stdin)
    jax.config.update("jax_enable_x64", True)
    model = mjx.put_model(build(task["tree"]))
    batch = task["batch"]
    drawn = np.random.default_rng(task["seed"]).normal(size=(3, model.nv, batch))
    arguments = [jnp.asarray(x.T) for x in drawn]
    empty = mjx.make_data(model)

    def rnea(q, qd, qdd):
        return mjx.inverse(model, empty.replace(qpos=q, qvel=qd, qacc=qdd)).qfrc_inverse

    def aba(q, qd, tau):
        return mjx.forward(model, empty.replace(qpos=q, qvel=qd, qfrc_applied=tau)).qacc

    answer = {}
    for key, function in {"rnea": rnea, "aba": aba}.items():
        start = time.perf_counter()
        compiled = jax.jit(jax.vmap(function)).lower(*arguments).compile()
        setup, times = time.perf_counter() - start, []
        for _ in range(1 + task["repeats"]):
            start = time.perf_counter()
            out = jax.block_until_ready(compiled(*arguments))
            times.append(time.perf_counter() - start)
        sample = {"sample": np.asarray(out[0]).tolist(), "setup_s": setup}
        answer[key] = {"run_s": min(times) / batch, **sample}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
