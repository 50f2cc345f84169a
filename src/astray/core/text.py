"""Text for people: numbers with their nouns, and names that are safe to show."""

from __future__ import annotations

import re

# Control characters, marks that turn the direction of writing, and halves of characters.
UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# ... and invisible characters, which make two names look alike.
_SPELLED = re.compile(UNWRITABLE.pattern.replace("[", "[\xad\u061c\u180e\u200b\u200e\u200f\u2060-\u2064\ufeff"))
_IN_LINES = re.compile(_SPELLED.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))
_FORMULA = ("=", "+", "-", "@")


def number_of(n: float, what: str) -> str:
    """Returns a number with its noun.

    >>> number_of(1, "trip"), number_of(1200, "fix"), number_of(1.0, "past trip")
    ('1 trip', '1,200 fixes', '1 past trip')
    """
    plural = "es" if what.endswith("x") else "s"
    return f"{n:,.0f} {what}{'' if round(n) == 1 else plural}"


def harmless(text: str, *, lines: bool = False) -> str:
    r"""Returns text with characters escaped that could control a terminal, break a file or reverse the writing.

    ``lines`` keeps line breaks.

    >>> print(harmless("ana\x1b[2J\n\u202e"), harmless("one\ntwo", lines=True))
    ana\x1b[2J\n\u202e one
    two
    """
    return (_IN_LINES if lines else _SPELLED).sub(lambda found: ascii(found[0])[1:-1], text)


def printable(text: str) -> str:
    r"""Returns text with all invisible characters escaped.

    >>> print(printable("12:05\ufeff"), printable("7\u3000E"))
    12:05\ufeff 7\u3000E
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def drawn(text: str) -> str:
    r"""Returns harmless text for a figure, escaped so that matplotlib sees no formula in it.

    >>> drawn("$5 to $6")
    '\\$5 to \\$6'
    """
    return harmless(text, lines=True).replace("$", r"\$")


def shortened(text: str, most: int = 32) -> str:
    """Returns the text, cut off if it is too long.

    >>> shortened("ana"), shortened("a-very-long-name", most=8)
    ('ana', 'a-very-…')
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def in_a_cell(text: str) -> str:
    """Returns text for a cell of a CSV file, escaped if a spreadsheet would take it for a formula.

    >>> in_a_cell("=cmd()"), in_a_cell("-7.5"), in_a_cell("ana")
    ("'=cmd()", '-7.5', 'ana')
    """
    if not text.startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
