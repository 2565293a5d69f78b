#!/usr/bin/python3
"""make fuzz: every target for MINUTES, with ASan and UBSan, and what each did.

    tests/fuzz/run.py [--minutes N] [--seed N] [--at-once N] [TARGET ...]

With clang and its libFuzzer, targets are driven by coverage, from the corpus in build-fuzz/corpus/TARGET, which the next run goes on from. Without, by
their random forms: runs from one seed after the other, so that a failure can be had again by `TARGET-random RUNS SEED`, which is printed. """
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / "build-fuzz").resolve()
SANITIZE = ["-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dbuildtype=debugoptimized"]
ENV = dict(os.environ, UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1", ASAN_OPTIONS="allocator_may_return_null=1")
BATCH_SECONDS = 20  # about; how many runs that are, the first ones tell


def has_libfuzzer():
    try:
        return subprocess.run(["clang", "-fsanitize=fuzzer", "-x", "c", "-", "-o", "/dev/null"], capture_output=True, check=False,
                              input=b"int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d && n ? 0 : 0; }").returncode == 0
    except FileNotFoundError:
        return False


def build(clang):
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["meson", "setup", BUILD, *SANITIZE], cwd=ROOT, check=True, env=dict(os.environ, **({"CC": "clang"} if clang else {})))
    all_of_them = json.loads(subprocess.run(["meson", "introspect", "--targets", BUILD], capture_output=True, check=True).stdout)
    files = [pathlib.Path(t["filename"][0]) for t in all_of_them if t["type"] == "executable" and "/tests/fuzz/" in t["defined_in"]]
    subprocess.run(["ninja", "-C", BUILD, *[path.relative_to(BUILD) for path in files]], check=True)
    return files


def targets(files, clang):
    """{name: program}"""
    found = {}
    for path in sorted(files):
        if clang and re.search(r"-fuzz$|-libfuzzer-", path.name):
            found[path.name.replace("-libfuzzer", "").removesuffix("-fuzz")] = path
        elif not clang and re.search(r"-random$|^lane-fuzz-", path.name):
            found[path.name.removesuffix("-random").removesuffix("-fuzz").replace("lane-fuzz", "lane")] = path
    return found


def by_coverage(name, path, seconds):
    corpus = BUILD / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([path, f"-max_total_time={seconds}", "-max_len=4096", "-print_final_stats=1", f"-artifact_prefix={corpus}-", corpus],
                          env=ENV, capture_output=True, text=True, errors="replace", check=False)
    runs = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    return int(runs[1]) if runs else 0, None if done.returncode == 0 else done.stderr[-4000:]


def by_seeds(path, seconds, seed):
    """Until the time is over, at least once."""
    end, runs, batch = time.monotonic() + seconds, 0, 200
    while True:
        start = time.monotonic()
        done = subprocess.run([path, str(batch), str(seed)], env=ENV, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            return runs, f"{path} {batch} {seed}: {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-4000:]}"
        runs, seed = runs + batch, seed + 1
        spent = max(time.monotonic() - start, 0.01)
        if time.monotonic() >= end:
            return runs, None
        batch = max(200, min(batch * 10, int(batch * min(BATCH_SECONDS, end - time.monotonic()) / spent)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("target", nargs="*")
    options = parser.parse_args()
    clang = has_libfuzzer()
    found = targets(build(clang), clang)
    unknown = set(options.target) - set(found)
    if unknown or not found:
        sys.exit(f"no target {', '.join(sorted(unknown))}: there are {', '.join(found) or 'none'}")
    chosen = {name: found[name] for name in options.target or found}
    seconds = int(options.minutes * 60)
    print(f"{len(chosen)} targets, {options.minutes:g} minutes each, {'by coverage' if clang else f'from seed {options.seed}'}, ASan and UBSan", flush=True)

    def one(name):
        return by_coverage(name, chosen[name], seconds) if clang else by_seeds(chosen[name], seconds, options.seed)

    failed = []
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        for name, (runs, why) in zip(chosen, pool.map(one, chosen)):
            print(f"  {name:<20} {runs:>12,} runs  {'nothing broke' if why is None else 'FAILED'}", flush=True)
            if why is not None:
                failed.append(name)
                print(why, flush=True)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
