"""The run folder: what an experiment hands over is on disk at once, the summary last."""

import contextlib
import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
import numpy as np
import rich.box
import rich.console
import rich.table

from jaxgrip import config as configs

if TYPE_CHECKING:
    import matplotlib.figure
    import xarray

_WRITTEN = (
    *("config.toml", "summary.json", "report.md", "traceback.txt"),
    *("results.zarr", "figures", "fields"),
)


class RunError(RuntimeError):
    """A run cannot start or has failed; the message is one sentence for the user."""


@runtime_checkable
class Certificate(Protocol):
    """What proves a solution.

    `checks` have `name`, `value`, `tolerance`, `passed` and `meaning`; `passed` says whether all
    of them are.
    """

    checks: Iterable[Any]
    passed: Any


@dataclasses.dataclass(frozen=True)
class Result:
    """A scalar or a list of scalars with its unit and, where known, the published value."""

    value: Any
    unit: str
    published: Any = None


class Run:
    """A run in progress: an experiment hands over what it has found, the folder keeps it.

    Everything is written when it is handed over, so a run that fails later leaves it behind.
    """

    def __init__(
        self,
        folder: Path,
        config: configs.Config,
        *,
        title: str = "",
        console: rich.console.Console | None = None,
    ):
        """Start a run.

        **Arguments:** `folder`, existing and empty; `config`, resolved; `title`, one line on what
        is computed; `console` for progress (silent by default).
        """
        self.folder = folder
        self.config = config
        self.title = title or config.experiment
        self.results: dict[str, Result] = {}
        self.certificates: dict[str, Certificate] = {}
        self.notes: list[str] = []
        self.pictures: list[tuple[str, str]] = []
        self.stages: dict[str, float] = {}
        self._console = console or rich.console.Console(quiet=True)
        self._clock = _Clock()
        (folder / "config.toml").write_text(configs.dumps(config), encoding="utf-8")
        # A process that is killed must not leave a folder that looks like a success.
        self._write_summary("the run was stopped before it ended")

    @contextlib.contextmanager
    def stage(self, what: str) -> Iterator[None]:
        """Show `what` while it is being worked on, and afterwards how long it took."""
        start = time.perf_counter()
        try:
            with self._console.status(f"{what} …"):
                yield
        except BaseException:
            self._console.print(f"[red]✗[/red] {what}")
            raise
        self.stages[what] = time.perf_counter() - start
        self._console.print(f"[green]✓[/green] {what} [dim]{self.stages[what]:.1f} s[/dim]")

    def add(self, name: str, value: Any, unit: str, published: Any = None) -> None:
        """Record a result.

        **Arguments:** `name`, flat; `value`, a scalar or a list of scalars in SI units; `unit`
        of it ("1" for a pure number); `published`, the same from the literature, where known.
        """
        self.results[name] = Result(_plain(value), unit, _plain(published))

    def certify(self, name: str, certificate: Certificate) -> None:
        """Record the certificate of the part `name`; the run fails if it has not passed."""
        self.certificates[name] = certificate

    def note(self, sentence: str) -> None:
        """Record a sentence that a reader of the numbers needs."""
        self.notes.append(sentence)

    def arrays(self, group: str, dataset: "xarray.Dataset") -> None:
        """Write `dataset` into the group `group` of results.zarr.

        **Raises:** `ValueError` if a variable lacks the attribute `units`.
        """
        bare = [str(name) for name in dataset.variables if "units" not in dataset[name].attrs]
        if bare:
            raise ValueError(f"The arrays {', '.join(bare)} lack the attribute units.")
        # Format 2 has consolidated metadata and text coordinates; format 3 warns about both.
        store = self.folder / "results.zarr"
        dataset.to_zarr(store, group=group, mode="w", zarr_format=2, consolidated=True)

    def figure(self, name: str, figure: "matplotlib.figure.Figure", caption: str) -> None:
        """Write figures/`name`.png and .svg; the report shows the picture above its `caption`."""
        for ending in ("png", "svg"):
            # Without the date, the same results give the same file.
            metadata = {"Date": None} if ending == "svg" else None
            figure.savefig(self._picture(f"{name}.{ending}"), metadata=metadata)
        self.pictures.append((f"{name}.png", caption))

    def animation(self, name: str, animation: Any, caption: str) -> None:
        """Write figures/`name`.gif by `animation.save(path)`; the report shows it."""
        animation.save(self._picture(f"{name}.gif"))
        self.pictures.append((f"{name}.gif", caption))

    def finish(self, error: str | None = None) -> None:
        """Write summary.json and report.md; nothing can be handed over afterwards.

        **Arguments:** `error`, one sentence if the run has failed.

        **Raises:** `RunError` if a certificate has not passed.
        """
        self._clock.stop()
        rejected = _rejected(self.certificates) if error is None else None
        self._write_summary(error or rejected)
        (self.folder / "report.md").write_text(_markdown(self, error or rejected), "utf-8")
        if rejected:
            raise RunError(rejected)

    def _picture(self, file: str) -> Path:
        folder = self.folder / "figures"
        folder.mkdir(exist_ok=True)
        return folder / file

    def _write_summary(self, error: str | None) -> None:
        summary = {
            "experiment": self.config.experiment,
            "status": "failed" if error else "ok",
            "error": error,
            "results": {name: result.value for name, result in self.results.items()},
            "reference": {
                name: result.published
                for name, result in self.results.items()
                if result.published is not None
            },
            "units": {name: result.unit for name, result in self.results.items()},
            "certificate": {
                name: {
                    "passed": bool(certificate.passed),
                    "checks": [_check(check) for check in certificate.checks],
                }
                for name, certificate in self.certificates.items()
            },
            "notes": self.notes,
            "timing": {**self._clock.read(), "stages": self.stages},
            "device": _device(),
            "versions": _versions(),
            "config_hash": _hash(self.config),
        }
        text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
        # Replacing is atomic, so a reader never meets half a summary.
        draft = self.folder / "summary.json.part"
        draft.write_text(text + "\n", encoding="utf-8")
        os.replace(draft, self.folder / "summary.json")


def open_folder(name: str, out: Path | None = None, *, overwrite: bool = False) -> Path:
    """Make the empty folder of a new run.

    **Arguments:** `name` of the run; `out`, the folder (default runs/`name`-<UTC time>);
    `overwrite`, whether what an earlier run left in `out` may be deleted.

    **Returns:** the folder.

    **Raises:** `RunError` if the folder is not empty and may not be overwritten.
    """
    if out is None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        folder, count = Path("runs") / f"{name}-{now}", 1
        while True:
            try:
                folder.mkdir(parents=True)
                return folder
            except FileExistsError:
                count += 1
                folder = Path("runs") / f"{name}-{now}-{count}"
    if out.exists() and not out.is_dir():
        raise RunError(f"--out {out}: is a file, not a folder.")
    held = sorted(entry.name for entry in out.iterdir()) if out.is_dir() else []
    if held and not overwrite:
        raise RunError(
            f"--out {out}: is not empty and is left alone; choose another folder, "
            "or add --overwrite to replace the run in it."
        )
    foreign = sorted(set(held) - set(_WRITTEN))
    if foreign:
        raise RunError(
            f"--out {out}: holds {foreign[0]}, which no run has written, so nothing is replaced; "
            "choose another folder."
        )
    out.mkdir(parents=True, exist_ok=True)
    for entry in held:
        target = out / entry
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    return out


def comparison(run: Run) -> rich.table.Table:
    """Table for the terminal: every published value, ours, and the difference."""
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD)
    for heading in ("quantity", "unit", "published", "ours", "difference"):
        table.add_column(heading, justify="left" if heading in ("quantity", "unit") else "right")
    for row in _rows(run.results):
        table.add_row(*row)
    return table


def verdict(run: Run) -> list[str]:
    """Lines for the terminal: each certificate and its checks, in rich markup."""
    lines = []
    for name, certificate in run.certificates.items():
        checks = list(certificate.checks)
        passed = sum(bool(check.passed) for check in checks)
        colour = "green" if certificate.passed else "red"
        word = "certified" if certificate.passed else "NOT certified"
        measured = [check for check in checks if check.tolerance > 0.0]
        tightest = max(measured, key=lambda check: check.value / check.tolerance)
        lines.append(
            f"[{colour}]{name}: {word}[/{colour}], {passed} of {len(checks)} checks passed; "
            f"closest to its limit: {tightest.name}, {float(tightest.value):.0e} of "
            f"{float(tightest.tolerance):.0e}"
        )
        lines += [
            f"  [red]✗[/red] {check.name}: {float(check.value):.1e}, "
            f"allowed {float(check.tolerance):.0e} ({check.meaning})"
            for check in checks
            if not check.passed
        ]
    return lines


class _Clock:
    """Wall time since the start, and the part of it in which JAX traced, lowered and compiled."""

    def __init__(self):
        self._start = time.perf_counter()
        self._end: float | None = None
        self._spans: list[tuple[float, float]] = []
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            now = time.perf_counter()
            self._spans.append((now - duration, now))

    def stop(self) -> None:
        self._end = time.perf_counter()
        jax.monitoring.unregister_event_duration_listener(self._listen)

    def read(self) -> dict[str, float]:
        total = (self._end or time.perf_counter()) - self._start
        compiling, reached = 0.0, -math.inf
        # Tracing a function traces the ones it calls: overlapping spans count once.
        for begin, end in sorted(self._spans):
            compiling += max(0.0, end - max(begin, reached))
            reached = max(reached, end)
        return {"compile_s": compiling, "run_s": total - compiling, "total_s": total}


def _rejected(certificates: dict[str, Certificate]) -> str | None:
    for name, certificate in certificates.items():
        if not certificate.passed:
            failed = [check for check in certificate.checks if not check.passed]
            listed = ", ".join(
                f"{check.name} ({float(check.value):.1e}, allowed {float(check.tolerance):.0e})"
                for check in failed
            )
            return f"the solution of {name} is not certified: {listed}"
    return None


def _rows(results: dict[str, Result]) -> Iterator[tuple[str, str, str, str, str]]:
    for name, result in results.items():
        if result.published is None:
            continue
        listed = isinstance(result.published, list)
        if listed and all(isinstance(entry, int | str) for entry in result.published):
            # Counts, indices and names are read as a pattern, not one by one.
            same = result.value == result.published
            gap = ", " if any(isinstance(entry, str) for entry in result.published) else " "
            shown = [gap.join(map(str, part)) for part in (result.published, result.value)]
            yield (name, result.unit, *shown, "none" if same else "differs")
            continue
        ours = result.value if listed else [result.value]
        published = result.published if listed else [result.published]
        for index in range(max(len(ours), len(published))):
            label = f"{name}[{index + 1}]" if listed else name
            left = published[index] if index < len(published) else None
            right = ours[index] if index < len(ours) else None
            both = left is not None and right is not None
            yield (
                label,
                result.unit,
                "–" if left is None else f"{left}",
                "–" if right is None else _number(right),
                f"{right - left:+.1e}" if both else "–",
            )


def _number(value: Any) -> str:
    return f"{value:.13g}" if isinstance(value, float) else str(value)


def _markdown(run: Run, error: str | None) -> str:
    lines = [f"# {run.title}", ""]
    lines += [f"**Failed:** {error}.", ""] if error else []
    lines += [f"Experiment `{run.config.experiment}`, {_device()}.", ""]
    rows = list(_rows(run.results))
    if rows:
        lines += ["## Against the published values", ""]
        lines += ["| quantity | unit | published | ours | difference |", "|---|---|--:|--:|--:|"]
        lines += [f"| {' | '.join(row)} |" for row in rows] + [""]
    others = {name: r for name, r in run.results.items() if r.published is None}
    if others:
        lines += ["## Further results", "", "| quantity | unit | value |", "|---|---|--:|"]
        for name, result in others.items():
            listed = isinstance(result.value, list)
            shown = ", ".join(map(_number, result.value)) if listed else _number(result.value)
            lines.append(f"| {name} | {result.unit} | {shown} |")
        lines.append("")
    for name, certificate in run.certificates.items():
        word = "passed" if certificate.passed else "**not passed**"
        lines += [f"## Certificate of {name}: {word}", ""]
        lines += ["| check | value | allowed | passed | meaning |", "|---|--:|--:|---|---|"]
        for check in map(_check, certificate.checks):
            value = "not finite" if check["value"] is None else f"{check['value']:.1e}"
            lines.append(
                f"| {check['name']} | {value} | {check['tolerance']:.0e} "
                f"| {'yes' if check['passed'] else '**no**'} | {check['meaning']} |"
            )
        lines.append("")
    if run.notes:
        lines += ["## Notes", ""] + [f"* {note}" for note in run.notes] + [""]
    if run.pictures:
        lines += ["## Pictures", ""]
        for file, caption in run.pictures:
            lines += [f"![{caption}](figures/{file})", "", f"*{caption}*", ""]
    timing = run._clock.read()
    lines += [
        "## Time",
        "",
        f"{timing['total_s']:.1f} s in total, of which JAX compiled {timing['compile_s']:.1f} s.",
        "",
        "| stage | s |",
        "|---|--:|",
        *(f"| {stage} | {seconds:.1f} |" for stage, seconds in run.stages.items()),
        "",
        "## Read the arrays again",
        "",
        "```python",
        "import xarray",
        'xarray.open_datatree("results.zarr", engine="zarr")',
        "```",
        "",
    ]
    return "\n".join(lines)


def _check(check: Any) -> dict[str, Any]:
    return {
        "name": str(check.name),
        "value": _plain(check.value),
        "tolerance": _plain(check.tolerance),
        "passed": bool(check.passed),
        "meaning": str(check.meaning),
    }


def _plain(value: Any) -> Any:
    """Scalars and lists as JSON knows them; a number that is not finite becomes null."""
    if value is None or isinstance(value, str):
        return value
    plain = np.asarray(value).tolist()
    if isinstance(plain, list):
        return [_plain(entry) for entry in plain]
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


def _device() -> str:
    device = jax.devices()[0]
    if device.platform == "cpu":
        return f"cpu, {os.cpu_count()} cores, {platform.machine()}"
    return f"{device.platform}, {device.device_kind}"


def _versions() -> dict[str, str]:
    packages = ("jaxgrip", "jax", "jaxlib", "equinox", "diffrax", "numpy")
    found = {package: importlib.metadata.version(package) for package in packages}
    return {"python": platform.python_version(), **found}


def _hash(config: configs.Config) -> str:
    canonical = json.dumps(config.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
