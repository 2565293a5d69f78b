#!/usr/bin/env python3
"""The pure cores allocate through what is injected, do no I/O and read no clock: reads what their objects want from outside.

usage: check_symbols.py library.a...
"""
import re
import subprocess
import sys

# bcmp is what clang makes of a memcmp that is only compared with 0.
ALLOWED = re.compile(r"""^(?:
    mem(?:cpy|move|set|cmp|chr|mem) | bcmp | str(?:len|cmp|ncmp|chr|rchr|spn|cspn|casecmp|ncasecmp|nlen|str)
  | qsort | bsearch | snprintf | vsnprintf | abort | __assert_fail | __stack_chk_fail | __\w+_chk
  | _GLOBAL_OFFSET_TABLE_ | __asan_\w+ | __ubsan_\w+ | __tls_get_addr | __bswap\w+ | __popcountdi2 | __ctype_\w+
)$""", re.X)


def outside(library):
    """What is wanted from outside the library."""
    text = subprocess.run(["nm", "-A", library], stdout=subprocess.PIPE, check=True, text=True).stdout
    wanted, given = {}, set()
    for line in text.splitlines():
        place, kind, name = re.match(r"(.*?):\s*(?:[0-9a-f]+ )?\s*(\w) (\S+)", line).groups()
        if kind == "U":
            wanted.setdefault(name, place)
        else:
            given.add(name)
    if not given:
        sys.exit(f"{library}: no symbols, so nothing was checked")
    return {name: place for name, place in wanted.items() if name not in given}


def main():
    wrong = [f"{place}: uses {name}" for library in sys.argv[1:] for name, place in sorted(outside(library).items())
             if not ALLOWED.match(name)]
    print("\n".join(wrong) or f"{len(sys.argv) - 1} pure libraries, nothing from outside")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
