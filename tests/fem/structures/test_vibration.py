"""Natural frequencies against closed forms and SciPy, and sparse matrices against dense ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.test_util import check_grads

import jaxgrip as jg
from experiments.benchmarks import numpy_frames
from experiments.benchmarks.large_frame import numpy_masses, numpy_tower, tower
from jaxgrip.fem.structures import _eigenpairs as eigenpairs
from jaxgrip.fem.structures import _linear as linear
from jaxgrip.fem.structures import _model as model
from jaxgrip.fem.structures import _vibration as vibration
from tests.fem.structures.models import STEEL, check_derivatives

js = jg.fem.structures
AREA, IY, IZ, LENGTH = 0.01, 4e-6, 1e-6, 3.0
SECTION = jg.fem.BeamSection(STEEL, A=AREA, Iy=IY, Iz=IZ, J=2e-6, orientation=(0.0, 1.0, 0.0))
RHO_A, EI = 7850.0 * AREA, 210e9 * IZ
LIGHT = eqx.tree_at(lambda m: m.rho, STEEL, jnp.array(1e-9))
PINNED = {"f.n0": ("x", "y", "z", "rx"), "last": ("y", "z")}


@pytest.fixture
def sparse(monkeypatch):
    """Function that has everything solved with sparse matrices."""
    return lambda: monkeypatch.setattr("jaxgrip.fem.structures._linear.LARGE", 0)


def whole(nodes, groups, named, supports, **options):
    """A structure of one part in the axes of the ground, and its poses."""
    frame = js.FramePart(nodes, groups, named)
    system = jg.mechanism.System([frame.part("f")], [], options.pop("ground", {}))
    structure = js.Structure(system, {"f": frame}, supports=supports, **options)
    return structure, jg.mechanism.start(system)


def straight(count, supports, *, lines=1, section=SECTION, more=()):
    """Beams along x from node 0 to `count`, in one line or several that have nothing in common.

    Supports are of nodes `f.n0`, `f.n1`, ..., or of the `last` one.
    """
    nodes = np.zeros((lines, count + 1, 3))
    nodes[..., 0] = np.linspace(0.0, LENGTH, count + 1)
    nodes[..., 2] = np.arange(lines)[:, None]
    number = np.arange(nodes.size // 3).reshape(lines, count + 1)
    ends = np.stack([number[:, :-1], number[:, 1:]], axis=-1).reshape(-1, 2)
    named = {f"n{k}": (k,) for k in number.ravel()}
    held = {place.replace("last", f"f.n{count}"): how for place, how in supports.items()}
    return whole(nodes.reshape(-1, 3), [js.Beams(ends, section), *more], named, held)


def wave(n, *, tension=0.0, second=IZ):
    """Of a pinned beam with rotary inertia: ρ A (1 + r² k²) ω² = E I k⁴ + N k², k = n π / L."""
    k = n * np.pi / LENGTH
    return np.sqrt((210e9 * second * k**4 + tension * k**2) / RHO_A / (1 + second / AREA * k**2))


def test_pinned_beam():
    """Frequencies converge with the fourth order; modes are waves with modal mass 1."""
    errors = []
    for count in (4, 8):
        structure, poses = straight(count, PINNED)
        found = js.modes(structure, poses, 4)
        exact = np.array([wave(n, second=i) for n in (1, 2) for i in (IZ, IY)])
        errors.append(found.frequency / exact - 1)
    assert np.all(errors[-1] > 0)
    np.testing.assert_allclose(np.log2(errors[0] / errors[1]), 4.0, atol=0.2)
    shape, k = np.asarray(found.shape)[0], np.pi / LENGTH
    amount = np.sqrt(2 / RHO_A / LENGTH / (1 + IZ / AREA * k**2))
    expected = amount * np.sin(np.pi * np.arange(9) / 8)
    np.testing.assert_allclose(np.abs(shape[:, 1]), expected, atol=1e-4 * amount)
    np.testing.assert_allclose(np.abs(shape[0, 5]), amount * k, rtol=1e-3)


@pytest.mark.long
def test_textbook_beams(sparse):
    """Blevins 1979, tables 8-1 and 8-8: β L of beams clamped, free and on simple supports."""
    count = 12
    clamped, pinned = "all", ("y", "z")
    slender = jg.fem.BeamSection(
        STEEL, A=AREA, Iy=IZ, Iz=IZ / 1e4, J=2e-6, orientation=(0.0, 1.0, 0.0)
    )
    ends = [[k * (count + 1) + j for j in (0, count // 2, count)] for k in range(5)]
    held = {
        ends[0][0]: clamped,
        ends[1][0]: clamped,
        ends[1][2]: clamped,
        ends[2][0]: clamped,
        ends[2][2]: pinned,
        ends[3][0]: PINNED["f.n0"],
        ends[3][1]: pinned,
        ends[3][2]: pinned,
    }
    held = {f"f.n{node}": how for node, how in held.items()}
    structure, poses = straight(count, held, lines=5, section=slender)
    roots = [
        *(1.875104069, 4.694091133, 7.854757438),
        *(4.730040745, 7.853204624),
        *(3.926602312, 7.068582745),
        # Two spans of half the length: antisymmetric as pinned, symmetric as clamped and pinned.
        *(2 * np.pi, 2 * 3.926602312),
        # Free.
        *(4.730040745, 7.853204624),
    ]
    expected = np.square(np.sort(roots)) * np.sqrt(EI / 1e4 / RHO_A) / LENGTH**2
    # Cubic elements of length h raise ω of a uniform beam, however held, by (β h)⁴ / 1440.
    error = (np.sort(roots) / count) ** 4 / 1440
    dense = js.modes(structure, poses, 17)
    sparse()
    for found in (dense, js.modes(structure, poses, 17)):
        assert np.all(found.frequency[:6] == 0)
        np.testing.assert_allclose(found.frequency[6:] / expected - 1, error, rtol=0.05, atol=2e-8)
        # The free beam moves as a rigid body: a straight line of nodes stays one.
        x = np.asarray(found.shape)[:6, :, :3]
        np.testing.assert_allclose(x[:, : ends[4][0]], 0.0, atol=1e-6 * np.abs(x).max())
        bent = np.diff(x[:, ends[4][0] :], n=2, axis=1)
        np.testing.assert_allclose(bent, 0.0, atol=1e-6 * np.abs(x).max())
    np.testing.assert_allclose(found.frequency, dense.frequency, rtol=1e-9)


@pytest.mark.soak
def test_equal_frequencies(sparse):
    """Three like cantilevers of a round section have six equal ones, of which only the sum changes
    smoothly: each pair's is that of the two directions.
    """

    def found(x):
        section = jg.fem.BeamSection(
            STEEL, A=AREA, Iy=IZ * x, Iz=IZ, J=2 * IZ, orientation=(0.0, 1.0, 0.0)
        )
        held = {f"f.n{k}": "all" for k in (0, 4, 8)}
        return js.modes(*straight(3, held, lines=3, section=section), 7)

    def results(x):
        modes = found(x)
        return modes.frequency[:6].sum(), modes.shape

    for large in (False, True):
        if large:
            sparse()
        value, (slope, shapes) = found(1.0).frequency, jax.jit(jax.jacfwd(results))(1.0)
        single = 1.875104069**2 * np.sqrt(EI / RHO_A) / LENGTH**2
        np.testing.assert_allclose(value[:6], value[0], rtol=1e-10)
        np.testing.assert_allclose(value[0], single, rtol=1e-3)
        assert value[6] > 6 * value[0]
        np.testing.assert_allclose(slope, 3 * value[0] / 2, rtol=2e-3)
        assert np.isnan(shapes[:6]).any()
        back = jax.grad(lambda x: results(x)[0])(1.0)
        np.testing.assert_allclose(back, slope, rtol=1e-9)


def test_chains():
    """Bars with consistent mass, and two masses on springs and a rope that is heavy, too.

    Bars of length l: ω² = 6 E / (ρ l²) (1 - cos k l) / (2 + cos k l) with k = (n - 1/2) π / L.
    """
    count, k, m, rope = 6, 3e6, 20.0, 4.0
    nodes = np.zeros((count + 4, 3))
    nodes[: count + 1, 0] = np.linspace(0.0, LENGTH, count + 1)
    nodes[count + 1 :] = [[0, 0, 1], [1, 0, 1], [2, 0, 1]]
    a, b, c = range(count + 1, count + 4)
    groups = [
        js.Bars([(i, i + 1) for i in range(count)], js.Bar(STEEL, AREA)),
        js.Bars([(a, b), (b, c)], js.Spring(k)),
        js.PointMasses([b, c], m),
    ]
    named = {"roots": (0, a), "bars": range(1, count + 1), "masses": (b, c), "end": (c,)}
    named = {name: tuple(own) for name, own in named.items()}
    held = {"f.roots": "pinned", "f.bars": ("y", "z"), "f.masses": ("y",)}
    structure, poses = whole(
        nodes,
        groups,
        named,
        held,
        ground={"far": [[4.0, 0, 1]]},
        ties={"rope": js.Tie(js.Rope(2 * k, rope / 2), "ground.far", "f.end")},
    )
    found = js.frequencies(structure, poses, count + 7)
    step = LENGTH / count
    angle = (np.arange(1, count + 1) - 0.5) * np.pi / count
    bars = 6 * 210e9 / 7850 / step**2 * (1 - np.cos(angle)) / (2 + np.cos(angle))
    two = scipy.linalg.eigvalsh([[2 * k, -k], [-k, 2 * k]], np.diag([m, m + rope / 3]))
    # Nothing resists the two masses along z.
    expected = [0, 0, *np.sort(np.sqrt([*bars, *two])), *[np.inf] * 3]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_free_structure_has_six_motions_without_force():
    found = js.modes(*straight(2, {}), 7)
    np.testing.assert_array_equal(found.frequency == 0, np.arange(7) < 6)
    assert np.isfinite(found.shape).all()


@pytest.mark.long
def test_load_along_a_beam():
    """ω² = ω0² (1 - P / P_cr), and a beam that is rather a string."""
    critical = np.pi**2 * EI / LENGTH**2
    structure, poses = straight(8, PINNED)

    def along(share):
        return js.NodalForce("f.n8", (share * critical, 0.0, 0.0))

    # Of the elements themselves: their modes of buckling and vibration differ by the fourth power
    # of the length, which changes ω² by the eighth.
    factors = js.buckling(structure, poses, along(-1.0), count=2, throw=False).factors
    still = js.frequencies(structure, poses, 2)
    for share in (-0.99, -0.5, 0.5):
        found = js.frequencies(structure, poses, 2, along(share))
        exact = still**2 * (1 + share / np.asarray(factors))
        np.testing.assert_allclose(found**2, exact, rtol=1e-6)
    exact = [wave(1, tension=200.0 * critical, second=i) for i in (IZ, IY)]
    np.testing.assert_allclose(js.frequencies(structure, poses, 2, along(200.0)), exact, rtol=2e-4)
    crushing = js.NodalForce("f.n8", (-1.01 * critical, 0.0, 0.0))
    with pytest.raises(js.StructureError, match="The loads are beyond buckling"):
        js.modes(structure, poses, 2, crushing)


@pytest.mark.soak
def test_spinning_mass_on_a_weightless_beam():
    """Mass m at the end of a cantilever that turns: ω² = k / m, in the plane less Ω².

    k is the stiffness under the tension N = m Ω² L: N κ / (κ L - tanh κ L), κ² = N / (E I).
    """
    mass, rate = 40.0, 60.0
    light = eqx.tree_at(lambda s: s.material, SECTION, LIGHT)
    more = [js.PointMasses([8], mass)]
    structure, poses = straight(8, {"f.n0": "all"}, section=light, more=more)
    found = js.frequencies(structure, poses, 2, js.Inertia((0.0, 0.0, 0.0), rate=rate))
    tension = mass * rate**2 * LENGTH
    kappa = np.sqrt(tension / 210e9 / np.array([IZ, IY]))
    stiff = tension * kappa / (kappa * LENGTH - np.tanh(kappa * LENGTH))
    # About z: the plane is that of y, which bends by Iz.
    exact = np.sqrt(stiff / mass - np.array([rate**2, 0.0]))
    np.testing.assert_allclose(found, np.sort(exact), rtol=1e-4)


def test_portal():
    """Sway of a clamped portal without mass but that of its girder: Chopra 2012, section 1.3.

    k = 24 E I / h³ (12 ρ + 1) / (12 ρ + 4) with ρ = I_girder h / (2 L I) and hardly any stretch.
    """
    h, length, mass, girder = 3.0, 4.0, 500.0, 0.7 * IZ

    def section(second):
        """Soft in the plane of the portal only."""
        large = 1e3 * IZ
        return jg.fem.BeamSection(
            LIGHT, A=10.0, Iy=second, Iz=large, J=large, orientation=(0, 1.0, 0)
        )

    nodes = [[0, 0, 0], [0, 0, h], [length, 0, h], [length, 0, 0]]
    groups = [
        js.Beams([(0, 1), (3, 2)], section(IZ)),
        js.Beams([(1, 2)], section(girder)),
        js.PointMasses([1, 2], mass / 2),
    ]
    held = {"f.left": "all", "f.right": "all"}
    structure, poses = whole(nodes, groups, {"left": (0,), "right": (3,)}, held)
    ratio = 12 * girder * h / (2 * length * IZ)
    stiff = 24 * 210e9 * IZ / h**3 * (ratio + 1) / (ratio + 4)
    found = js.modes(structure, poses, 1)
    np.testing.assert_allclose(found.frequency[0], np.sqrt(stiff / mass), rtol=1e-4)
    sway = np.abs(np.asarray(found.shape)[0, 1:3, 0])
    np.testing.assert_allclose(sway, 1 / np.sqrt(mass), rtol=1e-4)


def arm(x):
    """A crooked arm on a hinge, held by a rope, with a mass: numbers of all kinds."""
    nodes = jnp.array([[0, -1.0, 0], [0, 1, 0], [0, 0, 0.2], [2, 0.1, 0.5], [4, 0, 0]])
    nodes = nodes.at[4, 0].mul(x[0])
    steel = jg.fem.Isotropic(210e9 * x[1], 0.3, 7850.0 * x[2])
    section = jg.fem.BeamSection(
        steel, A=AREA, Iy=IY * x[3], Iz=IZ, J=2e-6, orientation=(0.1, 1.0, 0.3)
    )
    groups = [
        js.Beams([(1, 2), (2, 3), (3, 4)], section),
        js.Beams([(0, 2)], section, jg.fem.Timoshenko(), released=((), ("My",))),
        js.PointMasses([4], 20.0 * x[4]),
    ]
    frame = js.FramePart(nodes, groups, {"pins": (0, 1), "tip": (4,)})
    part = jg.mechanism.Part("f", {"pins": nodes[:2], "tip": nodes[4:]})
    system = jg.mechanism.System(
        [part],
        [jg.mechanism.Connection("pin", jg.joints.Hinge(), "ground.pins", "f.pins")],
        {"pins": [[0, -1, 0], [0, 1, 0]], "top": [[0, 0, 3.0]]},
    )
    ties = {"stay": js.Tie(js.Rope(2e6 * x[5], 1.0), "ground.top", "f.tip")}
    return js.Structure(system, {"f": frame}, ties=ties), jg.mechanism.start(system)


AT = jnp.array([1.0, 1.1, 0.9, 1.2, 0.8, 1.1])


@pytest.mark.long
def test_against_scipy():
    """Our own matrices, without what the equations forbid, in SciPy's dense eigensolver."""
    structure, poses = arm(AT)
    found = js.modes(structure, poses, structure.degrees_of_freedom)
    matrices = jax.jit(lambda s: vibration.matrices(s, poses, model.elements(s), (), None, False))(
        structure
    )
    stiffness, mass, equations = map(np.asarray, matrices)
    free = scipy.linalg.null_space(equations)
    inverse = scipy.linalg.eigh(free.T @ mass @ free, free.T @ stiffness @ free)[0][::-1]
    inverse = np.pad(inverse, (0, structure.degrees_of_freedom - len(inverse)))
    np.testing.assert_allclose(found.frequency**-2.0, inverse, rtol=1e-9, atol=1e-12 * inverse[0])
    # All nodes have all degrees of freedom, and the part has the axes of the ground.
    shapes = np.asarray(found.shape).reshape(len(found.shape), -1)[:8]
    np.testing.assert_allclose(equations @ shapes.T, 0.0, atol=1e-9)
    np.testing.assert_allclose(shapes @ mass @ shapes.T, np.eye(8), atol=1e-9)
    squared = np.diag(np.square(found.frequency[:8]))
    np.testing.assert_allclose(shapes @ stiffness @ shapes.T, squared, atol=1e-9 * squared.max())
    # Nodes that follow the others as they do at rest can only stiffen: by NumPy the same.
    condensed = js.condense(structure)
    kept, others = np.flatnonzero(condensed.kept), np.flatnonzero(~condensed.kept)
    follow = np.eye(structure.degrees_of_freedom)[:, kept]
    follow[others] = -np.linalg.solve(
        stiffness[np.ix_(others, others)], stiffness[np.ix_(others, kept)]
    )
    free = follow @ scipy.linalg.null_space(equations[:, kept])
    squared = scipy.linalg.eigvalsh(free.T @ stiffness @ free, free.T @ mass @ free)[:3]
    parts = js.frequencies(condensed, poses, 3)
    np.testing.assert_allclose(parts, np.sqrt(squared), rtol=1e-9)
    assert np.all(parts > found.frequency[:3] * (1 - 1e-9))
    again = vibration._modes._cached._cache_size()
    js.modes(*arm(1.05 * AT), structure.degrees_of_freedom)
    assert vibration._modes._cached._cache_size() == again


@pytest.mark.long
def test_derivatives_of_a_loaded_structure():
    """By a place of a node, a section, the load and the length of a rope, of frequencies and modes.

    One program gives values and derivatives, since compiling takes nearly all of the time.
    """

    def stayed(x):
        nodes = jnp.array([[0, 0, 0], [1.5, 0.1, 0.2], [3.0, 0, 0]]).at[2, 0].mul(x[0])
        section = eqx.tree_at(lambda s: s.Iy, SECTION, IY * x[1])
        frame = js.FramePart(nodes, [js.Beams([(0, 1), (1, 2)], section)], {"root": 0, "tip": 2})
        top = jnp.array([[0.0, 1.0, 2.0]]) * x[3]
        system = jg.mechanism.System([frame.part("f")], [], {"top": top})
        ties = {"stay": js.Tie(js.Rope(2e5, 1.0), "ground.top", "f.tip")}
        held = {"f.root": "all"}
        structure = js.Structure(system, {"f": frame}, supports=held, ties=ties)
        load = js.NodalForce("f.tip", (-1e4 * x[2], 0.0, -1e3))
        found = js.modes(structure, jg.mechanism.start(system), 2, load)
        tip = found.shape[:, 2, :3]
        # Whatever the sign of a mode.
        return jnp.concatenate([found.frequency, (tip[:, :, None] * tip[:, None]).reshape(-1)])

    at, step = jnp.array([1.0, 1.1, 0.9, 1.05]), 5e-3
    both = jax.jit(lambda x, way: jax.jvp(stayed, (x,), (way,)))
    for way in jnp.eye(4):

        def difference(h, way=way):
            return (both(at + h * way, way)[0] - both(at - h * way, way)[0]) / (2 * h)

        expected = (4 * difference(step / 2) - difference(step)) / 3
        value, found = both(at, way)
        assert np.all(value[:2] > 0)
        for part in (slice(0, 2), slice(2, None)):
            scale = np.abs(expected[part]).max()
            np.testing.assert_allclose(found[part], expected[part], rtol=0, atol=1e-6 * scale)


def test_derivatives_of_eigenpairs():
    """With a constraint that changes too, in both modes."""

    def pairs(x):
        k = jnp.diag(jnp.array([2.0, 3.0, 5.0, 7.0])) + 0.3 * jnp.outer(x, x)
        m = jnp.diag(1 + x**2) + 0.1 * jnp.outer(x, jnp.ones(4)) + 0.1 * jnp.outer(jnp.ones(4), x)
        found = eigenpairs.lowest((k, -m, jnp.sin(x)[None] + 0.5), 2)
        shape = found.shape
        return found.value, shape[:, :, None] * shape[:, None], found.multiplier * shape[:, :1]

    check_grads(jax.jit(pairs), (jnp.array([0.5, -0.2, 0.3, 0.8]),), 1, rtol=1e-6, atol=1e-7)


@pytest.mark.soak
def test_derivatives(sparse):
    load = js.NodalForce("f.tip", (0.0, 0.0, -2e4))
    results = []
    for large in (False, True):
        if large:
            sparse()

        def results_of(x, large=large):
            found = js.modes(*arm(x), 3, load)
            if large:
                return found.frequency
            tip = found.shape[:2, 4, :3] / jnp.sign(found.shape[:2, 4, 2])[:, None]
            return jnp.concatenate([found.frequency, 10 * tip.reshape(-1)])

        check_derivatives(results_of, AT, 1e-5)
        results.append(js.modes(*arm(AT), 3, load))
    np.testing.assert_allclose(results[1].frequency, results[0].frequency, rtol=1e-9)
    a, b = (np.asarray(x.shape).reshape(3, -1) for x in results)
    signs = np.sign(np.sum(a * b, axis=1))[:, None]
    np.testing.assert_allclose(a * signs, b, rtol=0, atol=1e-6 * np.abs(b).max())


@pytest.mark.long
def test_sentences():
    structure, poses = straight(2, {"f.n0": "all"})
    for k in (0, 19, True):
        with pytest.raises(ValueError, match=f"modes is {k}; give a whole number from 1 to 18"):
            js.modes(structure, poses, k)
    push = js.NodalForce("f.n2", (0, 0, 1.0))
    with pytest.raises(ValueError, match="condensed structure has no modes under loads"):
        js.modes(js.condense(structure, push), poses, 1, push)
    with pytest.raises(js.StructureError, match="can still move"):
        js.modes(*straight(2, {}), 1, push)
    nodes, bars = [[0, 0, 0], [1, 0, 0]], [js.Bars([(0, 1)], js.Spring(1.0))]
    massless = whole(nodes, bars, {"a": (0,), "b": (1,)}, {"f.a": "pinned"})
    with pytest.raises(js.StructureError, match=r"no mass\? Part 'f' can rotate about the axis"):
        js.modes(*massless, 1)


def test_a_large_frame_against_another_program():
    """Euler-Bernoulli beams of NumPy, their frequencies by SciPy."""
    structure, poses = tower(4, 9)
    assert linear.is_large(structure.degrees_of_freedom)
    still, none = (np.zeros((1, 3)), np.eye(3)[None], np.zeros(3), -1), np.zeros(3)
    frame = numpy_tower(structure)
    stiffness, mass = (
        numpy_frames.equations(frame._replace(local=local), *still, none)[0].toarray()
        for local in (frame.local, numpy_masses(structure))
    )
    squared = scipy.linalg.eigh(stiffness, mass, eigvals_only=True, subset_by_index=(0, 7))
    found = js.frequencies(structure, poses, 8)
    np.testing.assert_allclose(found, np.sqrt(squared), rtol=1e-9)


@pytest.mark.long
def test_chains_of_thousands_of_beams():
    """Rounding grows with the fourth power of their number; what it hides is no rigid motion."""
    exact = 1.8751040687**2 * np.sqrt(EI / RHO_A) / LENGTH**2
    structure, poses = straight(200, {"f.n0": "all"})
    np.testing.assert_allclose(js.frequencies(structure, poses, 1), exact, rtol=1e-3)
    structure, poses = straight(3000, {"f.n0": "all"})
    with pytest.raises(js.StructureError, match="Rounding hides the lowest frequencies"):
        js.frequencies(structure, poses, 1)
