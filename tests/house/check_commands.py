#!/usr/bin/env python3
"""Each command that README.md and docs/docker.md have a reader type is run by a test, or known.

    usage: check_commands.py

A command that no row of KNOWN fits is a fault, and so are a row that fits none, a test that a row
names and that does not exist, and a command of which a part does not exist: make's target, setup's
group, a service, a port's setting, a command of the demo or of `dovelane`.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from support.page_commands import commands  # noqa: E402

PAGES = ("README.md", "docs/docker.md")
CONTAINERS = "tests/integration/containers/test_compose.py"
LOOK = f"{CONTAINERS}::test_what_the_page_has_one_look_at"
DEMO = f"{CONTAINERS}::test_a_command_finds_what_it_says"
AWAY = f"{CONTAINERS}::test_what_waits_while_the_next_hop_is_away_waits_through_a_stop"
DOWN = f"{CONTAINERS}::test_down_leaves_nothing"
SHOWN = f"{CONTAINERS}::test_up_shows_the_demo_and_a_closing_table"
ENGINE = f"{CONTAINERS}::engine"
RUN = "tests/replication/test_demo.py::test_it_shows_both_halves_runs_on_and_ends"
PAIR = "tests/machines/test_init.py::test_two_bare_hosts_become_an_encrypted_pair"
# Pattern of commands; the test that runs them, or why none can.
KNOWN = {
    r"make run( WATCH=1)?|make stop": RUN,
    r"make test": ".ci/run",
    r"make test-(long|machines)": "it is tests",
    r"make deb": "tests/packages/conftest.py::debs",
    r"apt-get install git make": "Debian's own",
    r"apt-get install docker\.io docker-compose": "Debian's own; tests start an engine",
    r"systemctl (start docker|disable --now redis-server)": "Debian's own",
    r"apt install \./redis-module-lane_\*\.deb .*": PAIR,
    r"dovelane init --address \S+": PAIR,
    r"dovelane join \S+ --token \.\.\.": PAIR,
    r"dovelane group (divert add \S+|replicate on)": PAIR,
    r"dovelane init --undo": "tests/machines/test_init.py::test_an_undo_leaves_the_host_as_it_was",
    r"dovelane check": "tests/integration/ctl/test_ctl_check.py",
    r"dovelane mailq": "tests/integration/ctl/test_ctl_mailq.py",
    r"dovelane nodes": "tests/integration/gateway/test_takeover.py",
    r"dovelane capacity": "tests/integration/ctl/test_ctl_capacity.py",
    r"dovelane (divert off|drain --to-postfix)": "tests/integration/ctl/test_ctl_drain.py",
    r"docker compose up( --exit-code-from demo)?": SHOWN,
    r"docker compose run --rm demo": SHOWN,
    r"docker compose run --rm demo (kill mx\d|fill|load|conflict|lag|cut)": DEMO,
    r"docker compose run --rm demo heal": f"{CONTAINERS}::test_what_is_cut_is_told_and_heals",
    r"docker compose run --rm (--no-deps )?demo (log.*|help)|docker compose logs": LOOK,
    r"docker compose exec .*": LOOK,
    r"docker compose (stop|start)( site-a)?": AWAY,
    r"docker compose down -v( --rmi all)?": DOWN,
    r"DOVELANE_PROMETHEUS_PORT=9091 docker compose up": ENGINE,
    r"DOVELANE_BUILD_NETWORK=host docker compose build": ENGINE,
    r"docker compose --profile grafana up": "its image is in no reach of tests; "
    "tests/integration/containers/test_grafana.py::test_what_grafana_is_given_fits_its_documents",
    r"docker (image prune|builder prune -a)": "it looks at other projects' images, too",
    r"(RELEASE=bookworm )?docker/make-base-image\.sh": ENGINE,
    r"docker/make-base-image\.sh --tree DIR": "tests/machines/machine.py::base_tree",
    r"apt-get install debootstrap": "./setup containers has it",
    r"\./setup containers": "make test-long begins with it",
}


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def known_parts():
    """What exists, by the kind of a command's part."""
    compose = read("docker-compose.yml")
    services = compose.partition("\nservices:\n")[2].partition("\nvolumes:\n")[0]
    demo = read("docker/demo/demo.py").partition("COMMANDS = {")[2].partition("}")[0]
    return {
        "make": set(re.findall(r"(?m)^([\w-]+):(?!=)", read("Makefile"))),
        "setup": set(re.findall(r"(?m)^        ([\w-]+)\)", read("setup"))),
        "service": set(re.findall(r"(?m)^  ([\w-]+):", services)),
        "setting": set(re.findall(r"\$\{(\w+)", compose)) | {"RELEASE", "DOCKER_BUILDKIT"},
        "demo": set(re.findall(r'"(\w+)":', demo)),
        "dovelane": set(re.findall(r'(?m)^    \{"(\w+)", ', read("ctl/commands.c"))),
    }


NAMED = {
    "make": r"^make ([\w-]+)",
    "setup": r"^\./setup (\w+)",
    "service": r"^docker compose (?:exec|stop|start) ([\w-]+)",
    "setting": r"^([A-Z_]+)=",
    "demo": r" demo (\w+)",
    "dovelane": r"(?:^| )(?<!doveadm )dovelane (\w+)",
}


def there(where):
    """Whether a test exists: PATH or PATH::NAME, as the last word of what a row says."""
    path, _, name = where.split()[-1].partition("::")
    if "/" not in path or path.startswith("./"):
        return True
    file = ROOT / path
    return file.exists() and (not name or f"def {name}(" in file.read_text(encoding="utf-8"))


def faults(pages, known, parts):
    fits = set()
    for page, text in pages.items():
        for command in commands(text):
            rows = [row for row in known if re.fullmatch(row, command)]
            fits.update(rows)
            if not rows:
                yield f"{page}: no test runs it, and check_commands.py has no row for it: {command}"
            for kind, pattern in NAMED.items():
                for name in re.findall(pattern, command):
                    if name not in parts[kind]:
                        yield f"{page}: {kind} has no {name}: {command}"
    unused = sorted(known.keys() - fits)
    yield from (f"check_commands.py: no page has this command: {row}" for row in unused)
    yield from (
        f"check_commands.py: this test does not exist: {where}"
        for where in sorted(set(known.values()))
        if not there(where)
    )


def planted(parts):
    """Each kind of fault is found."""
    page = (
        "```\nmx1# make all  # builds\n```\n`make nothing`, `docker compose exec mx9 dovelane x`\n"
        "| `docker compose run --rm demo ...` | what |\n|---|---|\n"
        "| nothing | a |\n| `dance` | b |\n"
    )
    known = {"make .*": "tests/house/check_commands.py::there", "never": "tests/no.py"}
    said = "\n".join(faults({"p": page}, known, parts))
    wanted = (
        "make has no nothing",
        "service has no mx9",
        "dovelane has no x",
        "demo has no dance",
        "no row for it: docker compose run --rm demo\n",
        "command: never",
        "exist: tests/no.py",
    )
    assert all(each in said for each in wanted) and "make all" not in said, said


def main():
    parts = known_parts()
    planted(parts)
    pages = {page: read(page) for page in PAGES}
    said = list(faults(pages, KNOWN, parts))
    print(*said, sep="\n")
    print(f"commands: {sum(len(commands(text)) for text in pages.values())} read,"
          f" {len(said)} complaints")
    return bool(said)


if __name__ == "__main__":
    sys.exit(main())
