"""All compiles for musl, as images of Alpine (Mailu) have it: each source file without a warning;
what needs only the C library is linked, too, and runs. Debian has no libev, hiredis,
libConfuse or OpenSSL for musl, so the programs themselves are not linked."""
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import musl_objects
from support.lane_server import BUILD

pytestmark = [pytest.mark.long, pytest.mark.skipif(
    not shutil.which("musl-gcc"), reason="musl-gcc is missing: ./setup test installs musl-tools")]
# Links without another library today; one less here is an include too much in a file of ours.
STANDALONE = 5


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """(directory, objects), and what the compiler said of the others."""
    into = tmp_path_factory.mktemp("musl")
    entries = musl_objects.wanted(Path(BUILD))
    more = [*musl_objects.headers(into), "-O0", "-fno-sanitize=all", "-Wno-error",
            "-Wno-format-truncation", "-fdiagnostics-color=never"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(lambda each: musl_objects.compile_one(each, into, more), entries))
    objects = [each["output"] for each, (fine, _) in zip(entries, said) if fine]
    return into, objects, [text for _, text in said if text]


def test_each_file_of_the_gateway_compiles_without_a_warning(compiled):
    _, objects, said = compiled
    assert not said, "".join(said)[:3000]
    assert len(objects) > 150


def test_each_file_of_the_plugin_and_the_replicator_is_right_for_musl(tmp_path):
    """Against the headers of Debian's Dovecot. statx() is in musl from 1.2.5 on (Alpine 3.20)."""
    entries = musl_objects.wanted(Path(BUILD), ("dovecot-plugin/",))
    more = [*musl_objects.headers(tmp_path), "-O0", "-fno-sanitize=all", "-Wno-error",
            "-Wno-format-truncation", "-fdiagnostics-color=never", "-fsyntax-only"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(lambda each: musl_objects.compile_one(each, tmp_path, more), entries))
    assert len(entries) > 100
    wrong = [text for _, text in said if text and "statx" not in text]
    assert not wrong, "".join(wrong)[:3000]


def test_what_needs_the_c_library_alone_runs(compiled):
    into, objects, _ = compiled
    musl_objects.archive(objects, into)
    ran, needs = 0, {}
    for program, (words, _) in musl_objects.PROGRAMS.items():
        needs[program] = musl_objects.link(program, objects, into)
        if needs[program] is None:
            subprocess.run([f"./{program}", *words], cwd=into, check=True, timeout=600,
                           stdout=subprocess.DEVNULL)
            ran += 1
    assert ran >= STANDALONE, str(needs)


def test_no_source_has_what_only_glibc_has():
    """Of headers and functions. Where one is used, it is behind #ifdef __GLIBC__."""
    glibc = r"<(sys/queue|sys/cdefs|error|fts|execinfo|argp|obstack|printf|fstab|gnu/.*)\.h>" \
            r"|\b(strerrordesc_np|sigabbrev_np|program_invocation_(short_)?name|error_at_line|" \
            r"canonicalize_file_name|qsort_r|backtrace_symbols|rawmemchr|malloc_info)\b"
    root = Path(__file__).resolve().parents[3]
    found = subprocess.run(["grep", "-rnE", "--include=*.[ch]", glibc, *musl_objects.GATEWAY,
                            "dovecot-plugin/"], cwd=root, stdout=subprocess.PIPE, check=False)
    assert not found.stdout, found.stdout.decode()
