"""Files that a person names: read without blocking, and of bounded size."""

import errno
import os
import stat
from pathlib import Path

# Largest sizes [bytes] of a text that a person writes, and of measurements or a robot's
# description; larger ones are a mistake or an attack.
LARGEST_TEXT = 10_000_000
LARGEST_DATA = 1_000_000_000
# Some ten million nodes as text.
LARGEST_MESH = 4_000_000_000


def check_readable(path: str | Path, largest: int) -> None:
    """Raise `OSError`, with a readable `strerror`, unless this is a regular file.

    **Arguments:** `path`; `largest`, bytes. Pipes and devices, which may never begin or end, are
    refused, also behind a link.
    """
    try:
        found = os.stat(path)
    except ValueError:
        raise OSError(errno.EINVAL, "its name is not one of a file", str(path)) from None
    if stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no file on a disk", str(path))
    if found.st_size > largest:
        raise _too_large(path, f"{found.st_size / 1e6:.0f} MB", largest)


def read_bytes(path: str | Path, largest: int) -> bytes:
    """Content of a file that `check_readable` lets pass; raises `OSError` as that does."""
    check_readable(path, largest)
    with open(path, "rb") as file:
        # Files of the system have size zero until they are read.
        content = file.read(largest + 1)
    if len(content) > largest:
        raise _too_large(path, "more", largest)
    return content


def read_text(path: str | Path, largest: int) -> str:
    """Text in UTF-8 of a file, without a byte order mark; raises as `read_bytes`."""
    try:
        return read_bytes(path, largest).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not text in UTF-8"
        raise OSError(errno.EILSEQ, reason, str(path)) from None


def _too_large(path: str | Path, size: str, largest: int) -> OSError:
    return OSError(
        errno.EFBIG, f"it has {size}, and at most {largest / 1e6:.0f} MB are read", str(path)
    )
