#!/usr/bin/env python3
"""What runs inside a cell: builds the source in /matrix/source and runs its tests; /matrix/result.json says how far it came.

    inside.py COMPILER SERVER LEVEL [RELEASE]...

LEVEL: built, core (built, the unit tests, the tests in CORE, CORE_WORKER, CORE_REPLICATION below) or whole (all tests that are not marked long).
RELEASE: another one, whose root directory is /matrix/RELEASE: the replicator is built there, too,
and the tests are those of a group with all these Dovecots.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

HERE = pathlib.Path("/matrix")
SOURCE, BUILD = HERE / "source", HERE / "build"
sys.path.insert(0, str(SOURCE / "tests"))
from run import PATIENT, counts  # noqa: E402

TESTS = SOURCE / "tests"
# Beside the tests that are marked core: those that depend on the release's Dovecot and Postfix.
CORE = ["test_plugin_*.py", "test_debian_postfix.py", "test_byte_identity.py", "test_pflogsumm.py", "test_delivery_id.py",
        "test_ctl_mends*.py"]
CORE_REPLICATION = ["test_table.py", "test_clients.py"]
CORE_WORKER = ["test_worker_trees.py", "test_worker_names.py", "test_worker_meanwhile.py",
               "test_worker_kept.py"]
# Of mixed versions. whole: all of tests/replication.
CORE_MIXED = ["test_three_versions.py", "test_upgrade.py", "test_table.py", "test_clients.py"]
AT_ONCE = os.environ.get("DOVELANE_AT_ONCE") or str(os.cpu_count() + 1)  # most of the time they wait
COMMANDS = {"gcc": "gcc", "clang": "clang", "musl": "musl-gcc"}


def said(*command):
    """The first line that a command says; "" when there is no such command."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.decode(errors="replace").partition("\n")[0].strip()


def first(pattern, text):
    found = re.search(pattern, text)
    return found[1] if found else text


def package(name):
    return said("dpkg-query", "-W", "-f", "${Version}", name)


def versions(compiler, server):
    """As the system itself says them; of libraries, their packages'."""
    number = first(r"v=(\S+)", said(server, "--version"))
    return {
        "system": first(r'PRETTY_NAME="(.*)"', said("grep", "PRETTY_NAME", "/etc/os-release")),
        "compiler": said(COMMANDS[compiler], "--version"),
        "dovecot": said("dovecot", "--version").split(" ")[0].split("-")[0],
        "postfix": said("postconf", "-dh", "mail_version"),
        "server": f"{server.partition('-')[0].capitalize()} {number}",
        "libc": package("libc6"), "openssl": package("libssl-dev"), "hiredis": package("libhiredis-dev"), "libev": package("libev-dev"),
        "sqlite": package("libsqlite3-dev"), "meson": package("meson"), "python": said("/usr/bin/python3", "--version"), "machine": os.uname().machine,
    }


class Result:
    """Written anew after each step: what is there is true, however the cell ends."""

    def __init__(self, start):
        self.data = dict(start, steps=[], finished=False)

    def write(self):
        fresh = HERE / "result.new"
        fresh.write_text(json.dumps(self.data, indent=1))
        fresh.rename(HERE / "result.json")

    def step(self, level, name, passed, failed, skipped, start, failures=(), **more):
        self.data["steps"].append(dict(level=level, name=name, passed=passed, failed=failed, skipped=skipped, seconds=round(time.monotonic() - start),
                                       failures=list(failures), **more))
        self.write()


def run(words, **more):
    print("+", " ".join(map(str, words)), flush=True)
    return subprocess.run([str(word) for word in words], check=False, **more)


def of_replicator(root):
    """What is built there for its Dovecot alone."""
    done = subprocess.run(["chroot", root, "ninja", "-C", BUILD, "-t", "targets", "all"],
                          stdout=subprocess.PIPE, check=True)
    names = [line.partition(":")[0] for line in done.stdout.decode().splitlines()]
    return [name for name in names if re.fullmatch(
        r"dovecot-plugin/(\S+\.so|replicator/dovelane-replicator|worker/dovelane-worker)", name)]


def build(compiler, result, release=None):
    """A warning is counted, and stops nothing. release: in its root directory, for its Dovecot."""
    start, enter, targets = time.monotonic(), [], []
    if release:
        root = HERE / release
        enter = ["chroot", root]
        (root / "matrix").mkdir(exist_ok=True)
        run(["cp", "-a", SOURCE, root / "matrix"])
    env = dict(os.environ, CC=COMMANDS[compiler])
    ok = run([*enter, "meson", "setup", "-Db_colorout=never", BUILD, SOURCE],
             env=env).returncode == 0
    text = ""
    if ok:
        targets = of_replicator(root) if release else []
        done = run([*enter, "ninja", "-k", "0", "-C", BUILD, *targets],
                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text, ok = done.stdout.decode(errors="replace"), done.returncode == 0
        print(text, flush=True)
    warnings = sorted(set(line for line in text.splitlines() if re.search(r"\bwarning: ", line)))
    errors = [line for line in text.splitlines() if re.search(r"\berror: |^FAILED: ", line)]
    result.step("built", f"build of {release}" if release else "build", int(ok), int(not ok), 0,
                start, errors[:50], warnings=warnings)
    return ok


def skipped_because(junit):
    """Why tests were not run, with how many for each reason."""
    reasons = {}
    try:
        for case in ET.parse(junit).getroot().iter("testcase"):
            for skip in case.findall("skipped"):
                reason = (skip.get("message") or f"{case.get('name')} says so").strip()
                reasons[reason] = reasons.get(reason, 0) + 1
    except (OSError, ET.ParseError):
        pass
    return reasons


def unit(level, suites, result):
    start = time.monotonic()
    code = run(["meson", "test", "-C", BUILD, *PATIENT, "--no-rebuild", "--print-errorlogs", *suites]).returncode
    junit = BUILD / "meson-logs" / "testlog.junit.xml"
    passed, failed, skipped, failures = counts(junit)
    if code and not failed:
        failed, failures = 1, [f"meson test ended with {code}"]
    result.step(level, "unit", passed, failed, skipped, start, failures, skips=skipped_because(junit))


def pytest(level, name, files, marks, at_once, result, **env):
    start = time.monotonic()
    junit = HERE / f"{name}.xml"
    files = sorted(file for pattern in files for file in (TESTS / name.split()[0]).rglob(pattern))
    code = run(["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", at_once, "--dist", "loadfile", "--durations", "15",
                "--tier=check,test,long", "-m", marks, f"--junitxml={junit}", *files],
               env=dict(os.environ, DOVELANE_BUILD=str(BUILD), **env)).returncode
    passed, failed, skipped, failures = counts(junit)
    if code not in (0, 5) and not failed:
        failed, failures = 1, [f"pytest ended with {code}"]
    result.step(level, name, passed, failed, skipped, start, failures, skips=skipped_because(junit))


def tests(level, result):
    if level == "core":
        unit(level, ["--suite", "check", "--suite", "test"], result)
        pytest(level, "integration", ["test_*.py"], "core", AT_ONCE, result)
        pytest(level, "integration of this release's Dovecot and Postfix", CORE, "not core", AT_ONCE, result)
        pytest(level, "worker", CORE_WORKER, "", "2", result)
        pytest(level, "replication", CORE_REPLICATION, "", "2", result)
    if level == "whole":
        unit(level, ["--suite", "check", "--suite", "test", "--suite", "long"], result)
        pytest(level, "integration", ["test_*.py"], "", AT_ONCE, result)
        pytest(level, "worker", ["test_*.py"], "", "2", result)
        pytest(level, "replication", ["test_*.py"], "", "2", result)


def mixed(level, releases, result):
    """Groups whose sites have the Dovecots of all, the newest's and this system's first."""
    newest, *others = [number_in(HERE / name) for name in reversed(releases)]
    env = {"DOVELANE_VERSIONS": ",".join([newest, number_in("/"), *others])}
    for release in releases:
        env[f"DOVELANE_{release.upper()}_ROOT"] = str(HERE / release)
        env[f"DOVELANE_{release.upper()}_BUILD"] = str(BUILD)
    if level != "built":
        pytest(level, "replication of mixed versions",
               CORE_MIXED if level == "core" else ["test_*.py"], "", "2", result, **env)


def number_in(root):
    """"2.4.1"."""
    return first(r"(\d+\.\d+\.\d+)", said("chroot", root, "dovecot", "--version"))


def main():
    compiler, server, level, *beside = sys.argv[1:]
    os.environ["DOVELANE_REDIS_SERVER"] = server
    result = Result(json.loads((HERE / "start.json").read_text()))
    result.data["versions"] = versions(compiler, server)
    if beside:
        roots = ["/", *(HERE / name for name in beside)]
        result.data["mixed"] = [number_in(root) for root in roots]
    result.write()
    if compiler == "musl":
        from musl import compile_and_run
        compile_and_run(result)
    elif all([build(compiler, result), *(build(compiler, result, name) for name in beside)]):
        if beside:
            mixed(level, beside, result)
        elif level != "built":
            tests(level, result)
    result.data["finished"] = True
    result.write()


if __name__ == "__main__":
    main()
