"""How the demo speaks: plain sentences, few lines."""

import sys


class Failed(Exception):
    """Something is not as it should be."""


def title(text):
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}{text}{plain}", flush=True)


def say(text=""):
    print(f"   {text}" if text else "", flush=True)


def table(rows):
    """Columns as wide as their longest word; the first row is the head."""
    widths = [max(len(str(row[n])) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        say("  ".join(f"{word!s:<{width}}" for word, width in zip(row, widths)).rstrip())
