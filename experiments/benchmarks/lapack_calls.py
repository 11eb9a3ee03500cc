"""LAPACK calls in programs, and which of them jaxlib divides among the threads of its pool.

A divided call waits for its parts on a thread of the same pool, so two concurrent ones can
deadlock. A program without such calls cannot.
"""

import argparse
import math
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax

import jaxgrip as jg
from experiments.benchmarks import batches

# Operations that jaxlib counts for one real matrix, of the shapes of the operands.
# As JAX 0.10.0 to 0.11.0 has it in jaxlib/cpu/lapack_kernels.cc; later versions divide no call.
_OPERATIONS: dict[str, Callable[..., int]] = {
    "trsm": lambda a, b: b[0] * b[1] * a[0],
    "getrf": lambda a: a[0] * a[1] * min(a),
    "geqrf": lambda a: 2 * a[0] * a[1] * min(a) - 2 * min(a) ** 3 // 3,
    "orgqr": lambda a, tau: (
        4 * a[0] * a[1] * tau[-1] - 2 * tau[-1] ** 2 * sum(a) + 4 * tau[-1] ** 3 // 3
    ),
    "potrf": lambda a: a[0] ** 3 // 3,
    "gesdd": lambda a: 10 * a[0] * a[1] * min(a),
    "gesvd": lambda a: 10 * a[0] * a[1] * min(a),
    "syevd": lambda a: 5 * a[0] ** 3,
    "geev": lambda a, *_: 10 * a[0] ** 3,
}
# As GetLapackBatchChunkSize has it in the same file. With two threads or more nothing depends on
# their number.
_LEAST = 200_000


class Call(NamedTuple):
    """A LAPACK call: its routine, without type; matrices in the batch; operations for one."""

    routine: str
    shape: tuple[int, ...]
    count: int
    operations: int

    @property
    def is_divided(self) -> bool:
        """Whether jaxlib divides it among threads, for which it then waits."""
        work = self.count * self.operations
        return work >= _LEAST and self.count > math.ceil(_LEAST / self.operations)


_CALL = re.compile(r"custom_call @lapack_[sd](\w+?)_ffi\(.*?\) \{.*\} : \((.*?)\) -> ")
_ANY_CALL = re.compile(r"custom_call @(lapack_\w+)|(stablehlo\.fft)\b")
_SHAPE = re.compile(r"tensor<((?:\d+x)*)\w+>")


def calls(program: str) -> list[Call]:
    """LAPACK calls in the StableHLO text of a program.

    **Errors:** `ValueError` for a call whose division is not known, of complex numbers for one.
    """
    found = []
    for line in program.splitlines():
        if not _ANY_CALL.search(line):
            continue
        match = _CALL.search(line)
        if match is None or match[1] not in _OPERATIONS:
            raise ValueError(f"Call {line.strip()[:200]!r}: not known whether it is divided.")
        shapes = [tuple(map(int, x.split("x")[:-1])) for x in _SHAPE.findall(match[2])]
        lead = len(shapes[0]) - 2
        operations = _OPERATIONS[match[1]](*(x[lead:] for x in shapes))
        found.append(Call(match[1], shapes[0], math.prod(shapes[0][:lead]), operations))
    return found


def of_case(name: str, size: int) -> list[Call]:
    """LAPACK calls of a case of `batches`; a search on the host is run once, for its programs."""
    if name in batches.CASES:
        function, arguments = batches.CASES[name](size)
        return calls(jax.jit(function).lower(*arguments).as_text())
    function, arguments = batches.HOST[name](size)
    jax.clear_caches()
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_dump_ir_to", folder)
        try:
            function(*arguments)
        finally:
            jax.config.update("jax_dump_ir_to", "")
        return [x for file in sorted(Path(folder).glob("*.mlir")) for x in calls(file.read_text())]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks.lapack_calls")
    parser.add_argument("sizes", type=int, nargs="+")
    parser.add_argument("--only", default="", help="part of the names")
    asked = parser.parse_args()
    jg.enable_x64()
    everything = [n for n in sorted((*batches.CASES, *batches.HOST)) if asked.only in n]
    for size in asked.sizes:
        total, having, divided = 0, 0, 0
        for each in everything:
            found = of_case(each, size)
            total, having = total + len(found), having + bool(found)
            divided += sum(x.is_divided for x in found)
            if found:
                most = max(found, key=lambda x: x.count * x.operations if x.count > 1 else 0)
                work = f"{most.routine} of {most.shape}, {most.count * most.operations} operations"
                print(f"{each}, {size}: {len(found)} calls, the largest {work}", flush=True)
        print(
            f"{size}: {len(everything)} functions, {having} of them with {total} LAPACK calls, "
            f"{divided} divided",
            flush=True,
        )
