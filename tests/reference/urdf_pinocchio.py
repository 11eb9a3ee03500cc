"""Print what Pinocchio says of tests/rigid/data/arm.urdf, for test_urdf.py.

Run in an environment with `pin` (4.1.0 made the numbers): python tests/reference/urdf_pinocchio.py
"""

from pathlib import Path

import numpy as np
import pinocchio as pin

PATH = Path(__file__).parents[1] / "rigid" / "data" / "arm.urdf"

model = pin.buildModelFromUrdf(str(PATH))
data = model.createData()
q = np.array([0.3, np.cos(-2.0), np.sin(-2.0), 0.5, 0.1])
v, a = np.array([0.7, -0.4, 1.1, 0.2]), np.array([0.5, 0.9, -0.3, 1.5])
np.set_printoptions(precision=12, linewidth=100)
print(pin.__version__, list(model.names))
print(repr(pin.rnea(model, data, q, v, a)))
m = pin.crba(model, data, q)
print(repr(np.triu(m)))
pin.framesForwardKinematics(model, data, q)
place = data.oMf[model.getFrameId("tool")]
print(repr(place.translation), repr(place.rotation))
