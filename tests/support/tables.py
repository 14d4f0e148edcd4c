"""Tables of arguments and of what follows from them, as text."""

import re

import yaml


def rows(text):
    """The values of each row, which are YAML; indented lines go on with the row above."""
    found = re.split(r"\n(?! )", text.strip())
    return [yaml.safe_load(f"[{row}]") for row in found if not row.startswith("#")]


def cases(text):
    """The arguments of a test: of each row YAML, ` -> ` and, as the last one, the text behind it.

    Indented lines go on with the row above.
    """
    parts = [re.split(r" ->\s+", row, maxsplit=1) for row in re.split(r"\n(?! )", text.strip())]
    return [[*yaml.safe_load(f"[{before}]"), after] for before, after in parts]
