"""The command `jaxgrip`, also as `python -m jaxgrip`."""

import os
import signal


def _leave(number: int, frame: object) -> None:
    os.write(2, b"error: stopped before it began\n")
    os._exit(128 + number)


# Until `prepared` handles them: its imports alone take long enough for a signal to arrive.
for _number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(_number, _leave)

from jaxgrip import _process  # noqa: E402


def main() -> None:
    """Run the command line in a process that handles signals from the beginning."""
    with _process.prepared():
        from jaxgrip import cli

        cli.guarded()


if __name__ == "__main__":
    main()
