"""Numbers of lists in letters and Roman numerals."""

import re
from collections.abc import Callable
from string import ascii_lowercase

ROMAN = {
    1000: "m", 900: "cm", 500: "d", 400: "cd", 100: "c", 90: "xc", 50: "l", 40: "xl",
    10: "x", 9: "ix", 5: "v", 4: "iv", 1: "i",
}  # fmt: skip


def roman(number: int) -> str:
    """Write a number in Roman numerals."""
    text = ""
    for value, numeral in ROMAN.items():
        text += number // value * numeral
        number %= value
    return text


def letters(number: int) -> str:
    """Count a to z, aa, ab and on, as HTML does."""
    return letters((number - 1) // 26) + ascii_lowercase[(number - 1) % 26] if number else ""


def repeated_letters(number: int) -> str:
    """Count a to z, aa, bb and on, as Word does."""
    return ascii_lowercase[(number - 1) % 26] * ((number + 25) // 26)


FORMS: dict[str, Callable[[int], str]] = {  # names of HTML, CSS and Word -> how a number is written
    "[iI]|.*-?[rR]oman": roman,
    "[aA]|.*-(alpha|latin)": letters,
    ".*Letter": repeated_letters,
    "decimalZero": "{:02}".format,
    "none": "".format,
    "1?|decimal": str,
}


def numeral(form: str, number: int) -> str | None:
    """Write the number of an item in a form of HTML, CSS or Word; None where that is unknown."""
    for names, write in FORMS.items():
        if re.fullmatch(names, form):
            text = write(number) if number > 0 else str(number)
            return text.upper() if form[:1] in "AIu" else text
    return None
