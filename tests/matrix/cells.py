"""The cells of the matrix: a Debian release, a compiler, and the server that holds the lanes.

A cell's name says all of it: trixie-gcc, forky-gcc-valkey, bookworm-musl. The cell "mixed-gcc" is
one group of replicas, the sites with the Dovecots of all releases.
"""
import fnmatch
from dataclasses import dataclass

RELEASES = {"bookworm": "Debian 12", "trixie": "Debian 13", "forky": "Debian 14 (testing)"}
NAMES = [
    "bookworm-gcc", "trixie-gcc", "forky-gcc",
    "trixie-gcc-valkey", "forky-gcc-valkey",
    "bookworm-clang", "trixie-clang", "forky-clang",
    "bookworm-musl", "trixie-musl", "forky-musl",
    "mixed-gcc",
]
LEVELS = ["built", "core", "whole"]


@dataclass(frozen=True)
class Cell:
    name: str

    @property
    def release(self):
        """Where its tests run."""
        first = self.name.split("-")[0]
        return next(iter(RELEASES)) if first == "mixed" else first

    @property
    def beside(self):
        """The other releases whose Dovecots its sites have, too."""
        return list(RELEASES)[1:] if self.name.startswith("mixed-") else []

    @property
    def compiler(self):
        return self.name.split("-")[1]

    @property
    def server(self):
        """The server's program."""
        return "valkey-server" if self.name.endswith("-valkey") else "redis-server"


def chosen(patterns):
    """The cells that the words name, each once, in the matrix's order. ValueError says which word names none."""
    for pattern in patterns:
        if not fnmatch.filter(NAMES, pattern):
            raise ValueError(f"{pattern!r} names no cell; the cells are {', '.join(NAMES)}")
    return [Cell(name) for name in NAMES if not patterns or any(fnmatch.fnmatch(name, p) for p in patterns)]
