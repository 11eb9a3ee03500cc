"""Names that a person has mistyped."""

import difflib
from collections.abc import Iterable

# Comparing long names is slow.
_LONGEST = 100


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to an unknown one; None where none is close."""
    if len(name) > _LONGEST:
        return None
    found = difflib.get_close_matches(name, list(known), n=1)
    return found[0] if found else None
