"""The stack: all services of one shape under one directory, from `up` to `down`."""
import json
import os
import re
import secrets
import shutil
import signal
import stat
import tempfile
import threading
import time
from pathlib import Path

from . import dovecot, postfix, probe, process, programs
from .failure import StackError, log_tail
from .ports import Ports
from .secure import Secure
from .service import Service
from .shape import Shape

# The longest socket path below the directory is Dovecot's run/doveadm-server and the like; the kernel keeps 107 bytes.
LONGEST_DIRECTORY = 70
RECORD = "stack.json"
COMPLAINT = re.compile(r"ERROR: \w+Sanitizer|runtime error: |REDIS BUG REPORT|[Aa]ssertion .*failed|ASSERTION FAILED|\bpanic:")
KINDS = {Service.kind: Service, postfix.Postfix.kind: postfix.Postfix}


class Uninterrupted:
    """Keeps SIGINT, SIGTERM and SIGHUP back while it lasts. Only the main thread can; elsewhere no signal interrupts anyway."""

    def __enter__(self):
        self.came, self.before = [], {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self.before[number] = signal.signal(number, lambda which, _: self.came.append(which))

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        if self.came:
            os.kill(os.getpid(), self.came[0])


class Stack:
    """A context manager: `with Stack(postfix="stock", sinks=["a"]) as stack: ...`.

    Services are named redis-mx1, relay-mx1, milter, postfix, dovecot, sink-NAME; the name of a node (mx1) means its Redis and
    its relay.
    """

    ORDER = ("postfix", "milter", "proxy", "relay-", "links", "redis-", "sink-", "dovecot")

    def __init__(self, directory=None, shape=None, **options):
        self.shape = shape or Shape(**options)
        self.directory = None if directory is None else Path(directory).absolute()
        self.made = []
        self.mark = None
        self.ports = Ports()
        self.services = {}
        self.destinations = {}
        self.domains = {}
        self.divert = []
        self.remarks = []

    # -- up and down -----------------------------------------------------------------------------------------------------

    def __enter__(self):
        return self.up()

    def __exit__(self, *_):
        self.down()

    def up(self):
        """Starts everything and waits until it answers. When anything fails, nothing is left behind."""
        try:
            self.prepare_directory()
            self.assemble()
            for service in self.services.values():
                if self.wanted(service):
                    service.start(self.mark, self.save)
        except BaseException:
            self.down()
            raise
        self.save()
        return self

    def wanted(self, service):
        return self.shape.relays or not service.name.startswith("relay-")

    def prepare_directory(self):
        if self.directory is None:
            self.directory = Path(tempfile.mkdtemp(prefix="stack-"))
            self.made.append(self.directory)
        elif not self.directory.exists():
            self.directory.mkdir(parents=True)
            self.made.append(self.directory)
        elif (self.directory / RECORD).exists():
            raise StackError(f"{self.directory / RECORD}: a stack is there already; `stack down --dir {self.directory}` first")
        if len(os.fsencode(self.directory)) > LONGEST_DIRECTORY:
            raise StackError(f"{self.directory} has {len(os.fsencode(self.directory))} bytes; UNIX sockets below it leave "
                             f"room for {LONGEST_DIRECTORY}: use a shorter --dir")
        if self.directory in self.made:
            self.directory.chmod(0o755)
        for parent in (self.directory, *self.directory.parents):
            if os.geteuid() == 0 and not parent.stat().st_mode & stat.S_IXOTH:
                raise StackError(f"{parent} cannot be entered by others, but Postfix and Dovecot run as their own users: "
                                 f"use another --dir, or chmod o+x")
        self.mark = f"{self.directory}:{secrets.token_hex(4)}"
        (self.directory / "log").mkdir()
        self.save()

    def log(self, name):
        return self.directory / "log" / f"{name}.log"

    def add(self, service):
        self.services[service.name] = service
        return service

    def host(self, node=None):
        """The address of a node, or of everything else."""
        return "127.0.0.1"

    def assemble(self):
        """Prepares all services; their order here is the order of their start."""
        shape, base = self.shape, self.directory
        if shape.dovecot:
            note = self.add(dovecot.prepare(base / "dovecot", self.mark, self.ports, self.log("dovecot"))).note
            self.destinations["dovecot"] = "lmtp:[127.0.0.1]:" + note["lmtp"].rpartition(":")[2]
            self.destinations["dovecot-unix"] = "lmtp:unix:" + note["lmtp_socket"]
        for sink in shape.sinks:
            log = self.log(f"sink-{sink.name}")
            if sink.ours:
                service = programs.python_sink(base / sink.name, sink, self.ports.take(), log, self.host())
            else:
                service = programs.smtp_sink(sink, self.ports.take(), log)
            self.destinations[sink.name] = self.add(service).note["destination"]
        self.domains = {domain: self.destination(name) for domain, name in shape.domains().items()}
        named = sorted(set(self.domains.values())) if shape.divert is None else [self.destination(name) for name in shape.divert]
        self.divert = named
        self.assemble_nodes(self.assemble_postfix())

    def destination(self, name):
        """transport:nexthop for a sink's name, dovecot, or what is written so already."""
        if name in self.destinations:
            return self.destinations[name]
        if ":" in name:
            return name
        raise StackError(f"destination {name!r}: there is {', '.join(self.destinations) or 'none'}, or write transport:nexthop")

    def assemble_postfix(self):
        """Postfix (started last, so it is only prepared), or None."""
        shape = self.shape
        if shape.postfix == "none":
            return None
        queue = self.directory / "postfix" / "queue"
        if shape.queue_tmpfs:
            queue = Path(tempfile.mkdtemp(prefix="stack-queue-", dir="/dev/shm"))
            queue.chmod(0o755)
            self.made.append(queue)
        milter = "dovelane/milter.sock" if shape.postfix in ("divert", "discard") else None
        if milter:
            (queue / milter).parent.mkdir(parents=True)
        elif shape.postfix in ("proxy", "swallow"):
            (queue / "dovelane-proxy").mkdir(parents=True)
        return postfix.prepare(self.directory / "postfix", self.mark, shape, self.ports, self.log("postfix"), self.domains, queue,
                               milter)

    def assemble_nodes(self, mta):
        shape, base = self.shape, self.directory
        names = [f"mx{number}" for number in range(1, shape.nodes + 1)]
        nodes, more = {}, {}
        secure = Secure(base / "secure", shape.build) if shape.secure else None
        for name in names:
            port = self.ports.take() if secure else None
            service = self.add(programs.redis(base / name, name, shape, self.ports, self.log(f"redis-{name}"), self.host(name),
                                              more=secure.redis_conf(name, port) if secure else ()))
            nodes[name] = {"redis": f"127.0.0.1:{port}", "tls": "yes"} if secure else {"redis": service.note["address"]}
            nodes[name].update(shape.labels.get(name, {}))
        if shape.paths:
            self.assemble_paths(nodes)
        if secure:
            more = secure.settings
        settings = {**more, "divert": programs.listed(self.divert), "copies": shape.copies, "on_store_failure": shape.policy,
                    "takeover": shape.takeover}
        if mta:
            settings["bounce_port"] = mta.note["bounce"]
            settings["reinject_port"] = mta.note["reinject"]
            settings["postfix_config"] = mta.note["config_directory"]
        else:   # nor the one that may be installed
            settings["postfix_config"] = ""
        settings.update(shape.settings)
        if "destinations" in settings:    # by a sink's name, too
            settings["destinations"] = {self.destinations.get(title, title): inside for title, inside in settings["destinations"].items()}
        if "shapes" in settings:
            settings["shapes"] = [(self.destinations.get(title, title), inside) for title, inside in settings["shapes"]]
        for name in names:
            self.add(programs.relay(base / name, name, shape, settings, nodes, self.log(f"relay-{name}")))
        if shape.postfix == "divert":
            self.add(programs.milter(base / "milter", shape, settings, nodes, self.milter_socket(mta),
                                     mta.note["config_directory"], self.log("milter")))
        elif shape.postfix == "proxy":
            self.add(programs.proxy(base / "proxy", shape, settings, nodes, mta, self.domains, self.log("proxy")))
        elif shape.postfix == "swallow":
            self.add(programs.swallowing_proxy(mta, self.log("proxy")))
        elif shape.postfix == "discard":
            self.add(programs.discard_milter(shape, self.milter_socket(mta), self.log("milter")))
        if mta:
            self.add(mta)

    def assemble_paths(self, nodes):
        """Links in front of each node, as its two addresses: the names are mx1-active, mx1-standby."""
        words = []
        for name, node in nodes.items():
            target = node["redis"]
            for path, key in (("active", "redis"), ("standby", "standby")):
                port = self.ports.take()
                words.append(f"{name}-{path}={port}={target}")
                node[key] = f"127.0.0.1:{port}"
        control = self.directory / "links.sock"
        argv = ["/usr/bin/python3", Path(__file__).with_name("links.py"), "--control", control, *words]
        self.add(Service("links", argv, self.log("links"), [("links", f"unix:{control}")], grace=3, note={"control": str(control)}))

    def link(self, do, *links, **more):
        """An order to the links (links.py), for some of them or all; their states."""
        with probe.connect("unix:" + self["links"].note["control"], 30) as stream:
            stream.sendall(json.dumps({"do": do, **({"links": links} if links else {}), **more}).encode() + b"\n")
            answer = json.loads(stream.makefile("rb").readline())
        if "error" in answer:
            raise StackError(f"links: {answer['error']}")
        return answer

    @staticmethod
    def milter_socket(mta):
        return Path(mta.note["queue_directory"]) / "dovelane" / "milter.sock"

    def down(self):
        """Ends what was started, in the order in which mail flows, and removes what was made. Safe to repeat.

        An interrupt (Ctrl-C, SIGTERM) meanwhile is kept until the end.
        """
        with Uninterrupted():
            self.end_all()

    def end_all(self):
        for prefix in self.ORDER:
            for service in self.services.values():
                if service.name.startswith(prefix):
                    remark = service.end()
                    if remark:
                        self.remarks.append(remark)
        for mark in self.marks():
            process.sweep(mark)
        self.ports.close()
        if self.directory and self.directory not in self.made and self.mark:
            self.remove_contents()
        for path in self.made:
            shutil.rmtree(path, ignore_errors=True)
        self.mark = None

    def marks(self):
        """The marks of all processes that may still run."""
        return [self.mark] if self.mark else []

    def remove_contents(self):
        """In a directory that was there before, removes only what up wrote."""
        names = ["log", "milter", "proxy", "postfix", "dovecot", "secure", "links.sock", RECORD]
        names += [f"mx{number}" for number in range(1, self.shape.nodes + 1)] + [sink.name for sink in self.shape.sinks]
        for name in names:
            path = self.directory / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    # -- what tests do to it ---------------------------------------------------------------------------------------------

    def named(self, name):
        """The services of a name; a node's name means its Redis and its relay."""
        found = [self.services[key] for key in (name, f"redis-{name}", f"relay-{name}", f"sink-{name}") if key in self.services]
        if not found:
            raise StackError(f"no service {name!r}; there is {', '.join(self.services)}")
        return found

    def kill(self, name, number=signal.SIGKILL):
        """Sends a signal (default KILL, and waits for the end)."""
        for service in self.named(name):
            service.kill(number)

    def stop(self, name):
        """SIGSTOP: it is there, and answers nothing."""
        self.kill(name, signal.SIGSTOP)

    def cont(self, name):
        self.kill(name, signal.SIGCONT)

    def end(self, name):
        """SIGTERM, and waits."""
        for service in self.named(name):
            service.end()

    def start(self, name):
        """Starts what does not run, and records the new process id."""
        for service in self.named(name):
            service.start(self.mark, self.save)

    def restart(self, name):
        self.end(name)
        self.start(name)

    def configure(self, **settings):
        """Changes lines of every dovelane.conf (None removes one). Programs read it at start; `hangup` for `dead`."""
        for service in self.services.values():
            if "settings" in service.note:
                for key in [key for key, value in settings.items() if value is None]:
                    service.note["settings"].pop(key, None)
                programs.write_settings(service, {key: value for key, value in settings.items() if value is not None})
        self.save()

    def set_dead(self, *nodes):
        """Tells all relays that run which nodes are dead."""
        self.configure(dead=programs.listed(nodes))
        for service in self.services.values():
            if service.name.startswith("relay-"):
                service.send(signal.SIGHUP)

    # -- what is known of it ---------------------------------------------------------------------------------------------

    def __getitem__(self, name):
        return self.services[name]

    @property
    def nodes(self):
        """Node name to the address of its Redis."""
        return {service.note["node"]: service.note["address"] for service in self.services.values()
                if service.name.startswith("redis-")}

    @property
    def smtp(self):
        """host:port of Postfix's way in."""
        return self.services["postfix"].note["smtp"]

    def pids(self):
        """Every process of the stack, also those that Postfix and Dovecot forked."""
        return [entry.pid for entry in process.marked(self.mark)] if self.mark else []

    def complaints(self):
        """Lines in which a sanitizer, Redis's crash report or an assertion speaks, of all logs."""
        found = []
        for service in self.services.values():
            try:
                text = Path(service.log).read_text(errors="replace")
            except OSError:
                continue
            found += [f"{service.name}: {line}" for line in text.splitlines() if COMPLAINT.search(line)]
        return found

    def tails(self, lines=15):
        """The ends of all logs, for a test that failed."""
        return "\n".join(f"{service.log}:\n{log_tail(service.log, lines)}" for service in self.services.values())

    def sink(self, name, **command):
        """Tells a Python sink something: do="rules", rules=[...]; do="down"; do="up"; do="counters". Returns its counters."""
        with probe.connect("unix:" + self[f"sink-{name}"].note["control"], 30) as stream:
            stream.sendall(json.dumps(command).encode() + b"\n")
            answer = json.loads(stream.makefile("rb").readline())
        if "error" in answer:
            raise StackError(f"sink {name}: {answer['error']}")
        return answer

    def rules(self, name, *rules):
        """Makes a Python sink fail as the rules say (pysink.py); without rules it is well again."""
        return self.sink(name, do="rules", rules=list(rules))

    def describe(self):
        """Everything a test, a bench or a human needs, as plain data."""
        services = {}
        for name, service in self.services.items():
            note = {key: value for key, value in service.note.items() if key not in ("settings", "nodes")}
            services[name] = dict(note, log=service.log, pid=service.pid)
        return {"dir": str(self.directory), "domains": self.domains, "destinations": self.destinations, "divert": self.divert,
                "policy": self.shape.policy, "copies": self.shape.copies, "nodes": self.nodes, "services": services}

    def save(self):
        """Writes stack.json: the description, and what `down` needs in another process."""
        text = dict(self.describe(), mark=self.mark, made=[str(path) for path in self.made],
                    shape={"postfix": self.shape.postfix, "nodes": self.shape.nodes, "relays": self.shape.relays,
                           "policy": self.shape.policy, "copies": self.shape.copies, "dovecot": self.shape.dovecot,
                           "sinks": [sink.name for sink in self.shape.sinks]},
                    restore={name: service.record() for name, service in self.services.items()}, written=time.time())
        path = self.directory / RECORD
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(text, indent=1) + "\n")
        fresh.rename(path)

    @classmethod
    def load(cls, directory):
        """A stack that `up` started in another process."""
        path = Path(directory).absolute() / RECORD
        try:
            text = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise StackError(f"{path}: {error}") from None
        stack = cls(directory, **text["shape"])
        stack.made = [Path(made) for made in text["made"]]
        stack.mark = text["mark"]
        stack.destinations, stack.domains, stack.divert = text["destinations"], text["domains"], text["divert"]
        for name, record in text["restore"].items():
            stack.services[name] = KINDS[record["kind"]].restore(name, record)
        return stack
