#!/usr/bin/python3
"""Runs benchmarks, prints their tables, writes build/bench/NAME.json.

    run.py [--quick] [NAME...] [OPTION=VALUE...]

Without a name, all but those that take long (LONG). A benchmark NAME is bench_NAME.py in this folder (its "-" is "_" there), with
    ABOUT       one line
    OPTIONS     option to default value
    QUICK       the options that --quick changes: for trying it out, its figures prove nothing
    LONG        True: only by its name (may be left out)
    run(report, options)
The exit code tells whether it could be measured; whether a goal is met stands in the table and the JSON.
"""
import argparse
import importlib
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from report import Report  # noqa: E402 (after the path)
from support.stack import StackError  # noqa: E402


def known():
    return sorted(path.stem.removeprefix("bench_").replace("_", "-") for path in HERE.glob("bench_*.py"))


def options_of(module, quick, words):
    """The benchmark's options; a word for an option that it does not have is an error only if no benchmark has it."""
    values = dict(module.OPTIONS, **(module.QUICK if quick else {}))
    for name, text in words.items():
        if name in values:
            values[name] = type(values[name])(text)
    return SimpleNamespace(**values)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short, for trying it out")
    parser.add_argument("--list", action="store_true", help="the benchmarks and their options")
    parser.add_argument("words", nargs="*", metavar="NAME|OPTION=VALUE")
    arguments = parser.parse_args()
    names = [word for word in arguments.words if "=" not in word]
    words = dict(word.split("=", 1) for word in arguments.words if "=" in word)
    for name in names:
        if name not in known():
            parser.error(f"no benchmark {name!r}; there is {', '.join(known())}")
    modules = {name: importlib.import_module(f"bench_{name.replace('-', '_')}") for name in names or known()}
    if not names and not arguments.list:
        modules = {name: module for name, module in modules.items() if not getattr(module, "LONG", False)}
    unknown = [name for name in words if not any(name in module.OPTIONS for module in modules.values())]
    if unknown:
        parser.error(f"no benchmark has an option {unknown[0]!r}")
    if arguments.list:
        for name, module in modules.items():
            print(f"{name}: {module.ABOUT}\n    " + " ".join(f"{option}={value}" for option, value in module.OPTIONS.items()))
        return 0
    for name, module in modules.items():
        options, began = options_of(module, arguments.quick, words), time.monotonic()
        report = Report(name, module.ABOUT)
        report.detail("options", vars(options))
        module.run(report, options)
        report.detail("took_seconds", round(time.monotonic() - began, 1))
        if arguments.quick:
            report.remark("A quick run: good for seeing that it works, not for its figures.")
        print(report.text())
        print(f"{report.write()}: {len(report.rows)} figures in {time.monotonic() - began:.0f} s, {report.goals()}\n", flush=True)
    return 0


def end(*_):
    """What is mounted and started is put away, once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit("bench: ended")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    try:
        sys.exit(main())
    except (StackError, OSError) as error:
        sys.exit(f"bench: {error}")
