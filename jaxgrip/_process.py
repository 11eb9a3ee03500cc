"""The process of the command: flags of XLA, signals, and what C++ writes to stderr."""

import contextlib
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

SCHEDULER = "--xla_cpu_enable_concurrency_optimized_scheduler"
# An unknown flag ends the process. From the first jaxlib that knows it to the last one tried.
KNOWN = ((0, 10), (0, 13))

SIGNALS = {
    signal.SIGINT: "interrupted by the user",
    signal.SIGTERM: "stopped from outside by SIGTERM",
}
# Seconds between a signal and the end of the process, whatever happens.
PATIENCE = 1.8


def xla_flags(environment: Mapping[str, str]) -> str:
    """`XLA_FLAGS` of an environment, with a scheduler that cannot block.

    With jaxlib 0.10 batched LAPACK calls of one program wait for each other for ever on two cores
    under XLA's own scheduler. A setting of the environment is kept.
    """
    given = environment.get("XLA_FLAGS", "")
    if SCHEDULER in given:
        return given
    import jaxlib.version

    version = tuple(int(part) for part in jaxlib.version.__version__.split(".")[:2])
    return f"{given} {SCHEDULER}=false".strip() if KNOWN[0] <= version < KNOWN[1] else given


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """The process of a command: flags set before jax is imported, messages and signals handled.

    A signal ends the process, with 128 more than its number, even while it compiles or where an
    exception would be swallowed; `at_stop` sets an action before that.
    """
    os.environ["XLA_FLAGS"] = xla_flags(os.environ)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            # A file name may have characters that the terminal's encoding has not.
            stream.reconfigure(errors="backslashreplace")
    with _stderr_without_alarms(), _stopped_by_signals():
        try:
            yield
        finally:
            _flush()


def _flush() -> None:
    """Flush the output; drop it where that fails, as Python would report it again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


_lock = threading.RLock()
_action: Callable[[str], None] | None = None


def unbroken() -> contextlib.AbstractContextManager:
    """Lock against interruption by a signal, which waits for it, but not for long."""
    return _lock


@contextlib.contextmanager
def at_stop(action: Callable[[str], None]) -> Iterator[None]:
    """Context in which a signal calls `action`, with a message, before the process ends.

    It is called in a thread of its own; the main thread may be anywhere, except within
    `unbroken`.
    """
    global _action
    before, _action = _action, action
    try:
        yield
    finally:
        _action = before


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    # Python calls handlers in the main thread between two of its instructions: not while a
    # compiled program runs. Another thread reads at once what C writes to the wakeup descriptor.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    threading.Thread(target=_watch, args=(reading,), daemon=True).start()
    before = {number: signal.signal(number, _heard) for number in SIGNALS}
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(writing)


def _heard(number: int, frame: object) -> None:
    """A signal reaches the wakeup descriptor only if it has a handler in Python."""


def _watch(reading: int) -> None:
    number = 0
    while number not in SIGNALS:
        heard = os.read(reading, 1)
        if not heard:
            os.close(reading)
            return
        number = heard[0]
    code = 128 + number
    with contextlib.suppress(RuntimeError):
        end = threading.Timer(PATIENCE, os._exit, (code,))
        end.daemon = True
        end.start()
    try:
        _lock.acquire(timeout=PATIENCE / 2)
        (_action or _say)(SIGNALS[signal.Signals(number)])
        _flush()
        _end_children()
        _close_stderr()
    finally:
        os._exit(code)


def _say(words: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"error: {words}\n")


def _end_children() -> None:
    """End the running children of this process, where the system can list them."""
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                if _reader is None or child != _reader.pid:
                    os.kill(child, signal.SIGTERM)


class Alarms:
    """Distinguishes XLA's reports of slow compilations from other lines on the standard error.

    XLA logs them as errors, has no flag for them, and the stage shows the time anyway.
    Source: XLA, xla/service/slow_operation_alarm.cc.
    """

    _HEADER = re.compile(rb"[IWEF]\d{4} |\d{4}-\d\d-\d\d ")
    _LAST = (b"attach the results.", b"Try rebuilding with -c opt.")
    # A report ends with these words; if they change, only so many lines are dropped.
    _LONGEST = 50

    def __init__(self):
        self._left, self._box, self._closing = 0, False, False

    def keep(self, line: bytes) -> bool:
        """Whether the next line, without its end, belongs to no report."""
        if b"slow_operation_alarm.cc:" in line:
            self._left, self._box, self._closing = self._LONGEST, False, False
            return False
        stars = line != b"" and line.strip(b"*") == b""
        closing, self._closing = self._closing, False
        if self._left and not self._HEADER.match(line):
            ended = line.rstrip().endswith(self._LAST)
            self._left = 0 if ended else self._left - 1
            self._box |= stars
            self._closing = ended and self._box
            return False
        self._left = 0
        return not (closing and stars)

    def within(self) -> bool:
        """Whether a report has begun and not ended."""
        return self._left > 0


class _Reader:
    """A process that passes on what is written to descriptor 2, without the alarms.

    A process, not a thread, so that the last lines of a crash arrive too.
    """

    def __init__(self):
        self._real = os.dup(2)
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _pass_on(reading, self._real)
        os.close(reading)
        os.dup2(writing, 2)
        os.close(writing)
        self._before = sys.stderr
        if sys.stderr is not None:
            # Python still writes to the original descriptor, a terminal if it is one.
            sys.stderr = open(  # noqa: SIM115
                self._real,
                "w",
                buffering=1,
                encoding=sys.stderr.encoding,
                errors=sys.stderr.errors,
                closefd=False,
            )

    def close(self) -> None:
        """Restore the descriptor, once the other process has passed on everything."""
        os.dup2(self._real, 2)
        sys.stderr = self._before
        latest = time.monotonic() + 1.0
        # A child that continues may keep it from ending.
        while time.monotonic() < latest and os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            time.sleep(0.002)


_reader: _Reader | None = None


@contextlib.contextmanager
def _stderr_without_alarms() -> Iterator[None]:
    global _reader
    with contextlib.suppress(OSError, AttributeError):
        # Without a standard error, or where processes cannot fork, nothing is filtered.
        _reader = _Reader()
    try:
        yield
    finally:
        _close_stderr()


def _close_stderr() -> None:
    global _reader
    reader, _reader = _reader, None
    if reader is not None:
        with contextlib.suppress(OSError):
            reader.close()


def _pass_on(reading: int, real: int) -> None:
    """Copy line by line from one descriptor to the other, without alarms; does not return."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(real, 2)
        os.dup2(reading, 3)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.closerange(4, 1024)
        _copy(3, 2, Alarms())
    finally:
        os._exit(0)


def _copy(reading: int, writing: int, alarms: Alarms) -> None:
    rest, more = b"", True
    while more:
        waiting = rest and not alarms.within()
        if waiting and not select.select([reading], [], [], 0.1)[0]:
            # The beginning of a line, such as a question or dots of progress.
            _write(writing, rest)
            rest = b""
        more = os.read(reading, 65536)
        *lines, rest = (rest + more).split(b"\n")
        _write(writing, b"".join(line + b"\n" for line in lines if alarms.keep(line)))
    if rest and alarms.keep(rest):
        _write(writing, rest)


def _write(writing: int, text: bytes) -> None:
    # A closed terminal must not block or end the process that writes.
    with contextlib.suppress(OSError):
        while text:
            text = text[os.write(writing, text) :]
