"""The command `jaxgrip`: run, check and list configurations, and compare with other packages."""

import os
import subprocess
import sys
import traceback
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import rich.console
import threadpoolctl
import typer

app = typer.Typer(
    help="Differentiable robotics simulation and certified optimal control.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
out = rich.console.Console(highlight=False)
err = rich.console.Console(stderr=True, highlight=False, soft_wrap=True)


class Device(StrEnum):
    """Where JAX computes."""

    cpu = "cpu"
    gpu = "gpu"


ConfigArgument = Annotated[Path, typer.Argument(help="TOML file of the run", show_default=False)]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="replace a value of the file; repeatable"),
]


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
    from jaxgrip.config import ConfigError, load

    _prepare_jax(device)
    try:
        settings, experiment = load(config, set_ or ())
        from jaxgrip import report

        folder = report.open_folder(config.stem, out_, overwrite=overwrite)
    except (ConfigError, RuntimeError) as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"--out {out_}: the run folder cannot be made ({error.strerror}).")
    title = (experiment.__doc__ or "").partition("\n")[0]
    out.print(f"[bold]{title}[/bold]")
    current = report.Run(folder, settings, title=title, console=out)
    problem, code = None, 1
    try:
        experiment.run(settings, current)
    except KeyboardInterrupt:
        problem, code = "interrupted by the user", 130
    except (ConfigError, RuntimeError, ValueError, FloatingPointError) as error:
        problem = " ".join(str(error).split())
        _keep_traceback(folder)
    except Exception as error:
        kept = _keep_traceback(folder)
        problem = f"{type(error).__name__}: {' '.join(str(error).split())} (details in {kept})"
    try:
        current.finish(problem)
    except report.RunError as error:
        problem = str(error)
    for line in report.verdict(current):
        out.print(line, soft_wrap=True)
    if any(result.published is not None for result in current.results.values()):
        out.print(report.comparison(current))
    out.print(f"Run folder: {folder}", soft_wrap=True)
    if problem:
        _fail(problem, code)


@app.command()
def check(config: ConfigArgument, set_: SetOption = None) -> None:
    """Check a configuration without running it, and show it with every default filled in."""
    from jaxgrip.config import ConfigError, dumps, load

    _prepare_jax(None)
    try:
        settings, _ = load(config, set_ or ())
    except ConfigError as error:
        _fail(str(error))
    out.print(dumps(settings), markup=False, soft_wrap=True)
    out.print(f"{config}: is valid.", soft_wrap=True)


@app.command("list")
def list_() -> None:
    """List the configurations of this project and what they compute."""
    import rich.table

    from jaxgrip.config import ConfigError, experiments, project_root, read

    root = project_root(Path.cwd())
    if root is None:
        _fail("there is no folder experiments/ in this folder or in one above it.")
    known = experiments(root)
    table = rich.table.Table(box=None, pad_edge=False)
    for heading in ("configuration", "experiment", "computes"):
        table.add_column(heading, overflow="fold")
    for file in sorted((root / "configs").glob("*.toml")):
        shown = Path(os.path.relpath(file)).as_posix()
        try:
            name = str(read(file).get("experiment"))
        except ConfigError as error:
            err.print(str(error), markup=False)
            continue
        table.add_row(shown, name, known.get(name, "(no such experiment)"))
    out.print(table)


@app.command(context_settings={"ignore_unknown_options": True})
def bench(
    arguments: Annotated[
        list[str] | None, typer.Argument(help="handed on to experiments/benchmarks")
    ] = None,
) -> None:
    """Compare speed and accuracy with other packages."""
    from jaxgrip.config import project_root

    root = project_root(Path.cwd())
    if root is None or not (root / "experiments" / "benchmarks" / "__main__.py").is_file():
        _fail("there is no experiments/benchmarks/__main__.py in this folder or in one above it.")
    command = [sys.executable, "-m", "experiments.benchmarks", *(arguments or ())]
    raise typer.Exit(subprocess.run(command, cwd=root, check=False).returncode)


def main() -> None:
    """Entry point of the command line."""
    app()


def _prepare_jax(device: Device | None) -> None:
    import jax

    from jaxgrip.precision import enable_x64

    enable_x64()
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        # On matrices of a hundred rows OpenBLAS's threads fight with XLA's for the cores, a
        # hundredfold slowdown under load. It is loaded by now and no longer reads its variable.
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


def _keep_traceback(folder: Path) -> Path:
    file = folder / "traceback.txt"
    file.write_text(traceback.format_exc(), encoding="utf-8")
    return file


def _fail(sentence: str, code: int = 1) -> None:
    for line in sentence.splitlines():
        err.print("[red]error:[/red]", end=" ")
        err.print(line, markup=False)
    raise typer.Exit(code)


if __name__ == "__main__":
    main()
