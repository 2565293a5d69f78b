#!/usr/bin/env python3
"""Becomes a program with what its systemd unit leaves it: user, groups, umask, no new privileges, the filters of system calls and address families,
and of memory that is written and run.

    as_unit.py UNIT USER GROUP[,GROUP]... PROGRAM [ARGUMENT]...

Where systemd-analyze (which knows the groups of system calls) or libseccomp is missing, and for sanitized programs, without the filters. Directories that
the unit closes stay open: a test's are not where an installation's are.
"""
import ctypes
import grp
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

PR_SET_NO_NEW_PRIVS = 38
ALLOW, DENY = 0x7fff0000, 0x00050000 | 1  # SCMP_ACT_ALLOW, SCMP_ACT_ERRNO(EPERM), seccomp.h
EQUAL, MASKED_EQUAL = 4, 7                # SCMP_CMP_EQ, SCMP_CMP_MASKED_EQ
WRITE, EXEC, SHM_EXEC = 2, 4, 0o100000    # PROT_WRITE, PROT_EXEC
# MemoryDenyWriteExecute=: of the third argument, which bits are looked at, and what they may be.
MEMORY = {
    "mmap": (WRITE | EXEC, (0, WRITE, EXEC)),
    "mprotect": (EXEC, (0,)),
    "pkey_mprotect": (EXEC, (0,)),
    "shmat": (SHM_EXEC, (0,)),
}
FAMILY = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}


class Compare(ctypes.Structure):
    """struct scmp_arg_cmp"""
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def allow_if(library, context, name, *compare):
    compare = Compare(*compare)
    number = library.seccomp_syscall_resolve_name(name.encode())
    library.seccomp_rule_add_array(context, ALLOW, number, 1, ctypes.byref(compare))


def settings(unit):
    """{name: its values}"""
    found = {}
    for line in Path(unit).read_text().splitlines():
        name, sign, value = line.partition("=")
        if sign and not line.startswith(("#", "[")):
            found.setdefault(name.strip(), []).append(value.strip())
    return found


def groups_of_calls():
    """systemd's names for sets of system calls: {"@chown": {"chown", ...}}"""
    found, name = {}, None
    for line in subprocess.run(["systemd-analyze", "syscall-filter"], stdout=subprocess.PIPE, check=True).stdout.decode().splitlines():
        word = line.strip()
        if line.startswith("@"):
            name = word
            found[name] = set()
        elif line.startswith("#"):
            name = None  # what no group has
        elif name and word and not word.startswith("#"):
            found[name].add(word)
    return found


def expanded(words, groups):
    calls = set()
    for word in words:
        calls |= expanded(groups[word], groups) if word.startswith("@") else {word}
    return calls


def allowed(unit):
    """The system calls that the lines leave, one after the other: the first allows, ~ takes away (systemd.exec(5))."""
    groups, calls = groups_of_calls(), expanded(["@default"], groups_of_calls())
    for line in unit["SystemCallFilter"]:
        words = expanded(line.lstrip("~").split(), groups)
        calls = calls - words if line.startswith("~") else calls | words
    return calls


def close_calls(unit):
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(DENY))
    memory = MEMORY if unit.get("MemoryDenyWriteExecute") == ["yes"] else {}
    for name in allowed(unit) | {"execve"}:  # the manager's own exec
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0 and name != "socket" and name not in memory:
            library.seccomp_rule_add_array(context, ALLOW, number, 0, None)
    for name, (bits, values) in memory.items():
        for value in values:
            allow_if(library, context, name, 2, MASKED_EQUAL, bits, value)
    for family in " ".join(unit["RestrictAddressFamilies"]).split():
        allow_if(library, context, "socket", 0, EQUAL, FAMILY[family], 0)
    if library.seccomp_load(context) != 0:
        raise OSError("seccomp_load failed")


def main():
    unit, user, groups, argv = settings(sys.argv[1]), pwd.getpwnam(sys.argv[2]), [grp.getgrnam(name).gr_gid for name in sys.argv[3].split(",")], sys.argv[4:]
    os.umask(int(unit["UMask"][-1], 8))
    os.setgroups(groups[1:])
    os.setresgid(*groups[:1] * 3)
    os.setresuid(*[user.pw_uid] * 3)
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if shutil.which("systemd-analyze") and any(Path("/usr/lib").glob("*/libseccomp.so.2")) and "DOVELANE_ASAN" not in os.environ:
        close_calls(unit)
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main()
