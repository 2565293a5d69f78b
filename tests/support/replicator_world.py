"""Replicas without Dovecot: a Redis with lane.so, dovelane-replicator on a plain loop (replicator-bare) and scripted workers each."""
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

from support.lane_server import BUILD, LaneServer
from support.replicator_worker import Site
from support.stack import programs
from support.waiting import SLOW, eventually

PROGRAM = BUILD / "tests" / "unit" / "replicator" / "replicator-bare"
QUICK = {"resend_after": "300ms", "resend_most": "1s", "hello_every": "500ms", "exchange_after": "500ms", "sweep_dirty": "100ms", "sweep_active": "1h",
         "sweep_all": "1h", "sweep_rate": "1000", "log_level": "debug", "replicator_workers": "4"}


class Replica:
    def __init__(self, world, number):
        self.world, self.number, self.name = world, number, f"site-{'abcdef'[number - 1]}"
        self.directory = world.directory / self.name
        for sub in ("dirty", "state"):
            (self.directory / sub).mkdir(parents=True)
        self.log = self.directory / "log"
        self.redis = LaneServer(world.directory, "--lane.node", self.name, name=f"redis-{self.name}", module_line=True)
        self.site = Site(number, self.directory)
        self.process = self.settings = None
        self.program = PROGRAM

    def configure(self, **settings):
        off = {name: '""' for name in programs.no_metrics(self.program)}
        self.settings = {**off, **QUICK, **self.world.settings, **settings}
        lines = [f"{k} = {v}" for k, v in self.settings.items() if k not in ("namespaces", "replica_ids")]
        lines += [f"replicator_dir = \"{self.directory}/state\"", f"dirty_dir = \"{self.directory}/dirty\"", f"metrics_socket = \"{self.directory}/metrics\"",
                  f"replicate_namespaces = {self.settings.get('namespaces', '{ inbox }')}"]
        for other in self.world.replicas:
            lines.append(f"replica {other.name} {{\n id = {other.number}\n redis = \"unix:{other.redis.path}\"\n}}")
        (self.directory / "conf").write_text("\n".join(lines) + "\n")

    def start(self, **settings):
        self.configure(**settings)
        self.process = subprocess.Popen([self.program, self.directory / "conf", self.name, self.directory], stderr=open(self.log, "ab"),
                                        env=os.environ | {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"})
        eventually(f"a start of {self.name}",
                   lambda: self.process.poll() is not None or self.admin("status")[1] >= 0)
        assert self.process.poll() is None, self.tail()
        return self

    def sends(self):
        """Until what a worker sends comes into the lanes, and a start sends nothing again any more."""
        eventually(f"lanes of {self.name}", lambda: self.says("were asked to send it again"))

    def stop(self):
        self.process.terminate()
        code = self.process.wait(20 * SLOW)
        assert code == 0, f"{self.name} ended with {code}: {self.tail()}"

    def kill(self):
        self.process.kill()
        self.process.wait()
        eventually("the workers' end", lambda: not self.site.open_users)

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.site.end()
        self.redis.stop(quiet=True)

    def tail(self, lines=30):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def says(self, what):
        return what in self.log.read_text(errors="replace")

    def hint(self, user, mailbox="INBOX", guid="-"):
        fd = os.open(self.directory / "dovelane-hint", os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, f"1\t{user}\t{guid}\t{mailbox}\n".encode())
        os.close(fd)

    def mark(self, name):
        (self.directory / "dirty" / name).touch()

    def change(self, user, *items):
        self.site.add(user, *items)
        self.hint(user)

    def admin(self, *words):
        """(rows as lists, exit code, errors)."""
        line = "\t".join([words[0], words[1] if len(words) > 1 else "", *words[2:]]) + "\n"
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(20 * SLOW)
                s.connect(str(self.directory / "dovelane-admin"))
                s.sendall(line.encode())
                rows, errors = [], []
                for line in s.makefile("r", newline="\n"):
                    line = line.rstrip("\n")
                    if line[0] in "+#":
                        rows.append(line[1:].lstrip("\t").split("\t"))
                    elif line[0] == "-":
                        errors.append(line[1:])
                    else:
                        return rows, int(line.split("\t")[1]), errors
        except OSError:
            pass
        return [], -1, []

    def metric(self, name):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect(str(self.directory / "metrics"))
            data = s.makefile("r").read()
        return next(int(line.split()[1]) for line in data.splitlines() if line.split()[0] in (f"dovelane_{name}", f"dovelane_{name}_total"))


class Twin(Replica):
    """Another host that runs under a replica's name: a directory and mailboxes of its own, and the same nodes."""

    def __init__(self, of):     # pylint: disable=super-init-not-called
        self.world, self.number, self.name, self.redis = of.world, of.number, of.name, of.redis
        self.directory = of.world.directory / f"{of.name}-twin"
        for sub in ("dirty", "state"):
            (self.directory / sub).mkdir(parents=True)
        self.log = self.directory / "log"
        self.site = Site(of.number, self.directory)
        self.process = self.settings = None
        self.program = PROGRAM
        of.world.twins.append(self)

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.site.end()


class World:
    def __init__(self, replicas=2, **settings):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="dovelane-rep-"))
        self.settings, self.replicas, self.twins = settings, [], []
        for n in range(1, replicas + 1):
            self.replicas.append(Replica(self, n))
        for r in self.replicas:
            r.redis.start()

    def up(self):
        for r in self.replicas:
            r.start()
        for r in self.replicas:
            eventually(f"the first sweep of {r.name}", lambda: r.says("swept:"))
        for r in self.replicas if len(self.replicas) > 1 else []:
            r.sends()
        return self

    def end(self, failed):
        everybody = self.twins + self.replicas
        for r in everybody:
            r.end()
        wrong = [w for r in everybody for w in r.site.wrong]
        reports = [r.tail(60) for r in everybody if r.log.exists() and ("Sanitizer" in r.log.read_text(errors="replace") or "runtime error" in r.log.read_text(errors="replace"))]
        if failed:
            for r in everybody:
                print(f"--- {r.directory.name}\n{r.tail() if r.log.exists() else ''}")
        shutil.rmtree(self.directory)
        assert not wrong, wrong
        assert not reports, reports

    def __getitem__(self, i):
        return self.replicas[i]

    def converged(self, users):
        """Whether all replicas have the same, and it is all that was ever added."""
        for user in users:
            if any(r.site.state(user).mailbox for r in self.replicas): # first: what is looked at meanwhile is in the items, which are all equal before
                return False
            seen = [r.site.items(user) for r in self.replicas]
            if any(s != seen[0] for s in seen):
                return False
        return True

    def converge(self, users, seconds=60):
        try:
            eventually("convergence", lambda: self.converged(users), seconds)
        except AssertionError:
            for user in users:
                if not self.converged([user]):
                    print(user, [(r.name, {s: len(i) for s, i in r.site.items(user).items()}, r.site.state(user).__dict__) for r in self.replicas])
            raise

    def quiet(self, users, seconds=60):
        """Converged, and everybody knows it."""
        self.converge(users, seconds)
        lags = {}

        def confirmed():
            lags.update({r.name: r.admin("lag")[0][1:] for r in self.replicas})
            return all(row[3] == "0" for rows in lags.values() for row in rows)

        try:
            eventually("confirmation of all changes", confirmed, seconds)
        except AssertionError:
            print(lags, {r.name: r.admin("lag", "*") for r in self.replicas}, [line for r in self.replicas for line in r.log.read_text().splitlines() if "replicator.db" in line])
            raise


def users(n):
    return [f"user{i}@example.net" for i in range(n)]
