"""Runs `dovelane`, the admin's command, against a stack."""
import json
import os
import subprocess
from dataclasses import dataclass


@dataclass
class Said:
    """What a command said."""
    status: int
    out: str
    err: str


def run(stack, *words, node="mx1", timeout=60, raw=False, path=None):
    """The command with the configuration of a node's relay. raw: out stays bytes. path: a directory whose programs come first."""
    program = stack.shape.build / "ctl" / "dovelane"
    paths = os.pathsep.join([*([str(path)] if path else []), os.environ["PATH"]])
    done = subprocess.run([program, "-c", stack[f"relay-{node}"].note["conf"], *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=timeout, check=False, env=dict(os.environ, TZ="UTC", LC_ALL="C", PATH=paths))
    return Said(done.returncode, done.stdout if raw else done.stdout.decode(), done.stderr.decode())


def done(stack, *words, **options):
    """The same, which must succeed; what it printed."""
    said = run(stack, *words, **options)
    assert said.status == 0, said
    return said.out


def queue(stack, *words, **options):
    """`mailq -j`, as a list."""
    return [json.loads(line) for line in done(stack, "mailq", "-j", *words, **options).splitlines()]
