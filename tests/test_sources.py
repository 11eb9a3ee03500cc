"""Every source is a work a reader can find: docs/bibliography.md."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIBLIOGRAPHY = ROOT / "docs" / "bibliography.md"
KEYS = re.findall(r"^\* \*\*\[(.+?)\]\*\*", BIBLIOGRAPHY.read_text(), re.MULTILINE)
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text()
    for pattern in (
        *(f"{folder}/**/*.py" for folder in ("jaxgrip", "experiments", "tests")),
        "docs/*.md",
        "*.md",
        "configs/**/*.toml",
    )
    for path in sorted(ROOT.glob(pattern))
    if path not in (BIBLIOGRAPHY, Path(__file__))
}


def found(pattern):
    """What a pattern finds in any text, each with the file it is in."""
    pattern = re.compile(pattern, re.DOTALL)
    return [(name, hit) for name, text in TEXTS.items() for hit in pattern.findall(text)]


def test_keys_are_unique():
    assert KEYS
    assert len(KEYS) == len(set(KEYS))


def test_no_source_is_a_number_of_a_file():
    assert found(r"(?<![\d.,])(?<!\d )\b00[0-4][ab]?\b(?!\.)") == []
    assert found(r"reference-problems|\bspecs/") == []


def test_every_author_with_a_year_is_in_the_bibliography():
    cited = found(r"\b([A-ZÄÖÜ][\wäöüéáó-]+\s+(?:1[6-9]|20)\d\d)\b")
    assert cited
    assert [(name, key) for name, key in cited if " ".join(key.split()) not in KEYS] == []


def test_every_source_names_a_work_or_is_our_own():
    for name, source in found(r"\bSource: (.*?)(?=\n\s*\n|\"\"\"|\Z)"):
        known = any(key in " ".join(source.split()) for key in KEYS)
        assert known or re.search(r"\bown\s|`", source), f"{name}: {source}"


def test_every_work_is_cited():
    texts = " ".join(" ".join(TEXTS.values()).split())
    assert [key for key in KEYS if key not in texts] == []
