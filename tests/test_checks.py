"""Sentences on arrays say where the trouble is, and stay short."""

import ast
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip import checks

PACKAGE = Path(jg.__file__).parent


def _spoilt(shape, place, value):
    x = np.ones(shape)
    x[place] = value
    return x


@pytest.mark.parametrize(
    ("check", "value", "sentence"),
    [
        (
            checks.numbers,
            _spoilt((5000, 3), (4321, 2), np.nan),
            "not finite: nan at [4321, 2] of an array (5000, 3).",
        ),
        (checks.numbers, [1.0, np.inf], "not finite: [1.0, inf]."),
        (checks.numbers, np.nan, "x is not finite: nan."),
        (
            checks.positive,
            _spoilt((4, 4), (0, 1), -3.0),
            "is -3 at [0, 1] of an array (4, 4); it must be positive.",
        ),
        (checks.positive, 0.0, "x is 0; it must be positive."),
        (
            checks.non_negative,
            _spoilt(9999, 7, -1.0),
            "is -1 at [7] of an array (9999,); it must not be negative.",
        ),
        (checks.numbers, "x" * 5000, "xxx'; it must be a number or an array of numbers"),
        (checks.numbers, ["1"] * 5000, "x is ['1', '1', '1', '1', ...]; it must be a number"),
        (checks.numbers, np.full(5000, "a"), "x is an array (5000,); it must be a number"),
        (checks.numbers, [[1.0], [1.0, 2.0]], "x is [[1.0], [1.0, 2.0]]; it must be a number"),
        (checks.numbers, 10**400, "x is 1000"),
        # NumPy would take the real part.
        (checks.numbers, np.ones(3) + 1j, "it must be a number or an array of numbers"),
        (checks.numbers, True, "is True; it must be a number or an array of numbers"),
        (checks.numbers, jnp.ones(5000) > 0, "is an array (5000,); it must be a number"),
    ],
)
def test_a_sentence_names_the_first_bad_entry(check, value, sentence):
    with pytest.raises(ValueError, match="x is") as caught:
        check("x", value)
    assert sentence in str(caught.value)
    assert len(str(caught.value)) < 200


def test_values_are_shown_whole_when_they_are_short():
    assert checks.brief(jnp.arange(3)) == "[0, 1, 2]"
    assert checks.brief("zoh") == "'zoh'"
    assert checks.brief(jnp.arange(20.0)) == "an array (20,) from 0 to 19"
    assert len(checks.brief(list(range(10**5)))) < 100


def test_of_many_names_a_few_are_listed():
    assert checks.near("pin", ["pim", "a"]) == "perhaps 'pim'?"
    assert checks.near("x", ["a", "b"]) == "there are a, b."
    listed = checks.near("x", [f"name {k}" for k in range(5000)])
    assert listed.endswith("name 11 and 4988 more.")


@pytest.mark.parametrize("load", [_spoilt((3000, 3), (1234, 1), np.nan)])
def test_the_load_of_a_solid_is_not_printed(load):
    """It was: 510 kB for one NaN."""
    mesh = jg.fem.box_mesh(1.0, 0.1, 0.1, 119, 4, 4)
    body = jg.fem.Body(mesh, jg.fem.Isotropic(2e11, 0.3, 7800.0), clamp="x0")
    assert mesh.nodes.shape == load.shape
    with pytest.raises(
        ValueError, match=r"is not finite: nan at \[1234, 1\] of an array \(3000, 3"
    ):
        jg.fem.solve_static(body, load)


def test_no_sentence_of_the_package_shows_a_whole_array():
    """An f-string shows a list or a value by `checks.brief`, an array by its first bad entry."""
    found = []
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FormattedValue):
                shown = ast.unparse(node.value)
                whole = "tolist()" in shown and "[" not in shown
                anything = node.conversion == ord("r") and shown in ANYTHING
                if whole or anything:
                    found.append(f"{file.relative_to(PACKAGE)}:{node.lineno}: {shown}")
    assert not found


# Arguments that may be whatever a caller gives.
ANYTHING = {
    *("value", "start", "each", "joint", "element", "section", "load", "loads", "ends", "group"),
    *("frame", "tie", "held", "how", "count", "leaf", "scale", "method", "scheme", "mode", "form"),
}


@pytest.mark.parametrize("value", [0.0, np.zeros(3), None, "sin"])
def test_what_is_no_function(value):
    wanted = r"The torque is .*; it must be a function of \(t, q\) that returns an"
    with pytest.raises(ValueError, match=wanted):
        checks.check_function("torque", value, (3,), t=jnp.zeros(()), q=jnp.zeros(3))


def test_rooms_that_have_moved_are_found_with_a_warning():
    for old, new in {"assembly": jg.mechanism, "mechanisms": jg.mechanism.loops}.items():
        with pytest.warns(DeprecationWarning, match=f"jaxgrip.{old} is {new.__name__} now"):
            assert getattr(jg, old) is new
