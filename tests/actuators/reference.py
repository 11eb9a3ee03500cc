"""Published numbers of the servo AX-12 and of the LuGre benchmark, SI units."""

# Kubisch 2008, table 4.1; σ1 = 2 √(σ0 J).
FRICTION = {
    "coulomb": 0.0771550,
    "stiction": 0.4318759,
    "viscous": 0.2870523,
    "stiffness": 23.810246,
    "stribeck_velocity": 0.0659532,
    "damping_velocity": 0.8785457,
}
INERTIA = 0.0180259
STALL_TORQUE = 1.8081276

# Kubisch 2008, table 3.1.
GEAR = {"spring": 6.352, "springs": (16.561, 1.072), "dampers": (1.341, 32.598)}

# Canudas 1995, table I.
BENCHMARK = {
    "coulomb": 1.0,
    "stiction": 1.5,
    "viscous": 0.4,
    "stiffness": 1e5,
    "damping": 1e5**0.5,
    "stribeck_velocity": 1e-3,
}

# Derived from data sheet and friction, none of it measured. The back-EMF constant is the upper
# bound F_v/k_V.
MOTOR = {"torque_per_volt": 0.1507, "back_emf": 1.9, "resistance": 16.0, "idle_current": 0.05}
SUPPLY = {"voltage": 11.1, "resistance": 0.27}
