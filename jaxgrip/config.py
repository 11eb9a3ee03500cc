"""Typed run configurations from TOML; every mistake gives one sentence."""

import ast
import importlib
import importlib.util
import json
import math
import re
import stat
import sys
import tomllib
import types
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args

import pydantic

from jaxgrip import _files
from jaxgrip._names import closest

Real = Annotated[float, pydantic.Strict()]

# Beyond these a file is a mistake or an attack: TOML's integers have 64 bits, and nothing that a
# person writes is nested deeper or longer.
DEEPEST = 50
TOO_LONG = "an integer has more than 64 bits"
# Number of mistakes reported.
MOST = 10


class ConfigError(ValueError):
    """A configuration cannot be used; the message says where and why, and what is allowed."""


class Section(pydantic.BaseModel):
    """A table of a configuration: immutable, without unknown keys, NaN or infinity."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True
    )


class Config(Section):
    """The whole configuration of a run; an experiment subclasses it and names it `Config`."""

    experiment: str = pydantic.Field(description="file under experiments/, without .py")

    def doubts(self) -> tuple[str, ...]:
        """Sentences on what is allowed but hardly meant."""
        return ()


class _Typed(str):
    """A string given by `--set`: as a path it is relative to the working directory."""


def _existing(value: Any, info: Any) -> Any:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str):
        raise ValueError(f"must be a path, but is {_shown(value)}")
    folder = (info.context or {}).get("folder")
    own = folder is not None and not isinstance(value, _Typed)
    path = (folder if own else Path.cwd()) / value
    try:
        if path.exists():
            return path.resolve()
    except (OSError, ValueError):
        pass
    where = "of the configuration" if own else "you are in"
    raise ValueError(
        f"there is no {_shown(value)} in {short(path.parent)}; paths are relative to the folder "
        f"{where}"
    )


InputPath = Annotated[Path, pydantic.BeforeValidator(_existing)]
"""A file or folder that must exist: relative to the configuration, or to the working directory
when it is given by `--set`."""


def _distinct(values: Any) -> Any:
    for count, value in enumerate(values, start=1):
        if value in values[: count - 1]:
            raise ValueError(f"entry {count} repeats {_shown(value)}; every entry may occur once")
    return values


_Entries = TypeVar("_Entries")
Distinct = Annotated[_Entries, pydantic.AfterValidator(_distinct)]
"""`Distinct[tuple[int, ...]]`: an array in which no entry occurs twice."""


class Task(NamedTuple):
    """A configuration that has been read, and where its experiment is; nothing of it has run.

    `path` of the file, `raw` content, `source` for messages, `root` of the project, `name` of
    the experiment.
    """

    path: Path
    raw: dict[str, Any]
    source: str
    root: Path
    name: str

    def load(self) -> tuple[Config, ModuleType]:
        """Import the experiment from the project, and check the configuration against it.

        **Returns:** the typed configuration and the module of the experiment (`Config`, `run`).

        **Raises:** `ConfigError` with one sentence per mistake.
        """
        module = _experiment(self)
        folder = _folder(self.path)
        return validate(module.Config, self.raw, self.source, folder), module


def read(path: Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Read a TOML file and apply `key.path=value` overrides.

    **Arguments:** `path` of the file; `overrides`, each `key.path=value` with a TOML value
    (a value that is not TOML counts as a string).

    **Returns:** the nested dictionary, not yet checked against a schema.

    **Raises:** `ConfigError` for a missing or malformed file or override.
    """
    raw = parsed(path, "TOML", tomllib.loads)
    for override in overrides:
        _override(raw, override)
    return raw


def parsed(path: Path, language: str, parse: Any) -> Any:
    """Result of `parse` for the text of a file, with bounded size, depth and integers.

    **Arguments:** `path`; `language`, its name for messages; `parse`, from text to nested
    dictionaries and lists, raising `ValueError` where it cannot.

    **Raises:** `ConfigError` with a sentence that names the file.
    """
    name = short(path)
    try:
        data = parse(_text(path, name))
        _check_nesting(data)
        return data
    except ConfigError:
        raise
    except RecursionError:
        raise ConfigError(
            f"{name}: is nested too deep; tables and arrays go {DEEPEST} deep at most."
        ) from None
    except ValueError as error:
        # Python's own message on thousands of digits is for programmers.
        what = TOO_LONG if "integer string conversion" in str(error) else short(error, 300)
        raise ConfigError(f"{name}: is not valid {language}: {what}.") from None


def find(path: Path, overrides: Iterable[str] = ()) -> Task:
    """Read a configuration and find the project whose experiment it names; execute nothing.

    The project is that of the file, see `project_root`; a file in none has the experiments of
    jaxgrip's own checkout.

    **Arguments:** `path` of the TOML file; `overrides`, each `key.path=value`.

    **Raises:** `ConfigError` with a sentence.
    """
    overrides = list(overrides)
    raw = read(path, overrides)
    source = f"{short(path)} with --set" if overrides else short(path)
    name = raw.get("experiment")
    if not isinstance(name, str) or not re.fullmatch(r"\w+(/\w+)*", name):
        raise ConfigError(
            f"{source}: experiment: must name a file under experiments/ without its ending, "
            f'such as "gripper/time_optimal", but is {_shown(name)}.'
        )
    root = project_root(_folder(path)) or _own_project()
    if root is None:
        raise ConfigError(
            f"{source}: experiment: there is no folder experiments/ beside or above the file (the "
            "search ends at the first folder with .git, and at your home folder), and an installed "
            "jaxgrip has none; put the file into the project of its experiment, or use a checkout "
            "of jaxgrip's source."
        )
    return Task(path, raw, source, root, name)


def load(path: Path, overrides: Iterable[str] = ()) -> tuple[Config, ModuleType]:
    """Read a configuration, find its experiment and check the one against the other.

    **Arguments:** `path` of the TOML file; `overrides`, each `key.path=value`.

    **Returns:** the typed configuration and the module of the experiment (`Config`, `run`).

    **Raises:** `ConfigError` with one sentence per mistake.
    """
    return find(path, overrides).load()


def validate(
    schema: type[Config], raw: dict[str, Any], source: str, folder: Path | None = None
) -> Config:
    """Check a nested dictionary against a schema.

    **Arguments:** `schema`, the experiment's `Config`; `raw`, the dictionary; `source`, the name
    of the file for messages; `folder` to which its paths are relative, by default the working
    directory.

    **Returns:** the typed configuration.

    **Raises:** `ConfigError` with one line per mistake: file, key, what is wrong, what is allowed.
    """
    try:
        config = schema.model_validate(raw, context={"folder": folder})
    except pydantic.ValidationError as error:
        mistakes = error.errors(include_url=False)
        explained = (_explain(schema, raw, detail) for detail in mistakes[: 2 * MOST])
        _raise(source, explained, len(mistakes))
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{source}: the experiment cannot check it: {_named(error)}.") from error
    mistakes = list(_converted(raw, config))
    if mistakes:
        _raise(source, mistakes, len(mistakes))
    return config


def dumps(config: Section) -> str:
    """Write a configuration as TOML, every key with its description as a comment.

    **Arguments:** `config`, a validated configuration.

    **Returns:** TOML text that `read` and `validate` turn into the same configuration.
    """
    return "\n".join(_toml_lines(config, ())) + "\n"


def experiments(root: Path) -> dict[str, str]:
    """Name and first docstring line of every experiment under `root`/experiments, not imported.

    A file that cannot be read as Python is left out.
    """
    found = {}
    for file in sorted((root / "experiments").rglob("*.py")):
        try:
            tree = ast.parse(_files.read_bytes(file, _files.LARGEST_TEXT))
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        defined = {node.name for node in tree.body if hasattr(node, "name")}
        if {"Config", "run"} <= defined:
            name = file.relative_to(root / "experiments").with_suffix("").as_posix()
            found[name] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def project_root(start: Path) -> Path | None:
    """First folder at or above `start` that contains a folder `experiments`, or None.

    The search ends at the first folder that contains `.git`, at the user's own folder, and where
    anyone may leave files, as in `/tmp`.
    """
    start = start.resolve()
    try:
        home = Path.home().resolve()
    except RuntimeError:
        home = None
    shared = stat.S_ISVTX | stat.S_IWOTH
    for folder in (start, *start.parents):
        try:
            if folder.stat().st_mode & shared == shared:
                return None
            if (folder / "experiments").is_dir():
                return folder
            if folder == home or (folder / ".git").exists():
                return None
        except OSError:
            return None
    return None


def use_project(root: Path) -> None:
    """Import `experiments` from `root`, whatever other package of this name could be imported.

    Its modules may import each other as `experiments.folder.module`.
    """
    where = [str(root / "experiments")]
    known = sys.modules.get("experiments")
    # A list, not the path that Python would make, which grows with sys.path.
    if known is not None and known.__path__ == where:
        return
    for name in [n for n in sys.modules if n.partition(".")[0] == "experiments"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    begin = root / "experiments" / "__init__.py"
    if begin.is_file():
        spec = importlib.util.spec_from_file_location(
            "experiments", begin, submodule_search_locations=where
        )
        package = importlib.util.module_from_spec(spec)
        sys.modules["experiments"] = package
        spec.loader.exec_module(package)
    else:
        package = types.ModuleType("experiments")
        sys.modules["experiments"] = package
    package.__path__ = where


def hint(name: str, known: Iterable[str]) -> str:
    """The known name closest to an unknown one, in brackets; empty where none is close."""
    near = closest(name, known)
    return f" (did you mean {near}?)" if near else ""


def short(text: Any, most: int = 400) -> str:
    """Text for a message: on one line, without control characters, its middle cut when long."""
    whole = str(text)
    if len(whole) > 20 * most:
        whole = whole[: 10 * most] + whole[-10 * most :]
    line = " ".join(whole.split())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    half = most // 2
    return line if len(line) <= most else f"{line[:half]}…{line[half + 1 - most :]}"


def _own_project() -> Path | None:
    root = Path(__file__).resolve().parents[1]
    # Beside an installed package stand those of others.
    own = (root / "pyproject.toml").is_file() and (root / "experiments").is_dir()
    return root if own else None


def _folder(path: Path) -> Path:
    return path.absolute().parent


def _text(path: Path, name: str) -> str:
    try:
        return _files.read_text(path, _files.LARGEST_TEXT)
    except FileNotFoundError:
        raise ConfigError(f"{name}: there is no such file{_beside(path)}.") from None
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}.") from None


def _beside(path: Path) -> str:
    try:
        return hint(path.name, [p.name for p in path.parent.glob(f"*{path.suffix}")])
    except (OSError, ValueError, NotImplementedError):
        return ""


def _check_nesting(data: Any) -> None:
    """Raise `RecursionError` for data nested too deep, `ValueError` for integers too large."""
    level = [data]
    for _ in range(DEEPEST + 1):
        for value in level:
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise ValueError(TOO_LONG)
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise RecursionError


def _experiment(task: Task) -> ModuleType:
    file = task.root / "experiments" / f"{task.name}.py"
    try:
        there = file.is_file()
    except OSError:
        there = False
    if not there:
        known = sorted(experiments(task.root))
        raise ConfigError(
            f'{task.source}: experiment: there is no "{short(task.name, 60)}" in '
            f"{short(task.root / 'experiments')}{hint(task.name, known)}; known are "
            f"{', '.join(known) or 'none'}."
        )
    try:
        use_project(task.root)
        module = importlib.import_module(f"experiments.{task.name.replace('/', '.')}")
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{short(file)}: cannot be loaded: {_named(error)}.") from error
    schema = getattr(module, "Config", None)
    if not (isinstance(schema, type) and issubclass(schema, Config)):
        raise ConfigError(
            f"{short(file)}: must define Config, a class derived from jaxgrip.config.Config."
        )
    if not callable(getattr(module, "run", None)):
        raise ConfigError(f"{short(file)}: must define run, a function of settings and run.")
    return module


def _named(error: BaseException) -> str:
    return short(f"{type(error).__name__}: {error}", 300).rstrip(".")


def _override(raw: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    said = f"--set {short(override)}"
    if not equals or not all(keys) or "\n" in text:
        raise ConfigError(f'{said}: must look like key.path=value, such as "a.b=0.1".')
    if len(keys) > DEEPEST or len(text) > _files.LARGEST_TEXT:
        raise ConfigError(f"{said}: is too long or nested too deep.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
        _check_nesting(value)
    except tomllib.TOMLDecodeError:
        value = text.strip()
    except (ValueError, RecursionError):
        raise ConfigError(f"{said}: {TOO_LONG}, or it is nested too deep.") from None
    table = raw
    for depth, key in enumerate(keys[:-1], start=1):
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{said}: {short('.'.join(keys[:depth]))} is not a table.")
    table[keys[-1]] = _typed(value)


def _typed(value: Any) -> Any:
    match value:
        case str():
            return _Typed(value)
        case list():
            return [_typed(entry) for entry in value]
        case dict():
            return {key: _typed(entry) for key, entry in value.items()}
    return value


def _raise(source: str, mistakes: Iterable[tuple[str, str]], count: int) -> None:
    """Raise `ConfigError` with the first few of `count` mistakes, each a key and a sentence."""
    sentences = {}
    for key, sentence in mistakes:
        sentences.setdefault(key, f"{source}: {f'{key}: ' if key else ''}{short(sentence, 500)}")
    shown = list(sentences.values())[:MOST]
    if count > 2 * MOST:
        shown.append(f"{source}: has {count - len(shown)} more mistakes.")
    raise ConfigError("\n".join(shown)) from None


_WORDS = {
    r"a valid integer.*": "a whole number",
    r"a valid boolean.*": "true or false",
    r"a valid number.*": "a number",
    r"a valid string.*": "a string",
    r"a valid tuple": "an array",
    r"a valid dictionary or instance of \w+": "a table",
    r"^Input should be ": "must be ",
}


def _explain(schema: type[Section], raw: dict[str, Any], detail: dict) -> tuple[str, str]:
    """Key and sentence of one entry of `pydantic.ValidationError.errors()`."""
    location = tuple(detail["loc"])
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "missing" and location and isinstance(location[-1], int):
        # A tuple that is too short is reported by its absent entries: report the whole instead.
        kind, location = "length", location[:-1]
        given = _lookup(raw, location)
    names = tuple(part for part in location if isinstance(part, str))
    key = _key_of(location)

    if kind == "extra_forbidden":
        table = _model_at(schema, names[:-1])
        known = list(table.model_fields) if table else []
        like = hint(names[-1], known)
        return key, f"is not a known key{like}; known here are {', '.join(known) or 'none'}."
    if kind == "missing":
        return key, f"is missing{_what(schema, names)}."
    if kind in ("length", "too_long", "too_short"):
        count = len(given) if isinstance(given, list | tuple) else 0
        return key, f"has {count} {'entry' if count == 1 else 'entries'}{_what(schema, names)}."
    if kind == "finite_number":
        return key, f"is {given}, but must be a finite number."
    if kind == "value_error":
        return key, f"{str(context['error']).rstrip('.')}."
    if kind.startswith(("greater_than", "less_than")) and not _is(given, "a number"):
        return key, f"must be a number, but is {_shown(given)}."
    message = detail["msg"]
    for theirs, ours in _WORDS.items():
        message = re.sub(theirs, ours, message)
    return key, f"{message}, but is {_shown(given)}."


def _key_of(location: Sequence[str | int]) -> str:
    names = ".".join(short(part, 60) for part in location if isinstance(part, str))
    numbers = [str(part + 1) for part in location if isinstance(part, int)]
    return names + (f", entry {' of entry '.join(reversed(numbers))}" if numbers else "")


def _converted(
    raw: Any, value: Any, location: tuple[str | int, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Keys whose value was silently converted to another kind, such as true to the number 1.

    **Arguments:** `raw` as given; `value` as validated.
    """
    if isinstance(raw, dict):
        for name, given in raw.items():
            inner = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
            yield from _converted(given, inner, (*location, name))
    elif isinstance(raw, list) and isinstance(value, list | tuple) and len(raw) == len(value):
        for index, (given, inner) in enumerate(zip(raw, value, strict=True)):
            yield from _converted(given, inner, (*location, index))
    elif (wanted := _kind(value)) and not _is(raw, wanted):
        yield _key_of(location), f"must be {wanted}, but is {_shown(raw)}."


def _is(raw: Any, wanted: str) -> bool:
    found = _kind(raw)
    return found in (None, wanted) or (found, wanted) == ("a whole number", "a number")


def _kind(value: Any) -> str | None:
    match value:
        case bool():
            return "true or false"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case str():
            return "a string"
    return None


def _what(schema: type[Section], names: Sequence[str]) -> str:
    model = _model_at(schema, names[:-1])
    field = model.model_fields.get(names[-1]) if model and names else None
    return f"; needed: {field.description}" if field is not None and field.description else ""


def _model_at(schema: type[Section], names: Iterable[str]) -> type[Section] | None:
    """The class of a table within another; None for one without a class, as in a dictionary."""
    for name in names:
        field = schema.model_fields.get(name)
        kinds = (field.annotation, *get_args(field.annotation)) if field else ()
        schema = next((k for k in kinds if isinstance(k, type) and issubclass(k, Section)), None)
        if schema is None:
            return None
    return schema


def _lookup(raw: Any, location: Iterable[str | int]) -> Any:
    try:
        for part in location:
            raw = raw[part]
    except (KeyError, IndexError, TypeError):
        # Not in the file: the experiment has put it there.
        return None
    return raw


def _shown(value: Any) -> str:
    return short("missing" if value is None else _toml_value(value), 60)


def _toml_lines(section: Section, path: tuple[str, ...]) -> Iterable[str]:
    tables = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        description = " ".join((field.description or "").split())
        comment = f"  # {description}" if description else ""
        if isinstance(value, Section):
            tables.append((name, value, comment))
        elif value is not None:
            yield f"{name} = {_toml_value(value)}{comment}"
    for name, value, comment in tables:
        if any(not isinstance(entry, Section) for _, entry in value):
            yield from ("", f"[{'.'.join((*path, name))}]{comment}")
        yield from _toml_lines(value, (*path, name))


def _toml_value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value) if math.isfinite(value) else str(value)
        case str() | Path():
            # JSON does not escape this character, and TOML does not allow it.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case Section():
            return _toml_value({k: v for k, v in value if v is not None})
        case dict():
            return (
                "{" + ", ".join(f"{toml_key(k)} = {_toml_value(v)}" for k, v in value.items()) + "}"
            )
        case list() | tuple():
            return "[" + ", ".join(map(_toml_value, value)) + "]"
        case _:
            return str(value)


def toml_key(key: str) -> str:
    """A key as TOML writes it: quoted unless it is a plain word."""
    plain = re.fullmatch(r"[A-Za-z0-9_-]+", key)
    return key if plain else _toml_value(key)
