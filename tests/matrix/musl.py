"""The gateway against musl: each source file is compiled with musl's headers; the programs that need only the C library are linked and run.

Debian has musl without other libraries. Their headers are glibc's packages', taken last, so that musl's own come first.
"""
import json
import os
import re
import shlex
import subprocess
import time

from inside import BUILD, HERE, SOURCE, run

GATEWAY = ("redis-module/", "lib/", "milter/", "proxy/", "relay/", "ctl/")
OURS, LANE, RELAY = "lib/libdovelane.a", "redis-module/liblane_core.a", "relay/librelay.a"
MILTER, PROXY, ORSET = "milter/libmilter-core.a", "proxy/libproxy.a", "dovecot-plugin/orset/liborset.a"
LIBRARIES = [OURS, LANE, RELAY, MILTER, PROXY, ORSET]
# Each with its words and what it is linked with.
PROGRAMS = {"tests/unit/lane/lane-fuzz-model": (["5"], [LANE]), "tests/fuzz/lane/lane-fuzz-ops": ([], [LANE]),
            "tests/fuzz/lane/lane-fuzz-rdb": ([], [LANE]), "tests/fuzz/milter/milter-engine-random": ([], [MILTER, OURS]),
            "tests/fuzz/proxy/proxy-engine-random": ([], [PROXY, OURS]), "tests/fuzz/relay/relay-reply-random": ([], [RELAY, OURS]),
            "tests/fuzz/relay/relay-session-random": ([], [RELAY, OURS]), "tests/fuzz/orset/orset-fuzz-random": ([], [ORSET])}
# The libraries' headers, and the kernel's, which no C library has.
FOREIGN = ("ev.h", "confuse.h", "check.h", "hiredis", "libmilter", "microhttpd.h", "openssl", "jansson.h", "sqlite3.h", "linux", "asm", "asm-generic")


def foreign_headers():
    """The folders to look in last: of what stands in /usr/include, only the libraries'."""
    folders = []
    for number, folder in enumerate(("/usr/include", f"/usr/include/{os.uname().machine}-linux-gnu")):
        ours = HERE / f"headers{number}"
        ours.mkdir()
        for name in FOREIGN:
            if os.path.exists(f"{folder}/{name}"):
                (ours / name).symlink_to(f"{folder}/{name}")
        folders += ["-idirafter", str(ours)]
    # BSD's sys/queue.h: systems with musl have it from a package of its own, without glibc's sys/cdefs.h.
    sys_headers = HERE / "headers0" / "sys"
    sys_headers.mkdir()
    (sys_headers / "cdefs.h").touch()
    (sys_headers / "queue.h").symlink_to(f"/usr/include/{os.uname().machine}-linux-gnu/sys/queue.h")
    return folders


def wanted(target):
    return target.startswith(GATEWAY) or any(target.startswith(f"{name}.p/") for name in [*LIBRARIES, *PROGRAMS])


def compile_all(result):
    start = time.monotonic()
    if run(["meson", "setup", "-Db_colorout=never", BUILD, SOURCE]).returncode:
        result.step("built", "setup", 0, 1, 0, start, ["meson setup"])
        return []
    more = [*foreign_headers(), "-fno-lto"]
    objects, failures, warnings = [], [], set()
    for each in json.loads((BUILD / "compile_commands.json").read_text()):
        if not wanted(each["output"]):
            continue
        words = shlex.split(each["command"])[1:]
        (BUILD / each["output"]).parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["musl-gcc", *words, *more], cwd=each["directory"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        text = done.stdout.decode(errors="replace")
        print(text, end="", flush=True)
        warnings |= {line for line in text.splitlines() if " warning: " in line}
        if done.returncode:
            failures.append(next((line for line in text.splitlines() if "error: " in line), each["output"]))
        else:
            objects.append(each["output"])
    result.step("built", "files compiled", len(objects), len(failures), 0, start, failures, warnings=sorted(warnings))
    return objects


def run_programs(objects, result):
    """A program that needs another library, in the end, is skipped, and named."""
    start, passed, failures, skips = time.monotonic(), 0, [], {}
    for library in LIBRARIES:
        subprocess.run(["ar", "crs", library, *[name for name in objects if name.startswith(f"{library}.p/")]], cwd=BUILD, check=True)
    for program, (words, libraries) in PROGRAMS.items():
        mine = [name for name in objects if name.startswith(f"{program}.p/")]
        done = subprocess.run(["musl-gcc", "-static", "-o", program, *mine, *libraries], cwd=BUILD,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            text = done.stdout.decode(errors="replace")
            print(text, flush=True)
            missing = re.search(r"undefined reference to `([^']+)'", text)
            skips[f"{program} needs another library: {missing[1] if missing else text[:100]}"] = 1
        elif run([f"./{program}", *words], cwd=BUILD).returncode:
            failures.append(program)
        else:
            passed += 1
    result.step("core", "programs linked and run", passed, len(failures), len(skips), start, failures, skips=skips)


def compile_and_run(result):
    objects = compile_all(result)
    if objects:
        run_programs(objects, result)
