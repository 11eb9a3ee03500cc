"""The command `jaxgrip`: run, check and list configurations, and compare with other packages."""

import contextlib
import os
import runpy
import shlex
import sys
import tempfile
import traceback
import warnings
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import rich.console
import typer
from rich.text import Text

from jaxgrip import _process

if TYPE_CHECKING:
    from jaxgrip.config import Config
    from jaxgrip.report import Run

app = typer.Typer(
    help="Differentiable robotics simulation and certified optimal control.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Brackets, as in [default: …] and in file names, are no markup.
    rich_markup_mode=None,
)


class _Console(rich.console.Console):
    """A console whose failure does not stop the run, as the results are in the run folder.

    `lost`: the error that ended its output, if any.
    """

    lost: OSError | None = None

    def print(self, *objects: Any, **options: Any) -> None:
        try:
            super().print(*objects, **options)
        except OSError as error:
            self._lose(error)

    def on_broken_pipe(self) -> None:
        self._lose(BrokenPipeError())

    def _lose(self, error: OSError) -> None:
        self.lost, self.quiet = error, True


# A log has no width.
_WIDE = 200
_plain = {"highlight": False, "markup": False, "emoji": False}
out = _Console(**_plain, width=None if sys.stdout and sys.stdout.isatty() else _WIDE)
err = _Console(**_plain, stderr=True, soft_wrap=True)


class Device(StrEnum):
    """Where JAX computes."""

    cpu = "cpu"
    gpu = "gpu"


ConfigArgument = Annotated[Path, typer.Argument(metavar="CONFIG", help="TOML file of the run")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="replace a value of the file; repeatable"),
]


def _version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import version

        versions = ", ".join(f"{name} {version(name)}" for name in ("jaxgrip", "jax", "jaxlib"))
        _say(f"{versions}, Python {sys.version.split()[0]}")
        raise typer.Exit
    return wanted


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="show versions and end"),
    ] = False,
) -> None:
    """Differentiable robotics simulation and certified optimal control."""


@app.command()
def run(
    config: ConfigArgument,
    set_: SetOption = None,
    out_: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="run folder [default: runs/NAME-<UTC time>]"),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace the earlier run in DIR")
    ] = False,
    device: Annotated[
        Device | None, typer.Option(help="where to compute [default: what JAX finds]")
    ] = None,
) -> None:
    """Compute what a configuration describes, and write the run folder."""
    settings, experiment = _load(config, set_, device)
    from jaxgrip import report

    told = (experiment.__doc__ or "").strip().splitlines()
    title = told[0] if told else ""
    try:
        current = report.start(
            config.stem, settings, out=out_, overwrite=overwrite, title=title, console=out
        )
    except report.RunError as error:
        _fail(str(error))
    _say(title, "bold")
    for line in told:
        if line.startswith("Takes "):
            _say(line)
    problem, code = _computed(experiment, settings, current)
    try:
        current.finish(problem)
    except report.RunError as error:
        problem, code = str(error), 1
    except OSError as error:
        _fail(f"{current.folder}: the summary cannot be written: {error.strerror}.", code or 1)
    for line in report.verdict(current):
        out.print(line, soft_wrap=True)
    if any(result.published is not None for result in current.results.values()):
        for line in report.comparison(current, out.width):
            out.print(line, soft_wrap=True)
    _where(current)
    if problem:
        _fail(problem, code)


@app.command()
def check(config: ConfigArgument, set_: SetOption = None) -> None:
    """Check a configuration without running it, and show it with every default filled in."""
    settings, _ = _load(config, set_, None)
    from jaxgrip.config import dumps, short

    # The output is a valid configuration.
    _say(dumps(settings))
    for sentence in settings.doubts():
        _say(f"# {sentence}")
    _say(f"# {short(config)}: is valid.")
    _check_shown()


@app.command("list")
def list_() -> None:
    """List the configurations of this project and what they compute."""
    from jaxgrip.config import ConfigError, experiments, read, short

    root = _project()
    if root is None:
        _fail("there is no folder experiments/ in this folder or in one above it.")
    known = experiments(root)
    rows = [("configuration", "experiment", "computes")]
    for file in sorted((root / "configs").glob("*.toml")):
        shown = shlex.quote(Path(os.path.relpath(file)).as_posix())
        try:
            name = short(read(file).get("experiment"), 100)
        except ConfigError as error:
            _warn(str(error))
            continue
        rows.append((short(shown), name, known.get(name, "(no such experiment)")))
    # Not a table, which would break long names, so that they cannot be copied.
    widths = [min(50, max(len(row[k]) for row in rows)) for k in range(2)]
    for row in rows:
        _say(f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}")
    _check_shown()


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="a run folder")],
) -> None:
    """Rewrite report.md of a run folder from its files, also after a kill."""
    from jaxgrip.config import short
    from jaxgrip.report import RunError, write_report

    try:
        _say(short(write_report(folder)))
    except RunError as error:
        _fail(f"{short(folder)}: {error}")
    except OSError as error:
        _fail(f"{short(folder)}: the report cannot be written: {error.strerror}.")


@app.command(context_settings={"ignore_unknown_options": True})
def bench(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENTS", help="passed on to experiments/benchmarks"),
    ] = None,
) -> None:
    """Compare speed and accuracy with other packages."""
    from jaxgrip.config import use_project

    root = _project()
    benchmarks = Path("experiments", "benchmarks", "__main__.py")
    if root is None or not (root / benchmarks).is_file():
        _fail(
            f"there is no {benchmarks} in this folder or in one above it; an installed jaxgrip has "
            "no benchmarks: use a checkout of its source."
        )
    _say(f"Project: {root}")
    use_project(root)
    sys.argv = ["jaxgrip bench", *(arguments or ())]
    runpy.run_module("experiments.benchmarks", run_name="__main__", alter_sys=True)


def main() -> None:
    """Entry point of the command line."""
    from jaxgrip.__main__ import main

    main()


def guarded() -> None:
    """Run the command line; a fault of jaxgrip itself also gives one sentence."""
    warnings.showwarning = _show_warning
    try:
        app(prog_name="jaxgrip")
    except Exception as error:
        name, kept = f"{type(error).__name__}: {' '.join(str(error).split())}", ""
        with contextlib.suppress(OSError):
            file, kept = tempfile.mkstemp(prefix="jaxgrip-", suffix=".txt", text=True)
            os.write(file, traceback.format_exc().encode(errors="backslashreplace"))
        with contextlib.suppress(typer.Exit):
            _fail(f"{name} (a fault of jaxgrip itself; details in {kept or 'no file'})")
        sys.exit(1)


def _load(config: Path, set_: list[str] | None, device: Device | None) -> "tuple[Config, Any]":
    from jaxgrip.config import ConfigError, find

    try:
        task = find(config, set_ or ())
        # Checked before anything of it is executed.
        _say(f"# Project: {task.root}", "dim")
        _prepare_jax(device)
        return task.load()
    except ConfigError as error:
        _fail(str(error))


def _project() -> Path | None:
    from jaxgrip.config import project_root

    try:
        return project_root(Path.cwd())
    except OSError as error:
        _fail(f"the folder you are in cannot be read: {error.strerror}.")


def _computed(experiment: ModuleType, settings: "Config", current: "Run") -> tuple[str | None, int]:
    """Run the experiment; the reason why it failed in one sentence, and the exit status."""
    try:
        with _process.at_stop(lambda words: _stopped(current, words)):
            experiment.run(settings, current)
    except KeyboardInterrupt:
        return "interrupted by the user", 130
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) and 0 < stop.code < 256 else 1
        return f"the experiment ended itself by sys.exit({stop.code!r})", code
    except OSError as error:
        kept = current.keep_traceback()
        about = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror or error}{about} ({kept})", 1
    except (RuntimeError, ValueError, FloatingPointError) as error:
        current.keep_traceback()
        return " ".join(str(error).split()), 1
    except BaseException as error:
        kept = current.keep_traceback()
        return f"{type(error).__name__}: {' '.join(str(error).split())} ({kept})", 1
    return None, 0


def _stopped(current: "Run", words: str) -> None:
    """Handle a signal, in a thread of its own."""
    try:
        current.stop(words)
    except OSError as error:
        words = f"{words}; the summary cannot be written: {error.strerror}"
    _where(current)
    with contextlib.suppress(typer.Exit):
        _fail(words)


def _where(current: "Run") -> None:
    from jaxgrip.config import short

    _say(f"Run folder: {short(current.folder)}")
    if current.earlier is not None:
        _say(f"The run before it is kept: {short(current.earlier)}")
    if out.lost is not None and not isinstance(out.lost, BrokenPipeError):
        _warn(f"output could not be shown: {out.lost.strerror}; the run folder has it.")


def _prepare_jax(device: Device | None) -> None:
    import jax
    import threadpoolctl

    from jaxgrip.precision import enable_x64

    enable_x64()
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        # On matrices of a hundred rows OpenBLAS's threads compete with XLA's for the cores, a
        # hundredfold slowdown under load. It is already loaded and no longer reads its variable.
        threadpoolctl.threadpool_limits(1, user_api="blas")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        jax.config.update("jax_compilation_cache_dir", str(Path(cache) / "jaxgrip" / "jax"))
    # A run compiles many small functions besides the large ones; together they take seconds.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if device is Device.cpu:
        jax.config.update("jax_platforms", "cpu")
    try:
        jax.devices(device.value if device else None)
    except RuntimeError as error:
        wanted = f"--device {device.value}" if device else "JAX_PLATFORMS"
        _fail(f"{wanted}: JAX finds no such device here ({str(error).splitlines()[0]}).")


def _say(text: str, style: str | None = None) -> None:
    out.print(Text(text, style or ""), soft_wrap=True)


def _check_shown() -> None:
    if out.lost is not None and not isinstance(out.lost, BrokenPipeError):
        _fail(f"the output cannot be written: {out.lost.strerror}.")


def _warn(sentence: str) -> None:
    _complain("warning", "yellow", sentence)


def _fail(sentence: str, code: int = 1) -> NoReturn:
    _complain("error", "red", sentence)
    raise typer.Exit(code)


def _complain(word: str, colour: str, sentence: str) -> None:
    from jaxgrip.config import short

    for line in sentence.splitlines():
        err.print(Text.assemble((f"{word}:", colour), f" {short(line, 2000)}"))


def _show_warning(message: Warning, category: type[Warning], *place: Any) -> None:
    """Show a warning of Python as a sentence, without the line of code it comes from."""
    text = str(message)
    broken = "Error reading persistent compilation cache entry for '"
    if text.startswith(broken):
        # A kill or a full disk has truncated it, and JAX does not rewrite an existing entry.
        import jax

        name = text.removeprefix(broken).partition("'")[0]
        folder = jax.config.jax_compilation_cache_dir
        for entry in Path(folder).glob(f"{name}-*") if folder else ():
            entry.unlink(missing_ok=True)
        return
    _warn(text)


if __name__ == "__main__":
    main()
