"""Dovecot replicas on one machine: each with its own directory, ports, storage format, Redis node and version.

    with Group("sdbox", "mdbox@2.4", replication="dovelane") as group:
        a, b = group.replicas
        group.cut(); ...; group.heal()

replication: "off"; "dsync", stock `doveadm sync` run by the test (`Group.sync`); "dovelane", plugin and replicator. What a site opens
to another one's Redis goes through a link (links.py), so that the network can be cut, or be far;
links=False: straight.

Versions ("2.4", or "2.4.5") are the host's and those of other releases' root directories:
DOVELANE_TRIXIE_ROOT (Debian 13) and DOVELANE_FORKY_ROOT (14). DOVELANE_TRIXIE_BUILD,
DOVELANE_FORKY_BUILD: the programs built for it, a path inside.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ..waiting import eventually
from . import dovecot, modules, probe, process, programs
from .failure import StackError
from .imap import Imap
from .secure import Secure
from .service import Service
from .shape import Shape
from .stack import Stack

STORAGES = ("sdbox", "mdbox", "maildir")
RELEASES = ("TRIXIE", "FORKY")
REPLICATIONS = ("off", "dsync", "dovelane")
PROGRAMS = {"replicator": "dovelane-replicator", "worker": "dovelane-worker"}
# Below dovecot-plugin/; the second one is 0.1.0's, which is upgraded in tests.
PLACES = {"replicator": ("replicator", "replicator/main"), "worker": ("worker", "replicator/worker")}

# What an admin copies; beside it what a test's replica has elsewhere than a host.
EXAMPLES = Path(__file__).resolve().parents[3] / "packaging" / "examples"
PLUGIN = {
    "2.3": "plugin {{\n  dovelane_dirty_dir = {dirty}\n  dovelane_group_key_file = {key}\n}}\n",
    "2.4": "dovelane_dirty_dir = {dirty}\ndovelane_group_key_file = {key}\n",
}
GROUP_KEY = "the group key of a test, known to all"
# Shorter than the defaults, so that a test sees within seconds what else takes a minute. settings=None in Group: the defaults.
FAST = {"sweep_dirty": "500ms", "sweep_active": "2s", "sweep_all": "5s", "hello_every": "2s", "exchange_after": "3s",
        "resend_after": "1s", "resend_most": "5s", "replicator_nice": "0", "log_level": "debug"}


def example(version, values):
    """The example's text with this replica's programs, site and number of workers; main and socket are the tests' user's, who is root."""
    text = "".join((EXAMPLES / f"dovecot-replication-{part}.conf").read_text() for part in (version, "services"))
    for line, here in ((r"executable = dovelane-replicator -n site-a", "executable = {replicator} -C {conf} -n {site}"),
                       (r"executable = dovelane-worker", "executable = {worker}"),
                       (r"process_limit = 10 .*", "process_limit = {workers}"),
                       (r"\n +user = dovelane-replicator", "")):
        text, n = re.subn(line, here.format(**values), text)
        assert n == (2 if "user" in line else 1), (line, text)
    return text


def roots():
    """Root directories of other Debian releases: directory to the build for it."""
    found = {}
    for release in RELEASES:
        root = Path(os.environ.get(f"DOVELANE_{release}_ROOT") or "/nowhere")
        if (root / "usr/sbin/dovecot").exists():
            build = os.environ.get(f"DOVELANE_{release}_BUILD") or "/build/main"
            found[root] = root / build.lstrip("/")
    return found


def installed():
    """Versions that replicas can have here, with their root directories: "2.3", and as a whole
    "2.3.19". A family's name is its first one's, the host's before others'."""
    found = {}
    for root in (None, *roots()):
        with contextlib.suppress(StackError):
            number = dovecot.version(root)
            found.setdefault(dovecot.family(number), root)
            found.setdefault(".".join(map(str, number)), root)
    return found


def built_at(build, name):
    places = [Path(build) / "dovecot-plugin" / place / PROGRAMS[name] for place in PLACES[name]]
    return next((place for place in places if place.exists()), places[0])


@dataclass
class Spec:
    """One replica: storage[@version]. Without a version: DOVELANE_VERSIONS ("2.4,2.3") in turn, else the host's."""
    storage: str
    version: str

    @classmethod
    def parse(cls, text, known, number=0):
        storage, _, version = text.partition("@")
        turns = os.environ.get("DOVELANE_VERSIONS", "").split(",")
        version = version or turns[number % len(turns)].strip() or next(iter(known))
        if storage not in STORAGES:
            raise StackError(f"storage {storage!r}: one of {', '.join(STORAGES)}")
        if version not in known:
            raise StackError(f"Dovecot {version} is not here (set DOVELANE_TRIXIE_ROOT, "
                             f"DOVELANE_FORKY_ROOT); there is {', '.join(known)}")
        return cls(storage, version)

    @property
    def family(self):
        return ".".join(self.version.split(".")[:2])


class Replica(Service):
    """A Dovecot of a group. Its own mark tells its processes from the other replicas'."""

    kind = "replica"

    @property
    def mark(self):
        return self.note["mark"]

    @property
    def letter(self):
        return self.note["letter"]

    def launch(self, _):
        super().launch(self.mark)

    def entered(self, *words):
        """A command as it runs in this replica's system."""
        return [*self.note["enter"], *words]

    def run(self, *words, check=True, text=None, timeout=300):
        """Output of a command run there."""
        done = subprocess.run(self.entered(*words), input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                              check=False)
        if check and done.returncode != 0:
            raise StackError(f"{self.name}: {' '.join(words)}: exit {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    def doveadm(self, *words, **how):
        return self.run("doveadm", "-c", self.note["inner_config"], *words, **how)

    def imap(self, user, **how):
        return Imap(self.note["imap"], user, **how)

    def set_users(self, users):
        """Whom the userdb lists from now on; of a dictionary each user's further fields, "userdb_NAME=VALUE" with blanks between."""
        fields = users if isinstance(users, dict) else dict.fromkeys(users, "")
        lines = [dovecot.passwd_line(user, self.note["homes"], extra) for user, extra in fields.items()]
        path = Path(self.note["users"])
        fresh = path.with_name("users.new")
        fresh.write_text("".join(lines))
        # Dovecot looks at the file's time and size, once a second at most.
        before, were = path.stat().st_mtime, path.read_text().splitlines()
        os.utime(fresh, (before + 1, before + 1))
        fresh.rename(path)
        if not self.processes():
            return
        for changed in {line.partition(":")[0] for line in {*were} ^ {line.rstrip() for line in lines}}:
            there = changed in fields
            eventually(f"{self.name} {'has' if there else 'has not'} {changed}",
                       lambda name=changed, wanted=there: self.has_user(name) == wanted)

    def has_user(self, user):
        """By the userdb."""
        try:
            return bool(self.doveadm("user", user))
        except StackError:
            return False

    def home(self, user):
        name, _, domain = user.partition("@")
        return Path(self.note["mail"]) / domain / name

    def store(self, user):
        """The mail directory below the home."""
        return self.home(user) / self.note["storage"]

    # -- its processes ---------------------------------------------------------------------------------------------------

    def processes(self, program=None):
        """Living processes of this Dovecot, of one program (imap, lmtp, dovelane-replicator, dovelane-worker) or all."""
        found = process.marked(self.mark)
        if program is None:
            return found
        return [one for one in found if program_of(one.pid) == program[:15] and one.pid != self.pid]

    def replicator(self):
        """Its main process; a start has forked before it has executed it."""
        end = time.monotonic() + 60
        while True:
            found = self.processes("dovelane-replicator")
            if found:
                return found[0]
            assert time.monotonic() < end, f"{self.name} has no replicator\n{self.told()}"
            time.sleep(0.02)

    def told(self, last=30):
        """What explains a site that does not do what it should: its processes, and its log's last lines."""
        there = [f"{one.pid} {program_of(one.pid)}" for one in self.processes()]
        try:
            lines = Path(self.log).read_text(errors="replace").splitlines()
        except OSError as error:
            lines = [str(error)]
        return "\n".join([f"its master {'lives' if self.alive() else 'is gone'}; its processes: {', '.join(there) or 'none'}", *lines[-last:]])

    def maker(self, guid):
        """The program whose process drew a GUID, which holds its id: imap, lmtp, dovelane-worker ...; None when it is gone and left no line
        in the log, which another process writes."""
        pid, end = int.from_bytes(bytes.fromhex(guid)[8:12], "little"), time.monotonic() + 5
        while True:
            found = re.search(rf" ([a-z-]+)\([^)\n]*\)<{pid}>", Path(self.log).read_text(errors="replace"))
            maker = found[1] if found else program_of(pid)
            if maker or time.monotonic() > end:
                return maker
            time.sleep(0.05)

    def kill_some(self, program, pick=None, number=signal.SIGKILL):
        """kill -9 of a program's processes (all, or the one `pick` chooses); how many were hit."""
        there = self.processes(program)
        chosen = there if pick is None or not there else [pick(there)]
        return sum(one.send(number) for one in chosen)

    def kill(self, number=signal.SIGKILL):
        """The whole Dovecot at once, as when the host dies: a master alone would leave its children serving. It is stopped first: a child
        that it made after its children were listed would go on listening."""
        if number == signal.SIGKILL:
            super().kill(signal.SIGSTOP)
        there = self.processes()
        super().kill(number)
        while there:
            for one in there:
                one.send(number)
            if number != signal.SIGKILL:
                return
            for one in there:
                one.wait_gone(60)
            there = self.processes()

    @contextlib.contextmanager
    def stopped(self):
        """All its processes stand still meanwhile."""
        super().kill(signal.SIGSTOP)    # the master first: it would make others
        try:
            for one in self.processes():
                one.send(signal.SIGSTOP)
                one.wait_stopped(10)
            yield
        finally:
            self.kill(signal.SIGCONT)

    def end(self):
        remark = super().end()
        process.sweep(self.mark)
        return remark

    # -- its disk --------------------------------------------------------------------------------------------------------

    def snapshot(self, user, what="home"):
        """A copy of a user's files: "home", or "mail" (without Dovelane's state), or "state". Restore it with `restore`. Of one moment, as a
        file system's snapshot is: of a state that was copied before its log was emptied, and a log that was copied after it, the newest
        is missing, and what the mailbox has under newer UIDs would be new mail."""
        kept = Path(tempfile.mkdtemp(prefix="snapshot-", dir=Path(self.note["mail"]).parent))
        with self.stopped():
            subprocess.run(["cp", "-a", str(self.home(user)), str(kept / "home")], check=True)
        return {"user": user, "what": what, "kept": str(kept / "home")}

    def restore(self, kept):
        """Puts a snapshot in the place of what is there, while Dovecot may run: beside it, and renamed when it is complete."""
        home, old = self.home(kept["user"]), Path(kept["kept"])
        state = Path(self.note["storage"]) / "dovelane"
        part = Path() if kept["what"] != "state" else state
        beside = Path(tempfile.mkdtemp(prefix="restored-", dir=home.parent))
        subprocess.run(["cp", "-a", str(old / part), str(beside / "new")], check=True)
        if kept["what"] == "mail":
            remove_tree(beside / "new" / state)
            if (home / state).exists():
                (home / state).rename(beside / "new" / state)
        put_in_place(beside / "new", home / part)
        remove_tree(beside)


def put_in_place(new, place):
    """An open session, or the replicator, may make a directory there in between."""
    for n in range(100):
        with contextlib.suppress(OSError):
            place.rename(new.parent / f"old{n}")
        with contextlib.suppress(OSError):
            new.rename(place)
            return
    raise AssertionError(f"{place} is made again and again")


def remove_tree(path):
    """Until nothing is left: an open session, or the replicator, may make a file in it meanwhile."""
    for _ in range(100):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
    raise AssertionError(f"{path} is made again and again")


def program_of(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None


class Group(Stack):
    """Replicas a, b, c ... and the links between them."""

    ORDER = ("dovecot-", "links", "redis-")

    def __init__(self, *specs, replication="dovelane", users=None, settings=FAST, workers=4, directory=None, debug=False, links=True,
                 extras=(), more=None, anybody=True, backup="", on_demand="", protocols=(), **options):
        """users: whom the userdb lists; anybody: all others exist, too. extras: names of dovecot.EXTRAS; more: {version: text} at the end of dovecot.conf.
        backup, on_demand: letters of the sites with that role. protocols: as write_config's."""
        super().__init__(directory, Shape(postfix="none", nodes=0, relays=False, **options))
        if replication not in REPLICATIONS:
            raise StackError(f"replication {replication!r}: one of {', '.join(REPLICATIONS)}")
        self.known = installed()
        self.specs = [Spec.parse(text, self.known, number) for number, text in enumerate(specs)]
        self.replication, self.users, self.workers, self.debug = replication, users, workers, debug
        self.settings, self.linked, self.links = dict(settings or {}), links, {}
        self.extras, self.more, self.anybody = extras, more or {}, anybody
        self.roles = {**dict.fromkeys(backup, "backup"), **dict.fromkeys(on_demand, "on-demand")}
        self.protocols = protocols
        self.states = {}

    # -- making it -------------------------------------------------------------------------------------------------------

    def assemble(self):
        letters = [chr(ord("a") + number) for number in range(len(self.specs))]
        nodes = {}
        self.secure = Secure(self.directory / "secure", self.shape.build) if self.shape.secure else None
        if self.replication == "dovelane":
            for letter in letters:
                port = self.ports.take() if self.secure else None
                service = self.add(programs.redis(self.directory / f"redis-{letter}", f"site-{letter}", self.shape, self.ports,
                                                  self.log(f"redis-{letter}"), more=self.secure.redis_conf(f"site-{letter}", port) if self.secure else ()))
                service.name = f"redis-{letter}"
                nodes[letter] = f"127.0.0.1:{port}" if self.secure else service.note["address"]
            self.services = {service.name: service for service in self.services.values()}
            if self.linked:
                self.links = self.assemble_links(letters, nodes)
        self.nodes_of = nodes
        for letter, spec in zip(letters, self.specs):
            self.add(self.replica(letter, spec, letters, nodes))

    def assemble_links(self, letters, nodes):
        ports = {f"{one}>{other}": self.ports.take() for one in letters for other in letters if one != other}
        if ports:
            control = self.directory / "links.sock"
            words = [f"{name}={port}={nodes[name[2:]]}" for name, port in ports.items()]
            argv = ["/usr/bin/python3", Path(__file__).with_name("links.py"), "--control", control, *words]
            self.add(Service("links", argv, self.log("links"), [("links", f"unix:{control}")], grace=3, note={"control": str(control)}))
        return ports

    def replica(self, letter, spec, letters, nodes):
        """Writes all that one Dovecot needs."""
        root = self.known[spec.version]
        base = self.directory / letter
        if root:
            base = Path(tempfile.mkdtemp(prefix=f"{self.directory.name}-{letter}-", dir=root / "var/tmp"))
            base.chmod(0o755)
            self.made.append(base)
        base.mkdir(exist_ok=True)
        log = base / "dovecot.log"
        mark = self.mark + letter
        number = dovecot.version(root)
        # One separator, so that folder names are equal whatever the storage calls them.
        more = dovecot.INBOX + "protocol imap {\n  imap_metadata = yes\n}\n"
        more += dovecot.attributes(number, "dovecot-attributes")
        if self.debug:
            more += "mail_debug = yes\n" if spec.family == "2.3" else "log_debug = category=mail\n"
        enter = dovecot.entered(root)
        if self.replication == "dovelane":
            enter = modules.command(modules.lay(self.build_of(root), base / "modules", root), root=root)
            more += self.dovelane_part(letter, spec, base, root, letters, nodes)
        more += "".join(dovecot.EXTRAS[name][spec.family] for name in self.extras)
        more += self.more.get(spec.family, "")
        note = dovecot.write_config(base, mark, self.ports, log, spec.storage, root, self.users, more, number, self.anybody,
                                    self.protocols)
        inner = str(dovecot.seen(note["config"], root))
        note.update(mark=mark, letter=letter, enter=enter, inner_config=inner, base=str(base), root=str(root or ""), site=f"site-{letter}")
        argv = [*enter, "dovecot", "-F", "-c", inner]
        return Replica(f"dovecot-{letter}", argv, log, [("smtp", note["lmtp"]), ("imap", note["imap"])], grace=15, note=note)

    def change_version(self, replica, version):
        """The site goes on with another Dovecot: what the old one left is in the new one's place, by rename where that is possible."""
        replica.end()
        spec = Spec(replica.note["storage"], version)
        after = self.replica(replica.letter, spec, list(self.nodes_of), self.nodes_of)
        for name in ("mail", "replicator", "dirty"):
            old, new = Path(replica.note["base"]) / name, Path(after.note["base"]) / name
            if old != new and old.exists():
                shutil.rmtree(new)
                # Unlike shutil.move, this keeps the owners where the two are on different disks.
                subprocess.run(["mv", "-T", old, new], check=True)
        self.add(after)
        self.start(after.name)
        return after

    def build_of(self, root):
        """Where the programs for this system are."""
        return roots()[root] if root else self.shape.build

    def dovelane_part(self, letter, spec, base, root, letters, nodes):
        """The services, and this site's dovelane.conf: its own node by its address, the others by its links."""
        conf, dirty, key = base / "dovelane.conf", base / "dirty", base / "group.key"
        settings = {"replicator_dir": dovecot.seen(base / "replicator", root), "dirty_dir": dovecot.seen(dirty, root),
                    "metrics_socket": dovecot.seen(base / "metrics", root), "replicate_namespaces": '{"inbox"}', "replicator_workers": self.workers,
                    **programs.no_metrics(built_at(self.build_of(root), "replicator")), **self.settings}
        if self.secure:
            shutil.copytree(self.secure.directory, base / "secure")
            files = dovecot.seen(base / "secure", root)
            settings.update(node_ca_file=files / "ca.crt", node_user_file=f"{files}/%p.user")
        lines = [f"{name} = {programs.quoted(value)}" for name, value in settings.items()]
        tls = "\n    tls = yes" if self.secure else ""
        for number, other in enumerate(letters, 1):
            link = self.links.get(f"{letter}>{other}")
            address = f"127.0.0.1:{link}" if link else nodes[other]
            role = f"\n    role = {self.roles[other]}" if other in self.roles else ""
            lines.append(f'replica "site-{other}" {{\n    id = {number}\n    redis = "{address}"{tls}{role}\n}}')
        conf.write_text("\n".join(lines) + "\n")
        (base / "replicator").mkdir(exist_ok=True)
        dirty.mkdir(exist_ok=True)
        dirty.chmod(0o1733)
        key.write_text(GROUP_KEY)
        key.chmod(0o400)
        shutil.chown(key, dovecot.MAIL_USER)
        build = self.build_of(root)
        values = {"conf": dovecot.seen(conf, root), "site": f"site-{letter}", "workers": 2 * self.workers + 2, "dirty": dovecot.seen(dirty, root), "key": dovecot.seen(key, root),
                  **{name: dovecot.seen(built_at(build, name), root) for name in PROGRAMS}}
        return example(spec.family, values) + PLUGIN[spec.family].format(**values)

    def marks(self):
        return [*(replica.mark for replica in self.replicas), *super().marks()]

    @property
    def replicas(self):
        return [service for service in self.services.values() if isinstance(service, Replica)]

    def remove_contents(self):
        for path in self.directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def save(self):
        """No stack.json: a group lives as long as its test."""

    # -- the network -----------------------------------------------------------------------------------------------------

    def network(self, **order):
        with probe.connect("unix:" + self["links"].note["control"], 60) as stream:
            stream.sendall(json.dumps(order).encode() + b"\n")
            answer = json.loads(stream.makefile("rb").readline())
        if "error" in answer:
            raise StackError(f"links: {answer['error']}")
        return answer

    def between(self, one, other):
        return [f"{one}>{other}", f"{other}>{one}"]

    def cut(self, one=None, other=None, how="cut"):
        """No network between two sites, between one and all others, or between any."""
        if not self.links:
            return
        names = [name for name in self.links if one is None or (one in name and (other is None or other in name))]
        self.network(do=how, links=names)

    def heal(self):
        if self.links:
            self.network(do="heal")

    def delay(self, milliseconds):
        """The round trip between any two sites."""
        self.network(do="delay", ms=milliseconds / 2)

    # -- stock synchronisation -------------------------------------------------------------------------------------------

    def sync(self, one, other, user, stateful=True, options=()):
        """`doveadm sync` between two replicas, with the state of their last one. (exit code, its words)."""
        if one.note["root"] and not other.note["root"]:
            one, other = other, one  # what runs in another root cannot start a program outside it
        key = (one.name, other.name, user)
        words = ["sync", "-u", user, *options]
        if stateful:
            words += ["-s", self.states.get(key, "")]
        enter = other.note["enter"] if not one.note["root"] else []
        # doveadm hands its own settings down in the environment, and the other one would take them for its.
        words += ["/usr/bin/env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *enter, "doveadm", "-c", other.note["inner_config"], "dsync-server", "-u", user]
        done = subprocess.run(one.entered("doveadm", "-c", one.note["inner_config"], *words), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=300, check=False)
        if stateful and done.returncode in (0, 2):
            self.states[key] = done.stdout.decode().strip()
        return done.returncode, done.stderr.decode(errors="replace").strip()

    def sync_all(self, user, rounds=1, **how):
        """Around the ring, as often as said. The worst exit code and all words."""
        worst, told = 0, []
        there = self.replicas
        for _ in range(rounds):
            for one, other in zip(there, there[1:] + there[:1] if len(there) > 2 else there[1:]):
                code, words = self.sync(one, other, user, **how)
                worst = max(worst, code)
                told += [words] if words else []
        return worst, "; ".join(told)

    # -- looking ---------------------------------------------------------------------------------------------------------

    def logs(self, pattern=None, last=40):
        """Lines of the replicas' logs that fit a pattern; for the text of a failure."""
        told = []
        for replica in self.replicas:
            with contextlib.suppress(OSError):
                lines = Path(replica.log).read_text(errors="replace").splitlines()
                chosen = [line for line in lines if pattern is None or re.search(pattern, line)]
                told += [f"{replica.name}: {line}" for line in chosen[-last:]]
        return "\n".join(told)

    def rebuilt(self):
        """Users whose mdbox Dovecot rebuilt from its files, at any replica."""
        return {f"{found[2]}@{found[1]}" for found in re.finditer(r"mdbox[ (]\S*/([^/\s]+)/([^/\s]+)/mdbox/storage\)?: rebuilding indexes",
                                                                 self.logs("rebuilding indexes", 0))}

