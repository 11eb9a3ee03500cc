"""The peer's half of the assembly benchmark: runs where `scikit-fem` is installed, prints JSON."""

import json
import sys
import time

import numpy as np
import skfem
from skfem.models.elasticity import lame_parameters, linear_elasticity


def main():
    """Read the task on standard input, print the times and the energy of a displacement field."""
    task = json.load(sys.stdin)
    ticks = np.linspace(0.0, 1.0, task["cells"] + 1)
    start = time.perf_counter()
    mesh = skfem.MeshHex.init_tensor(ticks, ticks - 0.5, ticks - 0.5)
    # Degree 2 takes 2x2x2 points, as the other half does.
    basis = skfem.Basis(mesh, skfem.ElementVector(skfem.ElementHex1()), intorder=2)
    setup = time.perf_counter() - start
    form = linear_elasticity(*lame_parameters(task["E"], task["nu"]))
    start = time.perf_counter()
    matrix = form.assemble(basis)
    run = time.perf_counter() - start
    x, y, z = basis.doflocs
    # Degree of freedom k of a node is its displacement along axis k.
    u = np.empty(basis.N)
    for k, values in enumerate((x * y, y * z, z * x + x * x)):
        u[basis.nodal_dofs[k]] = values[basis.nodal_dofs[k]]
    answer = {"version": skfem.__version__, "setup_s": setup, "run_s": run}
    print(json.dumps(answer | {"energy": float(u @ (matrix @ u)) / 2, "nnz": int(matrix.nnz)}))


if __name__ == "__main__":
    main()
