"""Typed run configurations: TOML in, one sentence out when something is wrong."""

import ast
import difflib
import importlib.util
import json
import math
import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pydantic

Real = Annotated[float, pydantic.Strict()]


class ConfigError(ValueError):
    """A configuration cannot be used; the message says where, what and what is allowed."""


class Section(pydantic.BaseModel):
    """A table of a configuration: immutable, without unknown keys, NaN or infinity."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True
    )


class Config(Section):
    """The whole configuration of a run; an experiment subclasses it and names it `Config`."""

    experiment: str = pydantic.Field(description="file under experiments/, without .py")


def read(path: Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Read a TOML file and put `key.path=value` overrides on top.

    **Arguments:** `path` of the file; `overrides`, each `key.path=value` with a TOML value
    (a value that is not TOML counts as a string).

    **Returns:** the nested dictionary, not yet checked against a schema.

    **Raises:** `ConfigError` for a missing or malformed file or override.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        beside = [p.name for p in path.parent.glob("*.toml")]
        raise ConfigError(f"{path}: there is no such file{hint(path.name, beside)}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}).") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not valid TOML: {error}.") from None
    for override in overrides:
        _override(raw, override)
    return raw


def load(path: Path, overrides: Iterable[str] = ()) -> tuple[Config, ModuleType]:
    """Read a configuration, find its experiment and check the one against the other.

    **Arguments:** `path` of the TOML file; `overrides`, each `key.path=value`.

    **Returns:** the typed configuration and the module of the experiment (`Config`, `run`).

    **Raises:** `ConfigError` with one sentence per mistake.
    """
    overrides = list(overrides)
    raw = read(path, overrides)
    source = f"{path} with --set" if overrides else str(path)
    name = raw.get("experiment")
    if not isinstance(name, str) or not re.fullmatch(r"\w+(/\w+)*", name):
        raise ConfigError(
            f"{source}: experiment: must name a file under experiments/ without its ending, "
            f'such as "gripper/time_optimal", but is {_shown(name)}.'
        )
    module = _experiment(name, path, source)
    config = validate(module.Config, raw, source)
    return config, module


def validate(schema: type[Config], raw: dict[str, Any], source: str) -> Config:
    """Check a nested dictionary against a schema.

    **Arguments:** `schema`, the experiment's `Config`; `raw`, the dictionary; `source`, the name
    of the file for messages.

    **Returns:** the typed configuration.

    **Raises:** `ConfigError` with one line per mistake: file, key, what is wrong, what is allowed.
    """
    try:
        return schema.model_validate(raw)
    except pydantic.ValidationError as error:
        sentences = {}
        for detail in error.errors(include_url=False):
            key, sentence = _explain(schema, raw, detail)
            sentences.setdefault(
                key, f"{source}: {key}: {sentence}" if key else f"{source}: {sentence}"
            )
        raise ConfigError("\n".join(sentences.values())) from None


def dumps(config: Section) -> str:
    """Write a configuration as TOML, every key with its description as a comment.

    **Arguments:** `config`, a validated configuration.

    **Returns:** TOML text that `read` and `validate` turn into the same configuration.
    """
    return "\n".join(_toml_lines(config, ())) + "\n"


def experiments(root: Path) -> dict[str, str]:
    """Name and first docstring line of every experiment under `root`/experiments, unimported."""
    found = {}
    for file in sorted((root / "experiments").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if hasattr(node, "name")}
        if {"Config", "run"} <= defined:
            name = file.relative_to(root / "experiments").with_suffix("").as_posix()
            found[name] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def project_root(start: Path) -> Path | None:
    """First folder at or above `start` that holds a folder `experiments`, or None."""
    start = start.resolve()
    return next((p for p in (start, *start.parents) if (p / "experiments").is_dir()), None)


def _experiment(name: str, path: Path, source: str) -> ModuleType:
    roots = [r for r in (project_root(path.parent), project_root(Path.cwd())) if r is not None]
    for root in roots:
        file = root / "experiments" / f"{name}.py"
        if file.is_file():
            return _import(file, f"jaxgrip_experiment.{name.replace('/', '.')}")
    if not roots:
        raise ConfigError(
            f"{source}: experiment: there is no folder experiments/ beside or above the file, "
            "nor beside or above the working directory."
        )
    known = sorted({known for root in roots for known in experiments(root)})
    raise ConfigError(
        f'{source}: experiment: there is no "{name}" in {roots[0] / "experiments"}'
        f"{hint(name, known)}; known are {', '.join(known) or 'none'}."
    )


def _import(file: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{file}: cannot be loaded: {type(error).__name__}: {error}.") from error
    for needed in ("Config", "run"):
        if not hasattr(module, needed):
            raise ConfigError(f"{file}: must define {needed}, as every experiment does.")
    return module


def _override(raw: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys) or "\n" in text:
        raise ConfigError(f'--set {override}: must look like key.path=value, such as "a.b=0.1".')
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    table = raw
    for depth, key in enumerate(keys[:-1], start=1):
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {override}: {'.'.join(keys[:depth])} is not a table.")
    table[keys[-1]] = value


def _explain(schema: type[Section], raw: dict[str, Any], detail: dict) -> tuple[str, str]:
    """Key and sentence of one entry of `pydantic.ValidationError.errors()`."""
    location = tuple(detail["loc"])
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "missing" and location and isinstance(location[-1], int):
        # A tuple that is too short is reported by its absent entries: speak of the whole instead.
        kind, location = "length", location[:-1]
        given = _lookup(raw, location)
    names = tuple(part for part in location if isinstance(part, str))
    places = [str(part + 1) for part in location if isinstance(part, int)]
    key = ".".join(names) + (f", entry {' of entry '.join(reversed(places))}" if places else "")

    if kind == "extra_forbidden":
        known = list(_model_at(schema, names[:-1]).model_fields)
        like = hint(names[-1], known)
        return key, f"is not a known key{like}; known here are {', '.join(known)}."
    if kind == "missing":
        return key, f"is missing{_what(schema, names)}."
    if kind in ("length", "too_long", "too_short"):
        entries = "1 entry" if len(given) == 1 else f"{len(given)} entries"
        return key, f"has {entries}{_what(schema, names)}."
    if kind == "finite_number":
        return key, f"is {given}, but must be a finite number."
    if kind == "value_error":
        return key, f"{str(context['error']).rstrip('.')}."
    message = detail["msg"]
    message = re.sub(r"^Input should be ", "must be ", message)
    message = message.replace("a valid number", "a number").replace("a valid tuple", "an array")
    message = re.sub(r"a valid dictionary or instance of \w+", "a table", message)
    return key, f"{message}, but is {_shown(given)}."


def _what(schema: type[Section], names: Sequence[str]) -> str:
    model = _model_at(schema, names[:-1])
    field = model.model_fields.get(names[-1]) if model else None
    return f"; needed: {field.description}" if field is not None and field.description else ""


def _model_at(schema: type[Section], names: Iterable[str]) -> type[Section] | None:
    for name in names:
        schema = schema.model_fields[name].annotation
        if not (isinstance(schema, type) and issubclass(schema, pydantic.BaseModel)):
            return None
    return schema


def _lookup(raw: Any, location: Iterable[str | int]) -> Any:
    for part in location:
        raw = raw[part]
    return raw


def hint(name: str, known: Iterable[str]) -> str:
    """The known name closest to one that is not, in brackets; empty where none is close."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _shown(value: Any) -> str:
    text = "missing" if value is None else _toml_value(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _toml_lines(section: Section, path: tuple[str, ...]) -> Iterable[str]:
    tables = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            tables.append((name, value, field.description))
        elif value is not None:
            comment = f"  # {field.description}" if field.description else ""
            yield f"{name} = {_toml_value(value)}{comment}"
    for name, value, description in tables:
        comment = f"  # {description}" if description else ""
        if any(not isinstance(entry, Section) for _, entry in value):
            yield from ("", f"[{'.'.join((*path, name))}]{comment}")
        yield from _toml_lines(value, (*path, name))


def _toml_value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value) if math.isfinite(value) else str(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case dict():
            return "{" + ", ".join(f"{k} = {_toml_value(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_toml_value, value)) + "]"
        case _:
            return str(value)
