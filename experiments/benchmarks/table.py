"""Rows of the benchmark table, how they are printed, and how a peer is run on its own."""

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One measurement of ours and of the peer.

    `run_s` and `peer_run_s` are seconds for the same unit of work, without compilation and set-up;
    `target` is the ratio `peer_run_s / run_s` asked for; `answer` and `peer_answer` should agree;
    `who` distinguishes several measurements of ours.
    """

    what: str
    run_s: float
    compile_s: float | None = None
    who: str = "jaxgrip"
    peer: str = ""
    peer_run_s: float | None = None
    peer_setup_s: float | None = None
    answer: str = ""
    peer_answer: str = ""
    note: str = ""
    target: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times faster than the peer; None without one."""
        return None if self.peer_run_s is None else self.peer_run_s / self.run_s


def timed(function: Callable[[], jax.Array], repeats: int = 3) -> tuple[float, float]:
    """Seconds of the first call, compiling included, and of the fastest later one."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - start)
    return seconds[0], min(seconds[1:])


def show(title: str, rows: list[Row], console: Console) -> None:
    """Print ours and each peer on separate lines, with notes under the table.

    The ratio is on the peer's line; further measurements of ours have their own ratios.
    """
    notes = list(dict.fromkeys(row.note for row in rows if row.note))
    headings = ("", "who", "compile, set-up", "run", "answer", "ratio", "asked for")
    lines, last = [], None
    for row in rows:
        new = last is None or row.what != last.what
        again = not new and row.who != last.who
        ours = (row.who, duration(row.compile_s), duration(row.run_s), row.answer)
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        target = "" if row.target is None else f"{row.target:g}"
        if new:
            mark = f" ({notes.index(row.note) + 1})" if row.note else ""
            lines.append((row.what + mark, *ours, "", ""))
        if again:
            lines.append(("", *ours, ratio, target))
        elif row.peer_run_s is not None:
            peer = (row.peer, duration(row.peer_setup_s), duration(row.peer_run_s))
            lines.append(("", *peer, row.peer_answer, ratio, target))
        last = row
    used = [any(cells) for cells in zip(*lines, strict=True)]
    table = Table(title=title, title_justify="left")
    for heading in compress(headings, used):
        side = "left" if heading in ("", "who") else "right"
        table.add_column(heading, justify=side, overflow="fold")
    for line in lines:
        table.add_row(*compress(line, used))
    console.print(table)
    for number, note in enumerate(notes, start=1):
        console.print(f"({number}) {note}", markup=False, highlight=False)


def duration(seconds: float | None) -> str:
    """Seconds with a fitting unit, empty for None."""
    if seconds is None:
        return ""
    if seconds == 0.0:
        return "0 s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def peer_json(peer_python: str, script: str | Path, request: dict[str, Any]) -> dict | str:
    """Run a script in the peer's interpreter, request and answer as JSON.

    The request goes to the standard input, the answer is the last line of the standard output.
    A string instead of a dictionary is the reason why there is no answer.
    """
    try:
        done = subprocess.run(
            [peer_python, str(script)],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return f"{peer_python} does not start: {error.strerror}"
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return f"{Path(script).name} failed in {peer_python}: {lines[-1]}"
    return json.loads(done.stdout.splitlines()[-1])
