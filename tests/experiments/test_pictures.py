"""What pictures and reports of the experiments say."""

import ast
import io
import re
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from experiments.benchmarks.table import Row, show
from experiments.crane import charts
from experiments.gripper import elastic

ROOT = Path(__file__).parents[2] / "experiments"
DRAWN = {
    "Curve",
    "Panel",
    "curves",
    "linkage",
    "animate_linkage",
    "lines",
    "signal",
    "WORDS",
    "SYMBOLS",
}
# Such as F_S, v_d, M_max, σ0, E', |U|
SYMBOL = re.compile(r"\b[A-Za-z]{1,2}_[A-Za-z]|σ\d|\b[A-Z]\'|\|[A-Za-z]\|")


class Recorder:
    """A run that keeps what it is given."""

    def __init__(self):
        self.results, self.figures, self.notes = {}, {}, []

    def add(self, name, value, unit, published=None):
        self.results[name] = value

    def figure(self, name, figure, caption):
        self.figures[name] = figure

    def arrays(self, group, dataset):
        pass

    def note(self, sentence):
        self.notes.append(sentence)


def _texts(node):
    """Texts that are arguments themselves, and not keys or parts of what is computed."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    children = {
        ast.Call: lambda n: [*n.args, *(k.value for k in n.keywords)],
        ast.JoinedStr: lambda n: n.values,
        ast.List: lambda n: n.elts,
        ast.Tuple: lambda n: n.elts,
        ast.Starred: lambda n: [n.value],
        ast.BinOp: lambda n: [n.left, n.right],
    }
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("asarray", "array"):
        return
    for child in children.get(type(node), lambda n: [])(node):
        yield from _texts(child)


def _drawn(path):
    """Every text of labels, titles and axes in a module, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        name = ""
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        elif isinstance(node, ast.Assign):
            name, node = getattr(node.targets[0], "id", ""), node.value
        if name in DRAWN:
            yield from ((node.lineno, text) for text in _texts(node))


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("*/*.py")), ids=lambda p: f"{p.parent.name}/{p.name}"
)
def test_pictures_have_words_and_no_symbols(path):
    assert [found for found in _drawn(path) if SYMBOL.search(found[1])] == []


@pytest.mark.parametrize("name", ["twin", "rigs", "_results"])
def test_simulated_motions_are_not_called_measured(name):
    """The data of `_results` are those of its user, in the example simulated as well."""
    texts = list(_drawn(ROOT / "servo" / f"{name}.py"))
    assert len(texts) > 5
    assert [found for found in texts if "measured" in found[1].lower()] == []


def test_the_load_chart_states_loads_only_where_the_crane_stands(monkeypatch):
    """Loads that are linear in the radius, which an interpolation gives back."""

    def capacity(variant, angles, start):
        radius = variant.boom * jnp.cos(angles)
        stands = (radius > 12.0) & (variant.boom < 59.0)
        load = jnp.where(stands, 2e5 - 3e3 * radius, jnp.nan)
        return {
            "capacity": load,
            "limit": jnp.zeros(len(angles), int),
            "radius": radius,
            "rope": radius,
            "stands": stands,
        }

    monkeypatch.setattr(charts, "capacity", capacity)
    monkeypatch.setattr(
        charts.jg.mechanism, "assemble", lambda system: SimpleNamespace(poses=jnp.zeros(1))
    )
    run = Recorder()
    charts.study(run, 4, 1, 30)
    loads = {name: value for name, value in run.results.items() if name.endswith("largest_load")}
    assert sorted(loads) == [f"boom_{boom}m_largest_load" for boom in (36, 44, 52)]
    for name, load in loads.items():
        radius = np.array(run.results[name.replace("largest_load", "radius")])
        assert radius.min() > 12.0
        np.testing.assert_allclose(np.array(load, float), 2e5 - 3e3 * radius, rtol=1e-12)
    assert run.notes == ["The boom of 60 m stands at none of the angles."]


def test_the_elastic_links_over_time_are_named_by_what_is_drawn():
    time = np.linspace(0.0, 0.1, 101)
    stress = SimpleNamespace(over_time=7e6 * time / 0.1)
    response = SimpleNamespace(time=time, displacement=27e-6 * time / 0.1, stress=stress)
    run = Recorder()
    settings = SimpleNamespace(shapes=("square",), densities=("material",))
    elastic._compare(run, settings, {(2, "square", "material"): response})
    figure = run.figures["over_time"]
    assert figure.get_suptitle() == "Elastic links: square, density of the material"
    displacement, stress = (" ".join(axes.get_ylabel().split()) for axes in figure.axes)
    assert displacement == "displacement of the free end's middle [µm]"
    assert stress == "largest von Mises stress [MPa]"
    tops = [axes.lines[0].get_ydata().max() for axes in figure.axes]
    np.testing.assert_allclose(tops, [27.0, 7.0])


def test_the_table_of_benchmarks_cuts_no_name_on_a_narrow_terminal():
    names = [f"forward_dynamics_derivatives_of_robot_{k}" for k in (1, 2)]
    rows = [Row(name, 1e-3, 2.0, peer="pinocchio", peer_run_s=2e-3, answer="1.0") for name in names]
    shown = io.StringIO()
    show("Rigid bodies", rows, Console(file=shown, width=60))
    assert "…" not in shown.getvalue()
    cells = [line.split("│")[1] for line in shown.getvalue().splitlines() if "│" in line]
    assert "".join(cell.strip() for cell in cells) == "".join(names)
