"""Vibration of a link in time: whole and reduced, against Newmark's method in SciPy."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg

from experiments.benchmarks.table import Row, timed
from jaxgrip import fem

SIDE, LENGTH = 7.5e-5**0.5, 0.06
CELLS = (13, 6, 6)
DURATION, STEPS = 0.137, 5480
# One factorisation per step is so slow that the peer takes only some of the steps.
FACTORED_STEPS = 60
MODES, VARIANTS = 40, 256
SWEEPS = 1e-12
NOTE = (
    f"{STEPS} steps of Newmark's method for link 2 of the gripper (468 hex8, 1911 degrees of "
    "freedom) in a rotating frame with tip loads, float64; answers are the final displacement of "
    "the tip. SciPy's SuperLU factorises the constant part once and iterates on the rest to 1e-12, "
    "as ours does."
)
FACTORED_NOTE = (
    f"The same with the matrix of every step factorised anew; measured over {FACTORED_STEPS} steps."
)
REDUCED_NOTE = (
    f"{MODES} modes with static correction; 'modes too' finds the modes in the same program. The "
    "variants of the reduced link differ in Young's modulus, damping and rates of the motion."
)


class Motion(eqx.Module):
    """A frame that swings about three axes."""

    rate: jax.Array
    acceleration: jax.Array

    def __call__(self, t):
        """Motion of the frame at a time."""
        swing = jnp.sin(2 * jnp.pi * t / DURATION)
        rate = 2 * jnp.pi / DURATION * jnp.cos(2 * jnp.pi * t / DURATION)
        return fem.FrameMotion(self.acceleration * swing, self.rate * swing, self.rate * rate)


class Amount(eqx.Module):
    """Force and moment at the tip."""

    wrench: jax.Array

    def __call__(self, t):
        """Amounts of the six patterns at a time."""
        return self.wrench * jnp.cos(20 * t)


MOTION = Motion(jnp.array([10.0, -20.0, 14.0]), jnp.array([3.0, -9.0, 2.0]))
AMOUNT = Amount(jnp.array([7.0, 2.6, -2.0, 0.04, 0.07, 0.4]))


def link(young=7.22e10, density=2700.0, damping=8e-5) -> fem.Body:
    """Link 2 of the gripper."""
    mesh = fem.box_mesh(LENGTH, SIDE, SIDE, *CELLS)
    material = fem.Isotropic(young, 0.34, density)
    return fem.Body(mesh, material, clamp="x0", damping=fem.Rayleigh(1.0, damping))


def tip_load(body: fem.Body) -> fem.Load:
    """The load at the free end."""
    return fem.Load(fem.interface_loads(body, "x1"), AMOUNT)


def tip(t, u, v):
    """What is saved: the middle of the free end."""
    return u[-25]


def ours(model: fem.Body | fem.Reduced, load: fem.Load, motion: Motion = MOTION) -> jax.Array:
    """Displacement of the tip at the end [m]."""
    ts = jnp.array([DURATION])
    dt = DURATION / STEPS
    # The peer has no stiffening by the inertia forces.
    return fem.simulate(
        model, motion, dt, t1=DURATION, load=load, ts=ts, save=tip, geometric=False
    ).saved[0]


def scipy_newmark(body: fem.Body, load: fem.Load, steps: int, factor_each: bool) -> np.ndarray:
    """The same with SciPy: displacement of the tip after some steps [m]."""
    free, h = body.free, DURATION / STEPS
    inert = fem.inertia(body)
    stiffness = fem.stiffness(body).to_scipy(free).tocsr()
    scalar = inert.mass.to_scipy()
    count = len(free)
    keep = sp.identity(free.size, format="csr")[np.flatnonzero(free)]
    mass = (keep @ sp.kron(scalar, sp.identity(3)) @ keep.T).tocsr()
    a_r, b_r = float(body.damping.mass), float(body.damping.stiffness)
    constant = ((4 / h**2 + 2 * a_r / h) * mass + (1 + 2 * b_r / h) * stiffness).tocsc()
    lu = scipy.sparse.linalg.splu(constant)
    patterns = np.concatenate([np.asarray(inert.patterns()), np.asarray(load.patterns)])
    patterns = patterns[:, free]
    times = np.arange(STEPS + 1) * h
    frames = jax.vmap(MOTION)(jnp.asarray(times))
    turning = np.asarray(jax.vmap(lambda f: f.turning)(frames))
    coriolis = np.asarray(jax.vmap(lambda f: f.coriolis)(frames))
    amounts = np.concatenate(
        [np.asarray(jax.vmap(lambda f: f.amounts)(frames)), np.asarray(jax.vmap(AMOUNT)(times))],
        axis=1,
    )

    def weighted(weight, x):
        full = np.zeros(free.shape)
        full[free] = x
        return (scalar @ (full @ weight.T))[free]

    u = v = np.zeros(free.sum())
    a = scipy.sparse.linalg.spsolve(mass.tocsc(), amounts[0] @ patterns)
    for n in range(1, steps + 1):
        inertial = mass @ (4 / h**2 * u + 4 / h * v + a)
        damped = 2 / h * u + v
        right = amounts[n] @ patterns + inertial + a_r * (mass @ damped)
        right = right + b_r * (stiffness @ damped) + weighted(coriolis[n], damped)
        both = turning[n] + 2 / h * coriolis[n]
        if factor_each:
            moving = keep @ sp.kron(scalar, both) @ keep.T
            new = scipy.sparse.linalg.splu((constant + moving).tocsc()).solve(right)
        else:
            new = lu.solve(right)
            first, change = new, np.inf
            while change > SWEEPS * np.abs(new).max():
                better = first - lu.solve(weighted(both, new))
                change = np.abs(better - new).max()
                new = better
        speed = 2 / h * (new - u) - v
        a = 4 / h**2 * (new - u) - 4 / h * v - a
        u, v = new, speed
    full = np.zeros(free.shape)
    full[free] = u
    return full[count - 25]


def whole() -> list[Row]:
    """The whole body against two methods in SciPy."""
    body = link()
    load = tip_load(body)
    first, run = timed(lambda: ours(body, load), repeats=2)
    answer = ours(body, load)
    start = time.perf_counter()
    peer = scipy_newmark(body, load, STEPS, factor_each=False)
    swept = time.perf_counter() - start
    start = time.perf_counter()
    scipy_newmark(body, load, FACTORED_STEPS, factor_each=True)
    factored = (time.perf_counter() - start) * STEPS / FACTORED_STEPS
    what = "Link 2, all degrees of freedom"
    shown = f"{1e6 * float(jnp.linalg.norm(answer)):.9f} µm"
    return [
        Row(what, run, first - run, peer="SciPy, one factor", peer_run_s=swept, answer=shown,
            peer_answer=f"{1e6 * np.linalg.norm(peer):.9f} µm", target=3.0, note=NOTE),
        Row(what + ", a factor a step", run, first - run, peer="SciPy, a factor a step",
            peer_run_s=factored, target=3.0, note=FACTORED_NOTE),
    ]  # fmt: skip


def reduced() -> list[Row]:
    """The reduced body, alone and in variants."""
    body = link()
    load = tip_load(body)
    small = fem.reduce(body, MODES, patterns=load.patterns, geometric=False)
    first, run = timed(lambda: ours(small, load))
    answer = f"{1e6 * float(jnp.linalg.norm(ours(small, load))):.9f} µm"

    @jax.jit
    def with_modes(young):
        other = link(young)
        forces = tip_load(other)
        return ours(fem.reduce(other, MODES, patterns=forces.patterns, geometric=False), forces)

    def variant(factors):
        young, damping, speed = factors
        changed = eqx.tree_at(
            lambda r: (r.structure.stiffness, r.structure.damping.stiffness, r.corrections),
            small,
            (
                young * small.structure.stiffness,
                damping * small.structure.damping.stiffness,
                small.corrections / young,
            ),
        )
        motion = Motion(speed * MOTION.rate, MOTION.acceleration)
        return ours(changed, load, motion)

    rng = np.random.default_rng(2007)
    factors = jnp.asarray(1 + 0.1 * rng.uniform(-1, 1, (VARIANTS, 3)))
    alone, alone_run = timed(lambda: with_modes(jnp.array(7.22e10)))
    # One after another, since batching small matrices gains nothing on a CPU.
    batch = jax.jit(lambda many: jax.lax.map(variant, many))
    batch_first, batch_run = timed(lambda: batch(factors), repeats=1)
    return [
        Row(f"Link 2, {MODES} modes", run, first - run, answer=answer, note=REDUCED_NOTE),
        Row(f"Link 2, {MODES} modes, modes too", alone_run, alone - alone_run, note=REDUCED_NOTE),
        Row(f"{VARIANTS} variants", batch_run, batch_first - batch_run, note=REDUCED_NOTE),
    ]


def main(peer_python: str) -> list[Row]:
    """All rows; SciPy is here already, so the peer's interpreter is not needed."""
    return whole() + reduced()
