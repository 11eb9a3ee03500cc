"""The command `jaxgrip`, also as `python -m jaxgrip`."""

from jaxgrip import _process


def main() -> None:
    """Run the command line in a process that hears signals from its first moment."""
    with _process.prepared():
        from jaxgrip import cli

        cli.guarded()


if __name__ == "__main__":
    main()
