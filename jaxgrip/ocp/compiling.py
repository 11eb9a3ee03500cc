"""How the programs of the search are compiled."""

# Fusing as the CPU compiler does by default costs it minutes on programs of this kind.
COMPILER = {"xla_cpu_use_fusion_emitters": False}
