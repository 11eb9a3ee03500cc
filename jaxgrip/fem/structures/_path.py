"""Path following of the equilibrium under growing loads, by arc length.

Steps are along the path, so limit points are passed. A step is accepted only if equilibrium and
strains are near the prediction of the tangent, so that no part of the path is skipped. A structure
that is a mechanism without load first settles under a small load factor.

Source: Riks 1979; Crisfield 1981.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxgrip.fem.element_sum import of
from jaxgrip.fem.structures import _linear as linear
from jaxgrip.fem.structures._balance import Balance, Configuration, Problem, balance
from jaxgrip.fem.structures._results import SINGULAR
from jaxgrip.solve.newton import pick

# Ends of a path.
GOING, REACHED, LIMIT, BUCKLED, LOOSE, ADRIFT, STUCK, FULL = range(8)
# Phases: find a tangent, correct a step, settle.
_TANGENT, _CORRECT, _SETTLE = range(3)

# Settling of a mechanism: load factor; largest rotation of an element per iteration [rad];
# damping relative to the stiffness, initial and smallest; rotation below which damping may end.
FIRST_FACTOR, SETTLING, DAMPING, DAMPED, CALM = 0.01, 0.3, 1e-2, 1e-10, 1e-3
# Deviation of equilibrium and strains from the tangent, relative to the step and to the change of
# the strains: allowed, and target. Strains that change less than COUNTS of the largest count less.
DRIFT, AIM, COUNTS = 0.3, 0.1, 0.1
# Displacement of a node in the first, exploratory step; largest growth factor of later steps.
FEELER, GROWTH = 1e-4, 4.0
CORRECTIONS = 12
# A step that covers this share of the remaining loads is made to reach the target.
NEARLY = 0.7
# Relative to the path length: tolerance of an equilibrium, and the one accepted if rounding
# prevents more; relative to the size of the structure, or in rad: rounding.
SHARP, BLUNT, ROUNDING = 1e-8, 1e-6, 1e-13
# Relative to the path length: accuracy of a loss of stability, and shortest step. Load slope below
# which a limit point is found, and above which a loss of stability is buckling.
LOCATED, SHORTEST, FLAT, LEVEL = 1e-6, 1e-9, 1e-5, 0.02


class Direction(NamedTuple):
    """A direction in degrees of freedom (n,), multipliers (e,) and load factor."""

    dofs: Float[Array, " n"]
    multipliers: Float[Array, " e"]
    load_factor: Float[Array, ""]


class Points(NamedTuple):
    """Equilibria in order, NaN after the last; whether each is `stable`, and a `limit` point."""

    configuration: Configuration
    stable: Bool[Array, " p"]
    limit: Bool[Array, " p"]


class Found(NamedTuple):
    """A path.

    `configuration` at its end, with the `stiffness` and the constraint Jacobian `slope` there;
    `code`: how it ends; `scale` of the degrees of freedom; `held`: whether the unloaded structure
    is stable; `iterations`; recorded `points` and their `count`.
    """

    configuration: Configuration
    code: Int[Array, ""]
    iterations: Int[Array, ""]
    scale: Float[Array, " n"]
    held: Bool[Array, ""]
    stiffness: Float[Array, "n n"]
    slope: Float[Array, "e n"]
    points: Points
    count: Int[Array, ""]


class _State(NamedTuple):
    """State of the iteration.

    - `base`: last equilibrium, with the `tangent`, the `taut` lines, the `stresses`, their
      `rates` along the tangent and the path `length` there.
    - `here`: iterate towards the next equilibrium, a `step` away; `guess` of its stresses; `hits`:
      whether it has the target loads; `drift` from the tangent; size of the `last` of its
      `corrections`; `damping`.
    - `stride`: next step if there is no limit point; `ahead`: distance to a point known to be past
      a limit point, with the slope `beyond` of the loads there.
    - `unit`: scale of displacements in the path length; 0 before the first tangent.
    """

    phase: Int[Array, ""]
    base: Configuration
    tangent: Direction
    taut: Bool[Array, " l"]
    stresses: tuple[Array, ...]
    rates: tuple[Array, ...]
    length: Float[Array, ""]
    here: Configuration
    guess: tuple[Array, ...]
    step: Float[Array, ""]
    hits: Bool[Array, ""]
    drift: Float[Array, ""]
    last: Float[Array, ""]
    corrections: Int[Array, ""]
    damping: Float[Array, ""]
    stride: Float[Array, ""]
    ahead: Float[Array, ""]
    beyond: Float[Array, ""]
    unit: Float[Array, ""]
    found: Found


class _Now(NamedTuple):
    """Results of one iteration: balance, Newton correction, rate with the loads, stability."""

    taut: Bool[Array, " l"]
    balance: Balance
    scale: Float[Array, " n"]
    correction: Direction
    rate: Direction
    definite: Bool[Array, ""]


def follow(
    problem: Problem,
    target: Float[Array, ""],
    reach: Float[Array, ""],
    budget: int,
    *,
    points: int = 0,
) -> Found:
    """Follow the equilibrium from zero load to a load factor.

    **Arguments:** `problem`; `target` load factor; `reach`: largest displacement of a node per
    step, relative to the size of the structure, and largest rotation [rad]; `budget` of
    iterations; `points`: number of points to record. If positive, the path continues beyond a
    loss of stability, else it ends there.
    """
    weights = _weights(problem)
    through = points > 0

    def product(a: Direction, b: Direction, unit: Array) -> Array:
        return jnp.sum(weights**2 * a.dofs * b.dofs) / unit**2 + a.load_factor * b.load_factor

    def size(direction: Direction) -> Array:
        return jnp.max(jnp.abs(weights * direction.dofs), initial=0.0)

    def newton(state: _State) -> _Now:
        taut = jnp.where(state.phase == _TANGENT, state.taut, problem.taut(state.here))
        here = balance(problem, state.here, taut, state.guess)
        fresh = state.found.iterations == 0
        scale = jnp.where(fresh, linear.scales(here.stiffness, here.slope)[0], state.found.scale)
        damping = jnp.where(state.phase == _SETTLE, state.damping, 0.0)
        # Along the path a loss of stability is a change of sign, independent of the scale.
        least = jnp.where(state.phase == _CORRECT, 0.0, SINGULAR) - damping
        factor = linear.saddle(here.stiffness, here.slope, scale, damping)
        n, still = len(scale), jnp.zeros(problem.rows)
        right = jnp.concatenate([here.residual, here.violation])
        load = jnp.concatenate([here.load_derivative, still])
        both = factor.solve(-jnp.stack([right, load], axis=1))
        return _Now(
            taut,
            here,
            scale,
            Direction(both[:n, 0], both[n:, 0], jnp.zeros(())),
            Direction(both[:n, 1], both[n:, 1], jnp.ones(())),
            linear.definite(here.stiffness, here.slope, scale, least),
        )

    def body(state: _State) -> _State:
        starting, settling = state.phase == _TANGENT, state.phase == _SETTLE
        correcting = state.phase == _CORRECT
        now = newton(state)
        old, step, found = state.tangent, state.step, state.found

        # Tangent here, and correction normal to the tangent at the base.
        first = state.unit == 0
        own = jnp.sqrt(jnp.sum((weights * now.rate.dofs) ** 2))
        unit = jnp.where(first, jnp.where(own > ROUNDING, own, 1.0), state.unit)
        along = product(old, now.rate, unit)
        factor = 1 / jnp.sqrt(product(now.rate, now.rate, unit))
        flat = factor < FLAT
        tangent = _times(jnp.where(along < 0, -factor, factor), now.rate)
        across = -product(old, now.correction, unit) / along
        across = jnp.where(correcting & ~state.hits, across, 0.0)
        change = _sum(now.correction, _times(across, now.rate))
        norm = jnp.sqrt(product(change, change, unit))
        far = jnp.maximum(size(change), _largest_rotation(problem, change.dofs))
        finite = jnp.isfinite(norm)

        # Accept, correct or reject the step.
        length = state.length + step
        drift = state.drift + norm
        off = jnp.maximum(drift / step, _strayed(problem, state, now.balance))
        noise = norm <= jnp.maximum(BLUNT * length, ROUNDING / unit)
        sharp = jnp.where(state.hits, 1e-3 * SHARP, SHARP)
        done = (norm <= sharp * length) | (noise & (norm > state.last / 2))
        bad = ~finite | ((drift > DRIFT * step) & ~noise)
        bad |= (state.corrections > 0) & (norm > 0.7 * state.last) & ~noise
        bad |= ~done & (state.corrections >= CORRECTIONS)
        bad |= done & ((off > DRIFT) | (product(tangent, old, unit) < 0.3))
        bad |= (
            done
            & ~state.hits
            & ((state.here.load_factor - target) * (state.base.load_factor - target) < 0)
        )
        falls = (tangent.load_factor > 0) != (old.load_factor > 0)
        lost = falls if through else falls | ~now.definite
        there = (falls & flat) | (step < LOCATED * length)
        bad, done = correcting & bad, correcting & done & ~bad
        limit, past = done & lost & there, done & lost & ~there
        accept = done & ~(past if through else lost)
        again = correcting & ~bad & ~done
        # Lines that go slack or taut kink the path: retry with the tangent beyond the kink.
        switch = bad & jnp.any(now.taut != state.taut) & finite

        # Continue or end settling.
        fresh = starting & first & (state.base.load_factor == 0) & ~now.definite
        good = settling & now.definite & finite
        free = state.damping == 0
        settled = good & free & (far < SHARP)
        loose = settling & ~good & free & (state.last < BLUNT)
        part = jnp.minimum(1.0, SETTLING / jnp.maximum(far, 1e-300))
        calmer = jnp.maximum(state.damping / 8, jnp.where(far < CALM, 0.0, DAMPED))
        calmer = jnp.where(calmer < DAMPED, 0.0, calmer)
        calmer = jnp.where((far < state.last) | (far < CALM), calmer, 2 * state.damping)
        damping = jnp.where(good, calmer, jnp.maximum(8 * state.damping, DAMPED))
        part = jnp.where(settling, part, 1.0)
        change = change._replace(dofs=part * change.dofs)

        # Next step: exploratory, towards a limit point, from a new base, or shortened.
        whole = jnp.abs((target - state.base.load_factor) / tangent.load_factor)
        feeler = jnp.minimum(FEELER / jnp.maximum(size(tangent), 1e-300), whole)
        growth = jnp.where(state.stride == 0, jnp.inf, GROWTH)
        grown = step * jnp.clip(AIM / jnp.maximum(off, 1e-12), 0.5, growth)
        ahead = jnp.where(past, step, jnp.where(accept, state.ahead - step, state.ahead))
        ahead = jnp.where(limit, jnp.inf, ahead)
        beyond = jnp.where(past, jnp.where(falls, tangent.load_factor, jnp.inf), state.beyond)
        near = past | (accept & jnp.isfinite(ahead))
        # To zero load slope by the secant, else by bisection.
        slope = jnp.where(past, old.load_factor, tangent.load_factor)
        chord = jnp.where(beyond * slope < 0, slope / (slope - beyond), 0.5)
        step = jnp.where(bad, step / 2, step)
        step = jnp.where(accept, jnp.where(limit, state.stride, grown), step)
        step = jnp.where(near, ahead * jnp.clip(chord, 0.05, 0.95), step)
        step = jnp.where(starting & first, feeler, step)

        # Start of the next iteration.
        turned = accept | starting
        tangent, taut = pick(turned, tangent, old), now.taut
        base = pick(accept | settling | (limit & falls), state.here, state.base)
        stresses = tuple(s.value for s in now.balance.stresses)
        stresses = pick(turned | settled, stresses, state.stresses)
        rates = pick(turned, _rates(now.balance, tangent), state.rates)
        reached = accept & state.hits
        predict = (accept & ~reached) | past | (bad & ~switch) | (starting & ~fresh)
        step = jnp.where(
            predict, jnp.minimum(step, reach / jnp.maximum(size(tangent), 1e-300)), step
        )
        left = target - base.load_factor
        hits = (tangent.load_factor * left > 0) & (
            step * jnp.abs(tangent.load_factor) >= NEARLY * jnp.abs(left)
        )
        step = jnp.where(predict & hits, left / jnp.where(hits, tangent.load_factor, 1.0), step)
        still = jax.tree.map(jnp.zeros_like, tangent)
        moves = pick(predict, _times(step, tangent), still)
        moves = _sum(moves, pick(again | good | accept, change, still))
        rest = pick(again | good, state.here, base)
        rest = problem.moved(rest, moves.dofs)._replace(
            multipliers=rest.multipliers + moves.multipliers,
            load_factor=rest.load_factor + moves.load_factor,
        )
        load_factor = jnp.where(predict & hits, target, rest.load_factor)
        load_factor = jnp.where(fresh, jnp.clip(target, -FIRST_FACTOR, FIRST_FACTOR), load_factor)
        guess = tuple(s + step * r for s, r in zip(stresses, rates, strict=True))
        guess = pick(predict, guess, stresses)
        guess = pick(again | good, _ahead(now.balance, change), guess)
        last = jnp.where(good, far, jnp.where(settling, state.last, jnp.inf))
        last = jnp.where(again, norm, last)
        phase = jnp.where(predict, _CORRECT, jnp.where(fresh, _SETTLE, state.phase))
        phase = jnp.where(switch | settled, _TANGENT, phase)

        if through:
            found = pick(accept, _recorded(found, state.here, now.definite, limit), found)
        code = jnp.where(reached, REACHED, GOING)
        if through:
            code = jnp.where((code == GOING) & (found.count >= points), FULL, code)
        else:
            code = jnp.where(limit, jnp.where(factor < LEVEL, LIMIT, BUCKLED), code)
        tired = found.iterations + 1 >= budget
        code = jnp.where(loose, LOOSE, jnp.where(tired & (phase == _SETTLE), ADRIFT, code))
        # Nothing settles if loads or stiffnesses are not finite.
        code = jnp.where(first & ~_whole(now.balance), STUCK, code)
        short = (bad & (step < SHORTEST * length)) | (predict & ~jnp.isfinite(step))
        stuck = (code == GOING) & (short | tired)
        found = found._replace(
            configuration=pick(reached, rest, base),
            code=jnp.where(stuck, STUCK, code),
            iterations=found.iterations + 1,
            scale=now.scale,
            held=jnp.where(found.iterations == 0, now.definite, found.held),
            stiffness=now.balance.stiffness,
            slope=now.balance.slope,
        )
        return _State(
            phase=phase,
            base=base,
            tangent=tangent,
            taut=jnp.where(accept | switch | settled, taut, state.taut),
            stresses=stresses,
            rates=rates,
            length=jnp.where(accept, length, state.length),
            here=rest._replace(load_factor=load_factor),
            guess=guess,
            step=step,
            hits=jnp.where(predict, hits, state.hits),
            drift=jnp.where(again, drift, 0.0),
            last=last,
            corrections=jnp.where(again, state.corrections + 1, 0),
            damping=jnp.where(settling, damping, DAMPING),
            stride=jnp.where(accept & ~near & ~limit, grown, state.stride),
            ahead=ahead,
            beyond=beyond,
            unit=jnp.where(starting & ~fresh, unit, state.unit),
            found=found,
        )

    start, n = problem.start(), len(weights)
    zero, none = jnp.zeros(()), jnp.zeros(points, dtype=bool)
    many = jax.tree.map(lambda x: jnp.full((points, *x.shape), jnp.nan), start)
    stresses = tuple(jnp.zeros_like(group.soft) for group in problem.elements)
    found = Found(
        start,
        jnp.array(GOING),
        jnp.array(0),
        jnp.ones(n),
        jnp.array(False),
        jnp.zeros((n, n)),
        jnp.zeros((problem.rows, n)),
        Points(many, none, none),
        jnp.array(0),
    )
    state = _State(
        phase=jnp.array(_TANGENT),
        base=start,
        tangent=Direction(jnp.zeros(n), jnp.zeros(problem.rows), jnp.sign(target)),
        taut=jnp.ones(len(problem.tension_only), dtype=bool),
        stresses=stresses,
        rates=stresses,
        length=zero,
        here=start,
        guess=stresses,
        step=zero,
        hits=jnp.array(False),
        drift=zero,
        last=zero,
        corrections=jnp.array(0),
        damping=zero,
        stride=zero,
        ahead=jnp.array(jnp.inf),
        beyond=zero,
        unit=zero,
        found=found,
    )
    return jax.lax.while_loop(lambda s: s.found.code == GOING, body, state).found


def _whole(now: Balance) -> Bool[Array, ""]:
    """Whether all of a balance is finite."""
    parts = now.residual, now.violation, now.stiffness, now.slope, now.load_derivative
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(part)) for part in parts]))


def _rates(now: Balance, direction: Direction) -> tuple[Array, ...]:
    """Changes of the stresses along a direction."""
    return tuple(s.rate(direction.dofs) for s in now.stresses)


def _ahead(now: Balance, direction: Direction) -> tuple[Array, ...]:
    """Stresses after a step, extrapolated by their rates."""
    return tuple(s.value + r for s, r in zip(now.stresses, _rates(now, direction), strict=True))


def _strayed(problem: Problem, state: _State, now: Balance) -> Float[Array, ""]:
    """Largest deviation of a strain from its predicted change, relative to that change."""
    worst = jnp.zeros(())
    for group, before, rate, after in zip(
        problem.elements, state.stresses, state.rates, now.stresses, strict=True
    ):
        miss = after.value - before - state.step * rate
        strains = [group.soft * x for x in (before, state.step * rate, miss)]
        before, step, miss = (jnp.linalg.norm(x, axis=1) for x in strains)
        counts = step + COUNTS * jnp.max(jnp.maximum(before, step))
        worst = jnp.maximum(worst, jnp.max(miss / jnp.maximum(counts, 1e-300)))
    return worst


def _times(factor: Array | float, direction: Direction) -> Direction:
    return jax.tree.map(lambda x: factor * x, direction)


def _sum(a: Direction, b: Direction) -> Direction:
    return jax.tree.map(jnp.add, a, b)


def _recorded(found: Found, at: Configuration, stable: Array, limit: Array) -> Found:
    k, points = found.count, found.points
    points = Points(
        jax.tree.map(lambda all_, x: all_.at[k].set(x), points.configuration, at),
        points.stable.at[k].set(stable),
        points.limit.at[k].set(limit),
    )
    return found._replace(points=points, count=k + 1)


def _largest_rotation(problem: Problem, step: Float[Array, " n"]) -> Float[Array, ""]:
    """Largest relative displacement of an element's ends, relative to its length."""
    displacements = of(step, problem.dof)[:, :3]
    largest = jnp.zeros(())
    for group in [*problem.beams, problem.lines]:
        if len(group.stations):
            apart = jnp.diff(displacements[group.stations], axis=1)[:, 0] ** 2
            square = jnp.sum(apart, axis=1) / jnp.sum(group.data.span**2, axis=1)
            largest = jnp.maximum(largest, jnp.sqrt(jnp.max(square)))
    return largest


def _weights(problem: Problem) -> Float[Array, " n"]:
    """Weights: of displacements 1 / size of the structure, of rotations 1."""
    extent = jnp.max(jnp.ptp(problem.places[:-1], axis=0), initial=1e-300)
    weights = jnp.ones(problem.dofs + problem.releases)
    weights = weights.at[problem.dof[:, :3]].set(1 / extent, mode="drop")
    for group in problem.beams:
        if group.releases is not None:
            own = problem.dofs + group.releases.reshape(-1, 2, 6)[:, :, :3]
            weights = weights.at[own].set(1 / extent, mode="drop")
    return weights
