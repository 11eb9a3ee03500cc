"""Pictures of the certificate of an optimal control solution."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray
from matplotlib.figure import Figure

from jaxgrip.ocp import Kind
from jaxgrip.viz._sampling import refine
from jaxgrip.viz._signals import controls, hamiltonian, multipliers
from jaxgrip.viz.style import GREY, PALETTE, in_powers, settle, styled

if TYPE_CHECKING:
    from jaxgrip.ocp import Certificate, Solution

_INDICES = "₁₂₃"


def certificate(
    solution: "Solution",
    title: str,
    *,
    control_names: Sequence[str] | None = None,
    constraint_names: Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
) -> dict[str, Figure]:
    """Pictures of every quantity whose sign or constancy certifies a solution.

    **Arguments:** `solution` with a certificate; `title` of the figures; `control_names` (m,);
    `constraint_names` (c,), such as `problem.constraint_names`; `units` of "control",
    "switching_function", "multiplier" and "rate_costate", omitted where not given.

    **Returns:** by name

    - `controls`: each control with its switching function, shaded by its kind of arc;
    - `multipliers`: the multiplier of each constraint that is active or touched, with the jumps of
      the costate;
    - `rate_costates`: the costate of each control whose rate is at a bound;
    - `hamiltonian`: its deviation from a constant;
    - `checks`: share of each tolerance that is used.

    Empty figures are omitted.

    **Raises:** `ValueError` for a solution without a certificate.
    """
    if solution.certificate is None:
        raise ValueError("The solution has no certificate, since the solve failed.")
    units = units or {}
    structure = solution.structure
    edges = np.concatenate(
        [[0.0], np.asarray(solution.switching_times), [float(solution.final_time)]]
    )
    m, c = structure.kinds.shape[1], structure.active.shape[1]
    names = list(control_names or (f"control {j}" for j in range(m)))
    constraints = list(constraint_names or (f"constraint {i}" for i in range(c)))
    arrays = refine(_arrays(solution, names, constraints, units))
    terms = float(np.max(np.abs(np.asarray(solution.costate) * np.asarray(solution.x_rate))))
    figures = {
        "controls": controls(
            arrays["course"],
            arrays["switching_function"],
            edges,
            _kinds(solution),
            f"{title}: controls and switching functions",
            least=1e-6 * terms / (np.max(np.abs(np.asarray(solution.u))) or 1.0),
        )
    }
    jumps = _jumps(solution, c)
    used = [i for i in range(c) if structure.active[:, i].any() or jumps[i]]
    if used:
        figures["multipliers"] = multipliers(
            arrays["multiplier"].isel(constraint=used),
            edges,
            [structure.active[:, i].tolist() for i in used],
            [jumps[i] for i in used],
            f"{title}: multipliers, at or above zero",
        )
    at_rate_bound = np.isin(structure.kinds, (Kind.FALLING, Kind.RISING))
    limited = np.flatnonzero(at_rate_bound.any(axis=0))
    if limited.size:
        figures["rate_costates"] = multipliers(
            arrays["rate_costate"].isel(control=limited),
            edges,
            [at_rate_bound[:, j].tolist() for j in limited],
            [[] for _ in limited],
            f"{title}: costates of controls",
            meaning=Kind.RISING.label,
        )
    value = _over_time(solution, "hamiltonian")
    check = next(check for check in solution.certificate.checks if check.name == "Hamiltonian")
    figures["hamiltonian"] = hamiltonian(
        value - value.mean(),
        terms or 1.0,
        float(check.tolerance),
        f"{title}: Hamiltonian, ideally constant",
        largest=float(check.value),
        switching_times=edges[1:-1],
    )
    figures["checks"] = checks(solution.certificate, f"{title}: certificate")
    return figures


@styled
def checks(proof: "Certificate", title: str) -> Figure:
    """Share of the tolerance that each check of a certificate uses, one bar per check.

    **Arguments:** `proof`, a certificate; `title` of the figure.
    """
    every = list(proof.checks)
    figure = Figure(figsize=(8.0, 1.3 + 0.32 * len(every)), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left")
    axes = figure.subplots()
    least, most = 1e-9, 1e2
    for row, check in enumerate(every):
        value, tolerance = float(check.value), float(check.tolerance)
        ratio = value / tolerance if tolerance > 0.0 else (0.0 if check.passed else np.inf)
        shown = float(np.clip(np.nan_to_num(ratio, nan=np.inf), least, most))
        colour = PALETTE[0] if check.passed else PALETTE[1]
        if check.passed and value == 0.0:
            axes.text(0.6 * least, row, "exactly zero", va="center", color=GREY, fontsize=9)
        else:
            axes.barh(row, shown - 0.5 * least, left=0.5 * least, height=0.62, color=colour)
        words = " of ".join(f"{each:.0e}" if each else "0" for each in (value, tolerance))
        axes.text(
            1.02,
            row,
            f"{'✓' if check.passed else '✗ failed,'} {words}",
            transform=axes.get_yaxis_transform(),
            va="center",
            color=colour,
        )
    axes.set_yticks(range(len(every)), [check.name for check in every])
    axes.set_ylim(len(every) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.axvline(1.0, color="black", linestyle="--", linewidth=1.2)
    axes.set_axisbelow(True)
    axes.set_xscale("log")
    in_powers(axes.xaxis)
    axes.set_xlim(0.5 * least, most)
    axes.annotate(
        "allowed",
        (1.0, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
    )
    axes.set_xlabel("measured value over what is allowed  [1]", color=GREY)
    return settle(figure)


def _over_time(solution: "Solution", name: str) -> xarray.DataArray:
    """A field of a solution over its time, `(time,)`."""
    time = ("time", np.asarray(solution.t), {"units": "s"})
    return xarray.DataArray(np.asarray(getattr(solution, name)), {"time": time}, ("time",))


def _arrays(
    solution: "Solution", controls: list, constraints: list, units: Mapping[str, str]
) -> xarray.Dataset:
    fields = {
        "control": ("u", "control", "control"),
        "switching_function": ("switching_function", "control", "switching function"),
        "rate_costate": ("rate_costate", "control", "costate of the control"),
        "multiplier": ("multiplier", "constraint", "multiplier"),
    }
    variables = {
        key: (
            ("time", dim),
            np.asarray(getattr(solution, field)),
            {"long_name": long, "units": units.get(key, "")},
        )
        for key, (field, dim, long) in fields.items()
    }
    coordinates = {
        "time": ("time", np.asarray(solution.t), {"units": "s"}),
        "control": controls,
        "constraint": constraints,
    }
    # A variable may not share its name with a dimension.
    variables["course"] = variables.pop("control")
    return xarray.Dataset(variables, coordinates)


def _kinds(solution: "Solution") -> np.ndarray:
    """Kinds of the controls, including those that an active constraint determines."""
    structure = solution.structure
    kinds = np.array(structure.kinds)
    padded = np.pad(kinds, ((1, 1), (0, 0)), constant_values=-9)
    for constraint in structure.active.T:
        change = np.diff(constraint.astype(int), prepend=0, append=0)
        begins, ends = np.flatnonzero(change == 1), np.flatnonzero(change == -1)
        for begin, end in zip(begins, ends, strict=True):
            inside = np.all(kinds[begin:end] == Kind.INTERIOR, axis=0)
            determined = inside & (padded[begin] != 0) & (padded[end + 1] != 0)
            kinds[begin:end, determined] = Kind.CONSTRAINED
    return kinds


def _jumps(solution: "Solution", c: int) -> list[list[tuple[float, str]]]:
    """For each constraint, times and sizes of the jumps of the costate."""
    found: list[list[tuple[float, str]]] = [[] for _ in range(c)]
    # Where there is no jump, the solver leaves rounding error.
    least = 1e-12 * np.max(np.abs(np.asarray(solution.jumps)), initial=0.0)
    for time, constraint, jump in zip(
        np.asarray(solution.switching_times),
        solution.structure.switching_constraints,
        np.asarray(solution.jumps),
        strict=True,
    ):
        sizes = [f"η{_INDICES[k]} = {size:.3g}" for k, size in enumerate(jump) if abs(size) > least]
        if constraint >= 0 and sizes:
            found[constraint].append((float(time), ", ".join(sizes)))
    return found
