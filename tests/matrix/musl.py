"""The gateway against musl: each source file is compiled with musl's headers; the programs that need only the C library are linked and run.

tests/support/musl_objects.py says how.
"""
import time

from inside import BUILD, HERE, SOURCE, run

from support import musl_objects  # inside.py has made tests/ known


def compile_all(result):
    start = time.monotonic()
    if run(["meson", "setup", "-Db_colorout=never", BUILD, SOURCE]).returncode:
        result.step("built", "setup", 0, 1, 0, start, ["meson setup"])
        return []
    more = musl_objects.headers(HERE)
    objects, failures, warnings = [], [], set()
    for each in musl_objects.wanted(BUILD):
        compiled, text = musl_objects.compile_one(each, BUILD, more)
        print(text, end="", flush=True)
        warnings |= {line for line in text.splitlines() if " warning: " in line}
        if compiled:
            objects.append(each["output"])
        else:
            failures.append(next((line for line in text.splitlines() if "error: " in line), each["output"]))
    result.step("built", "files compiled", len(objects), len(failures), 0, start, failures, warnings=sorted(warnings))
    return objects


def run_programs(objects, result):
    """A program that needs another library, in the end, is skipped, and named."""
    start, passed, failures, skips = time.monotonic(), 0, [], {}
    musl_objects.archive(objects, BUILD)
    for program, (words, _) in musl_objects.PROGRAMS.items():
        if missing := musl_objects.link(program, objects, BUILD):
            skips[f"{program} needs another library: {missing}"] = 1
        elif run([f"./{program}", *words], cwd=BUILD).returncode:
            failures.append(program)
        else:
            passed += 1
    result.step("core", "programs linked and run", passed, len(failures), len(skips), start, failures, skips=skips)


def compile_and_run(result):
    objects = compile_all(result)
    if objects:
        run_programs(objects, result)
