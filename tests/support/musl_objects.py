"""Compiles for musl what a build directory has compiled for glibc, with the same words.

Debian has musl without other libraries. Their headers are glibc's packages', taken last, so that
musl's own come first; of /usr/include only the libraries', and the kernel's, are seen at all.
"""
import json
import os
import re
import shlex
import subprocess

# What runs beside Postfix.
GATEWAY = ("redis-module/", "lib/", "milter/", "proxy/", "relay/", "ctl/")
OURS, LANE, RELAY = "lib/libdovelane.a", "redis-module/liblane_core.a", "relay/librelay.a"
MILTER, PROXY = "milter/libmilter-core.a", "proxy/libproxy.a"
ORSET = "dovecot-plugin/orset/liborset.a"
LIBRARIES = [OURS, LANE, RELAY, MILTER, PROXY, ORSET]
# Each with its words and what it is linked with.
PROGRAMS = {
    "tests/unit/lane/lane-fuzz-model": (["5"], [LANE]),
    "tests/fuzz/lane/lane-fuzz-ops": ([], [LANE]),
    "tests/fuzz/lane/lane-fuzz-rdb": ([], [LANE]),
    "tests/fuzz/milter/milter-engine-random": ([], [MILTER, OURS]),
    "tests/fuzz/proxy/proxy-engine-random": ([], [PROXY, OURS]),
    "tests/fuzz/relay/relay-reply-random": ([], [RELAY, OURS]),
    "tests/fuzz/relay/relay-session-random": ([], [RELAY, OURS]),
    "tests/fuzz/orset/orset-fuzz-random": ([], [ORSET]),
}
FOREIGN = ("ev.h", "confuse.h", "ncurses.h", "curses.h", "ncurses_dll.h", "unctrl.h", "check.h",
           "hiredis", "libmilter", "microhttpd.h", "openssl", "jansson.h", "sqlite3.h", "dovecot",
           "linux", "asm", "asm-generic")


def headers(into):
    """Makes the folders to look in last; the words that say so."""
    words = []
    machine = f"/usr/include/{os.uname().machine}-linux-gnu"
    for number, folder in enumerate(("/usr/include", machine)):
        ours = into / f"headers{number}"
        ours.mkdir(parents=True)
        for name in FOREIGN:
            if os.path.exists(f"{folder}/{name}"):
                (ours / name).symlink_to(f"{folder}/{name}")
        words += ["-idirafter", str(ours)]
    return words


def wanted(build, starts=(*GATEWAY, *(f"{name}.p/" for name in [*LIBRARIES, *PROGRAMS]))):
    """The entries of compile_commands.json to compile: by default those of the gateway."""
    entries = json.loads((build / "compile_commands.json").read_text())
    return [each for each in entries if each["output"].startswith(starts)]


def compile_one(each, into, more):
    """Whether it compiles, and what the compiler said; the object is in `into`."""
    words = shlex.split(each["command"])
    words = words[2 if words[0].endswith("ccache") else 1:]
    words[words.index("-o") + 1] = str(into / each["output"])
    if "-MF" in words:  # the build directory's own notes of what depends on what stay as they are
        words[words.index("-MF") + 1] = str(into / each["output"]) + ".d"
    (into / each["output"]).parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["musl-gcc", *words, *more, "-fno-lto"], cwd=each["directory"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode == 0, done.stdout.decode(errors="replace")


def archive(objects, into):
    """Our libraries of them."""
    for library in LIBRARIES:
        mine = [name for name in objects if name.startswith(f"{library}.p/")]
        subprocess.run(["ar", "crs", library, *mine], cwd=into, check=True)


def link(program, objects, into):
    """None; or of what else than ours and the C library it has need."""
    mine = [name for name in objects if name.startswith(f"{program}.p/")]
    done = subprocess.run(["musl-gcc", "-static", "-o", program, *mine, *PROGRAMS[program][1]],
                          cwd=into, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode == 0:
        return None
    text = done.stdout.decode(errors="replace")
    missing = re.search(r"undefined reference to `([^']+)'", text)
    return missing[1] if missing else text[:100]
