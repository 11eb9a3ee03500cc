"""The run folder: results are on disk as soon as they are recorded, by small atomic writes."""

import contextlib
import dataclasses
import datetime
import errno
import functools
import hashlib
import importlib.metadata
import itertools
import json
import math
import os
import platform
import secrets
import shutil
import tempfile
import threading
import time
import traceback
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import jax
import numpy as np
import pydantic
import pydantic_core
import rich.console
import rich.status
from rich.text import Text

from jaxgrip import _files, _process
from jaxgrip import config as configs

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

if TYPE_CHECKING:
    import matplotlib.figure
    import xarray

# Names of files being written; a kill may leave them behind.
_DRAFT = ".part-"
# Space reserved on the disk, so that a run that fills it can still say so; locked during the run.
_RESERVE, _RESERVED = f"{_DRAFT}reserve", 65536
# Seconds between progress lines of a stage, where there is no terminal.
_REPEAT = 60.0
# Headings of the comparison, and the longest cell in a column of a terminal.
_QUANTITY, _COMPARED, _CELL = "quantity [unit]", ("published", "ours", "difference"), 24
_STOPPED = "the run was stopped before it ended"


class RunError(RuntimeError):
    """A run cannot start or has failed; the message is one sentence for the user."""


@runtime_checkable
class Certificate(Protocol):
    """Evidence that a solution is correct.

    `checks` have `name`, `value`, `tolerance`, `passed` and `meaning`; `passed` is true if all
    of them have passed.
    """

    checks: Iterable[Any]
    passed: Any


@dataclasses.dataclass(frozen=True)
class Result:
    """A scalar or a list of scalars with its unit and, where known, the published value."""

    value: Any
    unit: str
    published: Any = None


class Check(pydantic.BaseModel):
    """One condition of a certificate; a number that is not finite is None."""

    name: str
    value: Any
    tolerance: Any
    passed: bool
    meaning: str


class Proof(pydantic.BaseModel):
    """A certificate as stored on the disk."""

    passed: bool
    checks: list[Check]


class Picture(pydantic.BaseModel):
    """A file in figures/ and what it shows."""

    file: str
    caption: str


class Summary(pydantic.BaseModel):
    """Content of summary.json; `files` and `draft` are None where an older version wrote it."""

    experiment: str
    title: str = ""
    status: Literal["ok", "failed"]
    error: str | None = None
    results: dict[str, Any] = {}
    reference: dict[str, Any] = {}
    units: dict[str, str] = {}
    certificate: dict[str, Proof] = {}
    notes: list[str] = []
    pictures: list[Picture] = []
    timing: dict[str, Any] = {}
    device: str = ""
    versions: dict[str, str] = {}
    config_hash: str
    files: list[str] | None = None
    draft: str | None = None


class Run:
    """A run in progress: an experiment records its results in the run folder.

    Each is on disk when the method that records it returns, whatever happens to the process
    afterwards.
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
        # An experiment may change the working directory.
        self._home = folder.absolute()
        self.config = config
        self.title = _words(title or config.experiment)
        self.results: dict[str, Result] = {}
        self.certificates: dict[str, Proof] = {}
        self.notes: list[str] = []
        self.pictures: dict[str, str] = {}
        self.stages: dict[str, float] = {}
        self.earlier: Path | None = None
        self._console = console or rich.console.Console(quiet=True)
        self._clock = _Clock()
        self._hash = _hash(config)
        # Until the end: a killed process must not leave an apparent success.
        self._error: str | None = _STOPPED
        self._files = dict.fromkeys(("config.toml", "summary.json", "report.md"))
        # Unique to this run, so that drafts found after a kill are known to be its own.
        self._draft = f"{_DRAFT}{secrets.token_hex(8)}-"
        self._open: list[tuple[str, rich.status.Status]] = []
        self._write_summary()
        self._reserve = _reserve(self._home)
        _put(self._home, "config.toml", configs.dumps(config))

    @contextlib.contextmanager
    def stage(self, what: str) -> Iterator[None]:
        """Show the stage `what` while it runs, and its duration afterwards."""
        progress = _Progress(what, self._clock)
        status = self._console.status(progress)
        self._open.append((what, status))
        try:
            with status, progress.told(self._console):
                yield
        except BaseException:
            self._print("red", "✗", what)
            raise
        finally:
            self._open.pop()
        self.stages[what] = progress.seconds()
        self._print("green", "✓", what, f" {self.stages[what]:.1f} s")
        with _process.unbroken():
            self._write_summary()

    def add(self, name: str, value: Any, unit: str, published: Any = None) -> None:
        """Record a result.

        **Arguments:** `name`, flat; `value`, a scalar or a list of scalars in SI units; `unit`
        of it ("1" for a pure number); `published`, the value from the literature, where known.

        **Raises:** `ValueError` unless it is a number, a word or a list of them.
        """
        result = Result(_result(name, value), _words(unit), _result(name, published))
        with _process.unbroken():
            self.results[_words(name)] = result
            self._write_summary()

    def certify(self, name: str, certificate: Certificate) -> None:
        """Record the certificate of the part `name`; the run fails if it has not passed."""
        checks = [
            Check(
                name=_words(check.name),
                value=_plain(check.value),
                tolerance=_plain(check.tolerance),
                passed=bool(check.passed),
                meaning=_words(check.meaning),
            )
            for check in certificate.checks
        ]
        proof = Proof(passed=bool(certificate.passed), checks=checks)
        with _process.unbroken():
            self.certificates[_words(name)] = proof
            self._write_summary()

    def note(self, sentence: str) -> None:
        """Record a sentence that readers of the numbers need."""
        with _process.unbroken():
            self.notes.append(_words(sentence))
            self._write_summary()

    def arrays(self, group: str, dataset: "xarray.Dataset") -> None:
        """Write `dataset` into the group `group` of results.zarr.

        **Raises:** `ValueError` if a variable lacks the attribute `units`.
        """
        bare = [str(name) for name in dataset.variables if "units" not in dataset[name].attrs]
        if bare:
            raise ValueError(f"The arrays {', '.join(bare)} lack the attribute units.")

        def write(folder: Path) -> None:
            # Format 2 has consolidated metadata and text coordinates; format 3 warns about both.
            store = folder / "results.zarr"
            dataset.to_zarr(store, group=group, mode="w", zarr_format=2, consolidated=True)
            # The metadata of all groups are in one file.
            metadata = _metadata(self._home / "results.zarr", without=group)
            metadata["metadata"] |= _metadata(store)["metadata"]
            (store / ".zmetadata").write_text(json.dumps(metadata))

        self._store(write, group=group)

    def figure(self, name: str, figure: "matplotlib.figure.Figure", caption: str) -> None:
        """Write figures/`name`.png and .svg; the report shows the picture above its `caption`."""

        def write(folder: Path) -> None:
            for ending in ("png", "svg"):
                # Without a date, so that the same results give the same file.
                metadata = {"Date": None} if ending == "svg" else None
                figure.savefig(_made(folder / f"figures/{name}.{ending}"), metadata=metadata)

        self._store(write, picture=(f"{name}.png", caption))

    def animation(self, name: str, animation: Any, caption: str) -> None:
        """Write figures/`name`.gif by `animation.save(path)`; the report shows it."""
        self._store(
            lambda folder: animation.save(_made(folder / f"figures/{name}.gif")),
            picture=(f"{name}.gif", caption),
        )

    def files(self, folder: str, write: Callable[[Path], None]) -> None:
        """Put files of any kind into a folder of the run, by `write(path)` of an empty folder."""
        self._store(lambda draft: write(_made(draft / folder / "file").parent))

    def finish(self, error: str | None = None) -> None:
        """Write the outcome and report.md.

        **Arguments:** `error`, one sentence if the run has failed.

        **Raises:** `RunError` if a certificate has not passed; `OSError`.
        """
        rejected = _rejected(self.certificates) if error is None else None
        with _process.unbroken():
            self._clock.stop()
            self._error = _words(error or rejected) if error or rejected else None
            if self._reserve is not None:
                os.close(self._reserve)
                self._reserve = None
            _remove(self._home / _RESERVE)
            self._write_summary()
            write_report(self._home)
            # Only a signal leaves drafts; if they went earlier, the interrupted thread would renew
            # them.
            for left in self._home.glob(f"{self._draft}*"):
                _remove(left)
            if self._error is None and self.earlier is not None and _delete(self.earlier):
                self.earlier = None
        if rejected:
            raise RunError(rejected)

    def stop(self, error: str) -> None:
        """Finish from another thread, with the reason in one sentence."""
        try:
            self.finish(error)
        finally:
            for what, status in reversed(self._open):
                status.stop()
                self._print("red", "✗", what)

    def keep_traceback(self) -> str:
        """Write traceback.txt of the exception being handled; returns a note on where it is."""
        try:
            with _process.unbroken():
                self._files["traceback.txt"] = None
                self._write_summary()
                _put(self._home, "traceback.txt", traceback.format_exc())
        except OSError:
            return "details could not be written"
        return f"details in {self.folder / 'traceback.txt'}"

    def _print(self, colour: str, mark: str, what: str, more: str = "") -> None:
        self._console.print(Text.assemble((mark, colour), f" {configs.short(what)}", (more, "dim")))

    def _store(
        self,
        write: Callable[[Path], None],
        *,
        group: str | None = None,
        picture: tuple[str, str] | None = None,
    ) -> None:
        """Write files into a draft folder, list them, and move them into the run folder."""
        draft = Path(tempfile.mkdtemp(prefix=self._draft, dir=self._home))
        old = draft.with_name(f"{draft.name}-old")
        try:
            write(draft)
            found = [str(file) for file in _walk(draft) if not (draft / file).is_dir()]
            with _process.unbroken():
                for file in found:
                    if os.path.lexists(self._home / file) and file not in self._files:
                        raise RunError(
                            f"{configs.short(self.folder / file)}: is not from this run and is "
                            "left alone; move it away."
                        )
                if group and (self._home / "results.zarr" / group).exists():
                    self._forget(group, old)
                self._files |= dict.fromkeys(found)
                if picture:
                    self.pictures[picture[0]] = _words(picture[1])
                self._write_summary()
                _move(draft, self._home)
        finally:
            for left in (draft, old):
                _remove(left)

    def _forget(self, group: str, target: Path) -> None:
        """Move away a group of arrays before it is replaced."""
        store = self._home / "results.zarr"
        # First from the metadata: an array listed there without its chunks reads as NaN.
        _put(store, ".zmetadata", json.dumps(_metadata(store, without=group)))
        os.replace(store / group, target)
        kept = (f for f in self._files if not f.startswith(f"results.zarr/{group}/"))
        self._files = dict.fromkeys(kept)

    def _write_summary(self) -> None:
        summary = {
            "experiment": self.config.experiment,
            "title": self.title,
            "status": "failed" if self._error else "ok",
            "error": self._error,
            "results": {name: result.value for name, result in self.results.items()},
            "reference": {
                name: result.published
                for name, result in self.results.items()
                if result.published is not None
            },
            "units": {name: result.unit for name, result in self.results.items()},
            "certificate": self.certificates,
            "notes": self.notes,
            "pictures": [{"file": f, "caption": caption} for f, caption in self.pictures.items()],
            "timing": {**self._clock.read(), "stages": self.stages},
            "device": _device(),
            "versions": _versions(),
            "config_hash": self._hash,
            "files": list(self._files),
            "draft": self._draft,
        }
        text = pydantic_core.to_json(summary, indent=2).decode()
        _put(self._home, "summary.json", text + "\n")


def start(
    name: str,
    config: configs.Config,
    *,
    out: Path | None = None,
    overwrite: bool = False,
    title: str = "",
    console: rich.console.Console | None = None,
) -> Run:
    """Make the folder of a new run, and start the run in it.

    **Arguments:** `name` of the run; `out`, the folder (default runs/`name`-<UTC time>);
    `overwrite`, whether the run in `out` may be replaced: it is moved aside, deleted when the new
    one has succeeded, and restored when the new one cannot start; the others as for `Run`.

    **Returns:** the run; `earlier` is the folder of the one before it, if any.

    **Raises:** `RunError` if the folder cannot be made, or has files that no run has written.
    """
    with _process.unbroken():
        folder, earlier, made = out, None, False
        try:
            if out is None:
                folder, made = _new_folder(name), True
            else:
                earlier = _aside(out) if _holds_a_run(out, overwrite) else None
                if not out.exists():
                    out.mkdir(parents=True)
                    made = True
                if earlier is not None:
                    shutil.copymode(earlier, out)
            run = Run(folder, config, title=title, console=console)
        except BaseException as error:
            _give_back(folder, earlier, made)
            if isinstance(error, OSError):
                where = f"--out {configs.short(out)}" if out else f"runs/{configs.short(name)}"
                raise RunError(
                    f"{where}: the run folder cannot be made: {error.strerror or error}."
                ) from None
            raise
        run.earlier = earlier
        return run


def write_report(folder: Path) -> Path:
    """Write report.md of a run folder again from its summary.json.

    **Returns:** the file.

    **Raises:** `RunError` if the folder contains no run; `OSError`.
    """
    _put(folder, "report.md", _markdown(_read(folder)))
    return folder / "report.md"


def comparison(run: Run, width: int) -> list[Text]:
    """Lines for the terminal: every published value, ours, and the difference.

    **Arguments:** `run`; `width` of the terminal in characters, exceeded only
    by a longer name or list: cut names or numbers would be ambiguous.
    """
    rows = list(_rows(run.results))
    short = [cells for *_, cells in rows if max(map(len, cells)) <= _CELL]
    sizes = [max(map(len, column)) for column in zip(_COMPARED, *short, strict=True)]
    # A list has one line with its name, which is not repeated for its entries.
    labels = [f"  {number}" if number else f"{name} [{unit}]" for name, number, unit, _ in rows]
    room = max(width - sum(sizes) - 2 * len(sizes), len(_QUANTITY))
    room = max([len(_QUANTITY), *(len(label) for label in labels if len(label) <= room)])

    def line(label: str, cells: Iterable[str]) -> str:
        numbers = (f"  {cell:>{size}}" for cell, size in zip(cells, sizes, strict=True))
        return f"{label:{room}}{''.join(numbers)}"

    lines, last = [Text(line(_QUANTITY, _COMPARED), "bold")], None
    for (name, number, unit, cells), label in zip(rows, labels, strict=True):
        if number and name != last:
            lines.append(Text(f"{name} [{unit}]"))
        last = name
        if max(map(len, cells)) > _CELL:
            named = zip(_COMPARED, cells, strict=True)
            lines += [Text(label), *(Text(f"  {word}: {cell}") for word, cell in named)]
        elif len(label) > room:
            lines += [Text(label), Text(line("", cells))]
        else:
            lines.append(Text(line(label, cells)))
    return lines


def verdict(run: Run) -> list[Text]:
    """Lines for the terminal: each certificate and its checks."""
    lines = []
    for name, proof in run.certificates.items():
        colour = "green" if proof.passed else "red"
        word = "certified" if proof.passed else "NOT certified"
        passed = sum(check.passed for check in proof.checks)
        line = Text.assemble(
            (f"{name}: {word}", colour), f", {passed} of {len(proof.checks)} checks passed"
        )
        measured = [c for c in proof.checks if _is_number(c.value) and _is_number(c.tolerance)]
        measured = [check for check in measured if check.tolerance > 0.0]
        if measured:
            tightest = max(measured, key=lambda check: check.value / check.tolerance)
            line.append(
                f"; closest to its limit: {tightest.name}, {tightest.value:.0e} of "
                f"{tightest.tolerance:.0e}"
            )
        lines.append(line)
        lines += [
            Text.assemble(
                ("  ✗", "red"),
                f" {check.name}: {_size(check.value)}, allowed {_size(check.tolerance, 0)} "
                f"({check.meaning})",
            )
            for check in proof.checks
            if not check.passed
        ]
    return lines


class _Clock:
    """Wall time since the start, and the part of it in which JAX traced, lowered and compiled."""

    def __init__(self):
        self._start = time.perf_counter()
        self._end: float | None = None
        # Disjoint spans in order: tracing a function traces the ones it
        # calls, and what overlaps counts once.
        self._spans: list[tuple[float, float]] = []
        self._compiled = 0.0
        # Current state: nesting depth, start, and time compiled before.
        self._depth, self._since, self._before = 0, 0.0, 0.0
        # Some programs are compiled in threads.
        self._lock = threading.Lock()
        jax.monitoring.register_scalar_listener(self._begin)
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _begin(self, event: str, value: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            with self._lock:
                if self._depth == 0:
                    self._since, self._before = time.perf_counter(), self._compiled
                self._depth += 1

    def _listen(self, event: str, duration: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            with self._lock:
                self._depth = max(0, self._depth - 1)
                end = time.perf_counter()
                begin = end - duration
                while self._spans and self._spans[-1][1] >= begin:
                    first, last = self._spans.pop()
                    self._compiled -= last - first
                    begin = min(begin, first)
                self._spans.append((begin, end))
                self._compiled += end - begin

    def compiling(self) -> float:
        """Seconds for which JAX has been compiling, 0 while it is not."""
        return time.perf_counter() - self._since if self._depth else 0.0

    def stop(self) -> None:
        if self._end is None:
            if self._depth:
                self._compiled, self._depth = self._before + self.compiling(), 0
            self._end = time.perf_counter()
            jax.monitoring.unregister_event_duration_listener(self._listen)
            jax.monitoring.unregister_scalar_listener(self._begin)

    def read(self) -> dict[str, float]:
        total = (self._end or time.perf_counter()) - self._start
        compiled = self._before + self.compiling() if self._depth else self._compiled
        return {"compile_s": compiled, "run_s": total - compiled, "total_s": total}


class _Progress:
    """Display of a running stage."""

    def __init__(self, what: str, clock: _Clock):
        self._what, self._clock = configs.short(what), clock
        self._start = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def words(self) -> str:
        compiling = self._clock.compiling()
        # Short programs would make it flicker.
        more = f"compiling for {compiling:.0f} s" if compiling >= 1.0 else "computing"
        return f"{self._what} … {self.seconds():.0f} s, {more}"

    def __rich__(self) -> Text:
        return Text(self.words())

    @contextlib.contextmanager
    def told(self, console: rich.console.Console) -> Iterator[None]:
        """Print a line now and then where no line can be updated in place."""
        done = threading.Event()

        def tell() -> None:
            while not done.wait(_REPEAT):
                console.print(Text(f"  {self.words()}"))

        if not console.is_terminal and not console.quiet:
            threading.Thread(target=tell, daemon=True).start()
        try:
            yield
        finally:
            done.set()


def _reserve(folder: Path) -> int | None:
    """A file that reserves space on the disk, locked by this process; None if it cannot be made.

    Left open on purpose: the system unlocks it when the process ends in any way.
    """
    try:
        file = os.open(folder / _RESERVE, os.O_WRONLY | os.O_CREAT)
        os.write(file, os.urandom(_RESERVED))
        _lock(file)
    except OSError:
        return None
    return file


def _lock(file: int) -> None:
    """Lock an open file; `BlockingIOError` if another run has locked it."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_running(folder: Path) -> bool:
    """Whether the process of the run in a folder still exists."""
    try:
        with open(folder / _RESERVE, "rb") as file:
            _lock(file.fileno())
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _new_folder(name: str) -> Path:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    # File systems allow 255 bytes.
    begin = name.encode()[:200].decode(errors="ignore")
    folder, count = Path("runs") / f"{begin}-{now}", 1
    while True:
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            if not folder.exists():
                raise
            count += 1
            folder = Path("runs") / f"{begin}-{now}-{count}"


def _holds_a_run(out: Path, overwrite: bool) -> bool:
    """Whether an earlier run may be moved aside; `RunError` if it must not."""
    where = f"--out {configs.short(out)}"
    if out.is_symlink():
        raise RunError(f"{where}: is a symbolic link; name the folder itself.")
    if out.exists() and not out.is_dir():
        raise RunError(f"{where}: is a file, not a folder.")
    entries = [entry.name for entry in out.iterdir()] if out.exists() else []
    if not entries or (entries == ["summary.json.part"] and _is_plain(out / entries[0])):
        return False
    if not overwrite:
        raise RunError(
            f"{where}: is not empty and is left alone; choose another folder, "
            "or add --overwrite to replace the run in it."
        )
    try:
        foreign = _foreign(out)
    except RunError as error:
        raise RunError(f"{where}: {error} Nothing is replaced; choose another folder.") from None
    if foreign is not None:
        raise RunError(
            f"{where}: contains {configs.short(foreign)}, which the run in it has not written, so "
            "nothing is replaced; choose another folder."
        )
    if _is_running(out):
        raise RunError(f"{where}: the run in it is still running; choose another folder.")
    here = Path.cwd()
    if out.resolve() in (here, *here.parents):
        raise RunError(
            f"{where}: is or contains the working directory, so it cannot be moved aside; change "
            "the directory."
        )
    return True


def _foreign(folder: Path) -> Path | None:
    """The first file in a folder that its run has not written, relative to it, or None."""
    summary = _read(folder)
    if summary.files is None:
        raise RunError("Its summary.json does not list what the run wrote, as older ones do not.")
    own = set(map(Path, summary.files))
    folders = {above for file in own for above in file.parents}
    # A run that ended by itself has removed its drafts.
    was_killed = summary.error in (_STOPPED, *_process.SIGNALS.values())
    for file in _walk(folder):
        top = file.parts[0]
        there = folder / file
        known = folders if there.is_dir() else own
        is_draft = top == _RESERVE or top.startswith(summary.draft or "/")
        half_written = file.suffix == ".part" and file.with_suffix("") in own
        written = file in known or (was_killed and (is_draft or half_written))
        if not written or not (there.is_dir() or _is_plain(there)) or there.is_symlink():
            return file
    return None


def _is_plain(file: Path) -> bool:
    """Whether this is a regular file: no link, and no pipe, which could block."""
    return file.is_file() and not file.is_symlink()


def _walk(folder: Path) -> Iterator[Path]:
    """All files and folders below a folder, relative to it; links are not followed."""

    def fail(error: OSError) -> None:
        raise error

    for base, folders, files in os.walk(folder, onerror=fail):
        yield from (Path(base, name).relative_to(folder) for name in sorted((*folders, *files)))


def _aside(folder: Path) -> Path:
    """Rename a folder to a free name beside it, and return that."""
    path = folder.absolute()
    count = 1
    while True:
        ending = ".earlier" if count == 1 else f".earlier-{count}"
        aside = path.with_name(f"{path.name}{ending}")
        if not os.path.lexists(aside):
            return path.rename(aside)
        count += 1


def _give_back(folder: Path | None, earlier: Path | None, made: bool) -> None:
    """Undo the start of a run that could not start; earlier files stay."""
    with contextlib.suppress(OSError):
        if made:
            shutil.rmtree(folder, ignore_errors=True)
        if earlier is not None:
            earlier.rename(folder)


def _delete(earlier: Path) -> bool:
    """Delete a run that was moved aside, unless a person has since added something to it."""
    try:
        if _foreign(earlier) is not None:
            return False
        shutil.rmtree(earlier)
    except (OSError, RunError):
        return False
    return True


def _read(folder: Path) -> Summary:
    file = folder / "summary.json"
    try:
        if file.is_symlink():
            raise RunError("Its summary.json is a symbolic link.")
        content = _files.read_bytes(file, _files.LARGEST_DATA)
        return Summary.model_validate_json(content)
    except FileNotFoundError:
        raise RunError("There is no summary.json of a run in it.") from None
    except OSError as error:
        raise RunError(f"Its summary.json cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise RunError("Its summary.json is not one of a run of jaxgrip.") from None


def _put(folder: Path, name: str, text: str) -> None:
    """Write a file as a whole or not at all: a reader never sees half of it."""
    draft = folder / f"{name}.part"
    if os.path.lexists(draft) and not _is_plain(draft):
        raise FileExistsError(errno.EEXIST, f"{configs.short(draft)} is in the way")
    try:
        draft.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(draft, folder / name)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _metadata(store: Path, without: str | None = None) -> dict[str, Any]:
    """Consolidated metadata of a zarr store; those of a group and its members may be left out."""
    file = store / ".zmetadata"
    if not file.exists():
        return {"metadata": {}, "zarr_consolidated_format": 1}
    found = json.loads(file.read_text())
    kept = (
        key for key in found["metadata"] if without is None or not key.startswith(f"{without}/")
    )
    return {**found, "metadata": {key: found["metadata"][key] for key in kept}}


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _remove(path: Path) -> None:
    """Remove a file or folder of ours, which another thread may also be removing."""
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _move(source: Path, target: Path) -> None:
    """Move the content of a folder into another: new folders as a whole, then files."""
    for entry in sorted(source.iterdir(), key=lambda e: (not e.is_dir(), e.name)):
        destination = target / entry.name
        if entry.is_dir() and destination.is_dir():
            _move(entry, destination)
        else:
            os.replace(entry, destination)


def _rejected(certificates: dict[str, Proof]) -> str | None:
    for name, proof in certificates.items():
        if not proof.passed:
            listed = ", ".join(
                f"{check.name} ({_size(check.value)}, allowed {_size(check.tolerance, 0)})"
                for check in proof.checks
                if not check.passed
            )
            return f"the solution of {name} is not certified: {listed}"
    return None


def _rows(results: dict[str, Result]) -> Iterator[tuple[str, str, str, tuple[str, str, str]]]:
    """Name, index in a list, unit, and the cells under `_COMPARED`."""
    for name, result in results.items():
        if result.published is None:
            continue
        listed = isinstance(result.published, list)
        if listed and all(isinstance(entry, int | str) for entry in result.published):
            # Counts, indices and names are read together, not one by one.
            same = result.value == result.published
            gap = ", " if any(isinstance(entry, str) for entry in result.published) else " "
            shown = [
                gap.join(map(str, part if isinstance(part, list) else [part]))
                for part in (result.published, result.value)
            ]
            yield name, "", result.unit, (*shown, "none" if same else "differs")
            continue
        ours = result.value if isinstance(result.value, list) else [result.value]
        published = result.published if listed else [result.published]
        for index in range(max(len(ours), len(published))):
            number = f"[{index + 1}]" if listed else ""
            left = published[index] if index < len(published) else None
            right = ours[index] if index < len(ours) else None
            both = _is_number(left) and _is_number(right)
            cells = (
                "–" if left is None else f"{left}",
                "–" if right is None else _number(right),
                f"{right - left:+.1e}" if both else "–",
            )
            yield name, number, result.unit, cells


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _number(value: Any) -> str:
    if value is None:
        return "not finite"
    return f"{value:.13g}" if isinstance(value, float) else str(value)


def _size(value: Any, digits: int = 1) -> str:
    if value is None:
        return "not finite"
    return f"{value:.{digits}e}" if _is_number(value) else str(value)


def _markdown(summary: Summary) -> str:
    lines = [f"# {_line(summary.title or summary.experiment)}", ""]
    if summary.error:
        lines += [f"**Failed:** {_line(summary.error).rstrip('.')}.", ""]
    lines += [f"Experiment `{summary.experiment}`, {_line(summary.device)}.", ""]
    results = {
        name: Result(value, summary.units.get(name, ""), summary.reference.get(name))
        for name, value in summary.results.items()
    }
    rows = list(_rows(results))
    if rows:
        lines += ["## Against the published values", ""]
        lines += ["| quantity | unit | published | ours | difference |", "|---|---|--:|--:|--:|"]
        lines += [_row(f"{name}{n}", unit, *cells) for name, n, unit, cells in rows] + [""]
    others = {name: r for name, r in results.items() if r.published is None}
    if others:
        lines += ["## Further results", "", "| quantity | unit | value |", "|---|---|--:|"]
        for name, result in others.items():
            listed = isinstance(result.value, list)
            shown = ", ".join(map(_number, result.value)) if listed else _number(result.value)
            lines.append(_row(name, result.unit, shown))
        lines.append("")
    for name, proof in summary.certificate.items():
        word = "passed" if proof.passed else "**not passed**"
        lines += [f"## Certificate of {_line(name)}: {word}", ""]
        lines += ["| check | value | allowed | passed | meaning |", "|---|--:|--:|---|---|"]
        for check in proof.checks:
            passed = "yes" if check.passed else "**no**"
            sizes = _size(check.value), _size(check.tolerance, 0)
            lines.append(_row(check.name, *sizes, passed, check.meaning))
        lines.append("")
    if summary.notes:
        lines += ["## Notes", "", *(line for note in summary.notes for line in _note(note)), ""]
    if summary.pictures:
        lines += ["## Pictures", ""]
        for picture in summary.pictures:
            caption = _line(picture.caption)
            file = urllib.parse.quote(picture.file)
            lines += [f"![{caption}](figures/{file})", "", f"*{caption}*", ""]
    timing = {"total_s": 0.0, "compile_s": 0.0, "stages": {}, **summary.timing}
    lines += [
        "## Time",
        "",
        f"{_seconds(timing['total_s'])} s in total, of which JAX compiled "
        f"{_seconds(timing['compile_s'])} s.",
        "",
    ]
    stages = timing["stages"]
    if isinstance(stages, dict) and stages:
        lines += ["| stage | s |", "|---|--:|"]
        lines += [_row(stage, _seconds(seconds)) for stage, seconds in stages.items()] + [""]
    if any(file.startswith("results.zarr/") for file in summary.files or ("results.zarr/",)):
        lines += [
            "## Read the arrays again",
            "",
            "```python",
            "import xarray",
            'xarray.open_datatree("results.zarr", engine="zarr")',
            "```",
            "",
        ]
    return "\n".join(lines)


def _note(text: str) -> Iterator[str]:
    """Items of a list: indented lines of a note are rows of a table below the others."""
    for indented, lines in itertools.groupby(text.splitlines(), lambda line: line.startswith(" ")):
        if indented:
            yield from (f"  * {_line(line)}" for line in lines)
        else:
            yield f"* {_line(' '.join(lines))}"


def _row(*cells: str) -> str:
    escaped = (_line(cell).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _line(text: str) -> str:
    return " ".join(text.split())


def _seconds(value: Any) -> str:
    return f"{value:.1f}" if _is_number(value) else "–"


def _words(text: Any) -> str:
    """Text that can be encoded: a name from a file system may have bytes that cannot."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def _result(name: str, value: Any) -> Any:
    try:
        return _plain(value)
    except (ValueError, TypeError):
        raise ValueError(
            f"The result {name!r} is a {type(value).__name__}; it must be a number, a word or a "
            "list of them."
        ) from None


def _plain(value: Any) -> Any:
    """Scalars and lists as JSON knows them; a number that is not finite becomes null.

    **Raises:** `ValueError` for anything else.
    """
    if value is None or isinstance(value, str):
        return None if value is None else _words(value)
    plain = np.asarray(value).tolist()
    if isinstance(plain, list):
        return [_plain(entry) for entry in plain]
    if isinstance(plain, float):
        return plain if math.isfinite(plain) else None
    if isinstance(plain, int) and plain.bit_length() < 64:
        return plain
    raise ValueError


@functools.cache
def _device() -> str:
    device = jax.devices()[0]
    if device.platform == "cpu":
        return f"cpu, {os.cpu_count()} cores, {platform.machine()}"
    return f"{device.platform}, {device.device_kind}"


@functools.cache
def _versions() -> dict[str, str]:
    packages = ("jaxgrip", "jax", "jaxlib", "equinox", "diffrax", "numpy")
    return {"python": platform.python_version(), **{p: version(p) for p in packages}}


def version(package: str) -> str:
    """Version of an installed package, or a note that it is only found on the path."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _hash(config: configs.Config) -> str:
    canonical = json.dumps(config.model_dump(), sort_keys=True, default=_fingerprint)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _fingerprint(value: Any) -> str:
    """A hash of a file's content instead of its path, so that moved files give the same."""
    if isinstance(value, Path) and value.is_file():
        return hashlib.sha256(value.read_bytes()).hexdigest()
    return str(value)
