"""Debian machines with systemd as PID 1, booted by systemd-nspawn, on a network of their own.

    with World() as world:
        tree = base_tree("bookworm", packages=["postfix"])
        mx1, mx2 = world.machine("mx1", "10.0.0.1", tree), world.machine("mx2", "10.0.0.2", tree)
        mx1.install("/path/to/x.deb")       # before the boot: in a chroot, where no service starts
        mx1.boot(), mx2.boot()
        print(mx1.run("systemctl is-system-running; ping -c 1 mx2"))
        mx1.reboot(), mx1.cut_power(), mx1.boot(), mx1.power_off()
        world.run("python3", "client.py")   # on a third host of that network, 10.0.0.100

A World's network namespaces, cgroups, mounts and trees have names with a random part, and are gone when it is left: by its end, an exception or a
signal that ends the program. What a killed program left is removed when the next World begins. Nothing reaches a network outside.

Needs root, systemd-nspawn (systemd-container), debootstrap and iproute2; `require()` says what is missing.
DOVELANE_TREES: the directory of the base trees (default /var/cache/dovelane-trees), which are made once per release and set of packages.
"""
import atexit
import contextlib
import fcntl
import hashlib
import os
import pathlib
import random
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TREES = pathlib.Path(os.environ.get("DOVELANE_TREES", "/var/cache/dovelane-trees"))
BASE_PACKAGES = ["systemd", "systemd-sysv", "dbus", "ca-certificates", "iproute2", "netbase", "rsyslog", "logrotate", "cron", "procps", "openssl", "python3", "nftables"]
PREFIX = "dlm"
HUB_ADDRESS = "10.0.0.100"
DEV = pathlib.Path("/dev")
DEVICES = ["null", "zero", "full", "random", "urandom", "tty"]  # systemd-nspawn copies them with their modes
BOOT, STOP = 180, 120  # seconds; guards against hanging, on a busy machine
ENVIRONMENT = ["env", "-i", "HOME=/root", "TERM=dumb", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
FORBID = "#!/bin/sh\nexit 101\n"


class Failed(Exception):
    """A command failed; the text has the command, its status and its output."""


def require():
    """Raises Failed, naming all that is missing for booting machines here."""
    missing = []
    if os.geteuid() != 0:
        missing.append("root (systemd-nspawn, network namespaces and mounts need it)")
    for program, package in (("systemd-nspawn", "systemd-container"), ("debootstrap", "debootstrap"), ("ip", "iproute2"), ("nsenter", "util-linux")):
        if not shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            missing.append(f"{program} (apt-get install {package}; ./setup test does)")
    if not cgroup_roots():
        missing.append("a cgroup file system below /sys/fs/cgroup that can be written to")
    # A program that runs as root can have changed one. Only what begins as a user of its own fails by it inside: dbus in Debian 13, not in 12.
    missing += [f"a /dev/{name} for all (chmod 666 /dev/{name}: machines get a copy of it)" for name in DEVICES if stat.S_IMODE((DEV / name).stat().st_mode) != 0o666]
    if missing:
        raise Failed("machines cannot be booted here; missing: " + "; ".join(missing))


def call(*command, check=True, timeout=600, stdin=None, **keywords):
    """Runs a command of this host, returns its output (stdout and stderr)."""
    command = [str(c) for c in command]
    done = subprocess.run(command, input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=timeout, text=True, errors="replace", **keywords)
    if check and done.returncode:
        raise Failed(f"{shlex.join(command)}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def cgroup_roots():
    """Where a cgroup for a machine is made: systemd's own hierarchy and the unified one, or the unified one alone."""
    top = pathlib.Path("/sys/fs/cgroup")
    mixed = [top / name for name in ("systemd", "unified") if (top / name / "cgroup.procs").exists()]
    roots = mixed or ([top] if (top / "cgroup.procs").exists() else [])
    return [root for root in roots if os.access(root / "cgroup.procs", os.W_OK)]


@contextlib.contextmanager
def lock(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# Trees

def chroot(tree, *command, **keywords):
    """Runs a command in a tree that is not booted; no service starts there (policy-rc.d)."""
    forbid = tree / "usr/sbin/policy-rc.d"
    forbid.write_text(FORBID, encoding="ascii")
    forbid.chmod(0o755)
    resolver = pathlib.Path("/etc/resolv.conf")
    if resolver.exists():
        (tree / "etc/resolv.conf").unlink(missing_ok=True)
        (tree / "etc/resolv.conf").write_text(resolver.read_text(encoding="utf-8"), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    environment.update(word.split("=", 1) for word in ENVIRONMENT if "=" in word)
    mounted = not os.path.ismount(tree / "proc")
    if mounted:
        call("mount", "-t", "proc", "proc", tree / "proc")
    try:
        return call("chroot", tree, *command, env=environment, **keywords)
    finally:
        if mounted:
            call("umount", tree / "proc")


def apt_options():
    """This host's proxy for apt, if it has one in its apt.conf."""
    said = call("apt-config", "shell", "PROXY", "Acquire::http::Proxy").strip()
    value = shlex.split(said.split("=", 1)[1])[0] if said else ""
    return ["-o", f"Acquire::http::Proxy={value}"] if value else []


def apt_install(tree, packages):
    """Installs packages of the release's archive in a tree that is not booted."""
    quiet = ["-q", "-y", "-o", "Dpkg::Use-Pty=0", *apt_options()]
    chroot(tree, "apt-get", *quiet, "update")
    chroot(tree, "apt-get", *quiet, "--no-install-recommends", "install", *packages, timeout=1800)
    chroot(tree, "apt-get", "clean")


def make_base(release, path):
    call("sh", ROOT / "docker/make-base-image.sh", "--tree", path, env=dict(os.environ, RELEASE=release), timeout=1800)
    apt_install(path, BASE_PACKAGES)


def base_tree(release, packages=(), name=None, prepare=None, key=""):
    """The tree of a Debian release with these packages and systemd, made when it is not there; never changed afterwards.

    prepare(path) makes further changes in the new tree; `key` is what those depend on: another key, another tree.
    """
    base = TREES / f"{release}-base"
    with lock(TREES / f".{release}.lock"):
        if not base.exists():
            build(base, lambda path: make_base(release, path))
    if not packages and not prepare:
        return base
    digest = hashlib.sha256(" ".join([*sorted(packages), key]).encode()).hexdigest()[:10]
    tree = TREES / f"{release}-{name or 'more'}-{digest}"
    with lock(TREES / f".{tree.name}.lock"):
        if not tree.exists():
            def fill(path):
                call("cp", "-a", "--reflink=auto", base, path)
                if packages:
                    apt_install(path, packages)
                if prepare:
                    prepare(path)
            build(tree, fill)
    return tree


def build(path, fill):
    """A tree that is there is complete: it gets its name last."""
    unfinished = path.with_name(f".{path.name}.new")
    remove_tree(unfinished)
    print(f"machines: making {path}", flush=True)
    fill(unfinished)
    unfinished.rename(path)


def remove_tree(path):
    if path.exists():
        for point in mounts_below(path):
            call("umount", "-l", point)
        call("rm", "-rf", "--one-file-system", path)


def mounts_below(path):
    """Mount points at or below a path, the innermost first."""
    points = [line.split()[4].encode().decode("unicode_escape") for line in open("/proc/self/mountinfo", encoding="utf-8")]
    return sorted((p for p in points if p == str(path) or p.startswith(f"{path}/")), key=len, reverse=True)


# A world of machines

class World:
    """Machines on one bridge, and the hub, a network namespace on the same bridge for what the test itself runs."""

    def __init__(self):
        require()
        sweep()
        self.name = f"{PREFIX}{random.randrange(16**6):06x}"
        self.machines = {}
        self.folder = TREES / "run" / self.name
        with lock(TREES / ".run.lock"):
            self.folder.mkdir(parents=True)
            self.mark = open(self.folder / "lock", "w", encoding="ascii")
            fcntl.flock(self.mark, fcntl.LOCK_EX)
        self.hub = f"{self.name}-hub"
        self.before = {}
        atexit.register(self.close)
        # An end by one of these signals is an end like any other: what stands open is closed.
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:
                self.before[number] = signal.signal(number, lambda got, frame: sys.exit(128 + got))
        try:
            call("ip", "netns", "add", self.hub)
            self.run("ip", "link", "set", "lo", "up")
            self.run("ip", "link", "add", "br0", "type", "bridge")
            self.run("ip", "address", "add", f"{HUB_ADDRESS}/24", "dev", "br0")
            self.run("ip", "link", "set", "br0", "up")
        except BaseException:
            self.close()
            raise

    def machine(self, name, address, tree):
        """A machine that is not booted yet, with a tree of its own that begins as `tree` is."""
        self.machines[name] = machine = Machine(self, name, address, tree)
        for other in self.machines.values():
            other.write_hosts()
        return machine

    def run(self, *command, **keywords):
        """Runs a command in the hub's network."""
        return call("ip", "netns", "exec", self.hub, *command, **keywords)

    def popen(self, *command, **keywords):
        """A process in the hub's network; the caller ends it."""
        return subprocess.Popen(["ip", "netns", "exec", self.hub, *map(str, command)], **keywords)

    def cut(self, name):
        """Takes a machine's cable away."""
        self.run("ip", "link", "set", f"p-{name}", "down")

    def mend(self, name):
        self.run("ip", "link", "set", f"p-{name}", "up")

    def close(self):
        if not self.folder.exists():
            return
        for machine in self.machines.values():
            with contextlib.suppress(Exception):
                machine.cut_power()
        remove_world(self.folder)
        self.mark.close()
        atexit.unregister(self.close)
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def remove_world(folder):
    """Removes all that has a world's name: mounts and trees, namespaces, cgroups."""
    name = folder.name
    for namespace in call("ip", "netns", "list").splitlines():
        if namespace.startswith(f"{name}-"):
            namespace = namespace.split()[0]
            for pid in call("ip", "netns", "pids", namespace, check=False).split():
                with contextlib.suppress(ProcessLookupError, ValueError):
                    os.kill(int(pid), signal.SIGKILL)
            call("ip", "netns", "delete", namespace)
    for root in cgroup_roots():
        for group in root.glob(f"{name}-*"):
            remove_cgroup(group)
    remove_tree(folder)


def remove_cgroup(group):
    folders = [pathlib.Path(place) for place, _, _ in os.walk(group, topdown=False)]
    for folder in folders:
        with contextlib.suppress(OSError):
            for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
    for folder in folders:
        for _ in range(100):  # a killed process leaves its cgroup a moment later
            try:
                folder.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.05)


def sweep():
    """Removes worlds whose program is gone: nobody holds their lock."""
    with lock(TREES / ".run.lock"):
        for folder in (TREES / "run").glob(f"{PREFIX}*"):
            try:
                with open(folder / "lock", "a", encoding="ascii") as mark:
                    fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_world(folder)
            except BlockingIOError:
                continue  # in use


class Machine:
    """One Debian. Its tree is there from the beginning; between boot() and power_off() commands run inside."""

    def __init__(self, world, name, address, tree):
        self.world, self.name, self.address = world, name, address
        self.id = f"{world.name}-{name}"
        self.folder = world.folder / name
        self.tree = self.folder / "tree"
        self.console = self.folder / "console"
        self.process = None
        self.boots = 0
        self.folder.mkdir()
        self.make_tree(tree)
        (self.tree / "etc/hostname").write_text(f"{name}\n", encoding="ascii")
        (self.tree / "etc/machine-id").write_text(f"{random.randrange(16**32):032x}\n", encoding="ascii")
        call("ip", "netns", "add", self.id)
        self.network("link", "set", "lo", "up")
        world.run("ip", "link", "add", f"p-{name}", "type", "veth", "peer", "name", "eth0", "netns", self.id)
        world.run("ip", "link", "set", f"p-{name}", "master", "br0", "up")
        self.network("address", "add", f"{address}/24", "dev", "eth0")
        self.network("link", "set", "eth0", "up")

    def make_tree(self, base):
        """The base with a layer of its own above it; a copy where the file system cannot have layers."""
        for part in ("tree", "upper", "work"):
            (self.folder / part).mkdir()
        layers = f"lowerdir={base},upperdir={self.folder}/upper,workdir={self.folder}/work"
        try:
            call("mount", "-t", "overlay", "-o", layers, self.id, self.tree)
        except Failed:
            call("cp", "-a", "--reflink=auto", f"{base}/.", self.tree)

    def network(self, *words):
        """ip(8) in this machine's network; it may be booted or not."""
        return call("ip", "-n", self.id, *words)

    def write_hosts(self):
        lines = ["127.0.0.1 localhost"]
        for other in self.world.machines.values():
            lines.append(f"{other.address} {other.name}.example.org {other.name}")
        (self.tree / "etc/hosts").write_text("\n".join(lines) + "\n", encoding="ascii")

    def place(self, path):
        """The path of this machine's file `path`, on this host. Only for what is not below a mount that the machine makes itself (/run, /tmp)."""
        return self.tree / str(path).lstrip("/")

    def write(self, path, text, mode=0o644):
        """mode=None: a file that is there keeps its mode and owner."""
        self.place(path).parent.mkdir(parents=True, exist_ok=True)
        self.place(path).write_text(text, encoding="utf-8")
        if mode is not None:
            self.place(path).chmod(mode)

    def read(self, path):
        return self.place(path).read_text(encoding="utf-8", errors="replace")

    def chroot(self, *command, **keywords):
        """Runs a command in the tree of a machine that is not booted."""
        assert not self.process, f"{self.name} is booted: use run()"
        return chroot(self.tree, *command, **keywords)

    def install(self, *things):
        """Installs packages of the archive or .deb files of this host. Booted: only .deb files, by dpkg, as the archive is not reached from there."""
        files = [pathlib.Path(thing) for thing in things if str(thing).endswith(".deb")]
        names = [str(thing) for thing in things if not str(thing).endswith(".deb")]
        (self.tree / "var/tmp/debs").mkdir(exist_ok=True)
        inside = [shutil.copy(file, self.tree / "var/tmp/debs") and f"/var/tmp/debs/{file.name}" for file in files]
        if self.process:
            assert not names, f"{self.name} is booted, and reaches no archive: {names}"
            return self.run("dpkg", "-i", *inside)
        said = apt_install(self.tree, names) if names else ""
        return (said or "") + (self.chroot("apt-get", "-q", "-y", "--no-install-recommends", "install", *inside) if inside else "")

    def limit_disk(self, path, megabytes):
        """Puts `path` on a file system of its own with that much room; before the boot. What is there is copied."""
        assert not self.process
        image = self.folder / f"disk{str(path).replace('/', '-')}"
        with open(image, "wb") as file:
            file.truncate(megabytes << 20)
        call("mkfs.ext4", "-q", "-F", "-m", "0", image)
        aside = self.folder / "filling"
        aside.mkdir()
        call("mount", "-o", "loop", image, aside)
        call("cp", "-a", f"{self.place(path)}/.", aside)
        call("umount", aside)
        aside.rmdir()
        call("mount", "-o", "loop", image, self.place(path))

    # Life

    def start(self):
        """Starts it without waiting. Each in a cgroup of its own: two systemds that see each other's processes stop them."""
        (self.tree / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
        (self.tree / "etc/resolv.conf").unlink(missing_ok=True)
        (self.tree / "etc/resolv.conf").write_text("", encoding="ascii")
        groups = [root / self.id for root in cgroup_roots()]
        for group in groups:
            remove_cgroup(group)
            group.mkdir()
        enter = "; ".join(f"echo $$ > {group}/cgroup.procs" for group in groups)
        command = ["systemd-nspawn", "--boot", f"--directory={self.tree}", f"--machine={self.id}", "--register=no", "--keep-unit", "--capability=CAP_NET_ADMIN",
                   f"--network-namespace-path=/run/netns/{self.id}", "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe"]
        with open(self.console, "ab") as console:
            self.process = subprocess.Popen(["sh", "-c", f"{enter}; exec {shlex.join(command)}"], stdin=subprocess.DEVNULL, stdout=console, stderr=console,
                                            start_new_session=True, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_NSPAWN_LOCK": "0"})
        self.boots += 1

    def boot(self, timeout=BOOT):
        """Starts it and waits until systemd has started everything. Returns what systemctl is-system-running says: running or degraded."""
        self.start()
        return self.wait_booted(timeout)

    def wait_booted(self, timeout=BOOT):
        end = time.monotonic() + timeout
        said = ""
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise Failed(f"{self.name}: systemd-nspawn ended with {self.process.returncode}\n{self.tail()}")
            if self.leader():
                said = self.run("systemctl is-system-running", check=False, timeout=60).strip()
                if said in ("running", "degraded"):
                    return said
            time.sleep(0.2)
        jobs = self.run("systemctl list-jobs", check=False) if self.leader() else ""
        raise Failed(f"{self.name} is not up after {timeout} s (systemctl is-system-running: {said})\n{jobs}\n{self.tail()}")

    def leader(self):
        """The process that is PID 1 inside, or None."""
        if not self.process or self.process.poll() is not None:
            return None
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii").split()
        for child in children:
            with contextlib.suppress(OSError):
                status = pathlib.Path(f"/proc/{child}/status").read_text(encoding="ascii", errors="replace")
                inside = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
                if inside[-1] == "1" and os.readlink(f"/proc/{child}/exe").endswith("systemd"):
                    return int(child)
        return None

    def inside(self, *command):
        leader = self.leader()
        if not leader:
            raise Failed(f"{self.name} is not booted\n{self.tail()}")
        if len(command) == 1:
            command = ("bash", "-c", command[0])
        return ["nsenter", "-t", str(leader), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "--", *ENVIRONMENT, *map(str, command)]

    def run(self, *command, **keywords):
        """Runs a command inside as root; one word alone is a script for bash. Returns its output; raises Failed when it fails, unless check=False."""
        return call(*self.inside(*command), **keywords)

    def status(self, *command, timeout=600):
        """A command's exit status and output."""
        done = subprocess.run(self.inside(*command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, text=True, errors="replace")
        return done.returncode, done.stdout

    def popen(self, *command, **keywords):
        return subprocess.Popen(self.inside(*command), **keywords)

    def wait(self, script, timeout=60, what=None):
        """Waits until the script ends with 0; returns its output. The limit is against hanging."""
        end = time.monotonic() + timeout
        while True:
            code, said = self.status(script)
            if code == 0:
                return said
            if time.monotonic() > end:
                raise Failed(f"{self.name}: not within {timeout} s: {what or script}\n{said}")
            time.sleep(0.3)

    def power_off(self, timeout=STOP):
        """A clean shutdown; returns the seconds that it took. Failed when it takes longer than `timeout`."""
        begin = time.monotonic()
        os.kill(self.leader(), signal.SIGRTMIN + 4)
        self.wait_end(timeout, "power off")
        return time.monotonic() - begin

    def reboot(self, timeout=STOP):
        """A clean shutdown and a new boot; returns the seconds that the shutdown took."""
        seconds = self.power_off(timeout)
        self.boot()
        return seconds

    def cut_power(self):
        """Everything inside ends at once, as by SIGKILL. What the kernel had not written to the disk yet is not lost, unlike with real power."""
        leader = self.leader()
        if leader:
            os.kill(leader, signal.SIGKILL)
        if self.process:
            if not leader:
                self.process.kill()
            self.wait_end(STOP, "end by SIGKILL")

    def wait_end(self, timeout, what):
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            jobs = self.run("systemctl list-jobs; systemctl --failed; ps ax", check=False) if self.leader() else ""
            raise Failed(f"{self.name} did not {what} within {timeout} s\n{jobs}\n{self.tail()}") from None
        self.process = None

    def tail(self, lines=40):
        text = self.console.read_text(encoding="utf-8", errors="replace") if self.console.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


if __name__ == "__main__":  # machine.py sweep: removes what killed programs left
    require()
    sweep()
