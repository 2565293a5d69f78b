"""A Redis server with lane.so, and a raw client for it.

    with LaneServer(tmp_path) as server:
        c = server.client()
        c("LANE.PUSH", 1, "lane", "ENTRIES", 1, 1, ident(1), "meta", "body")

Environment: DOVELANE_BUILD, the build directory (default: build/ in the repository); DOVELANE_ASAN=1: lane.so was built with ASan and UBSan, the
server runs with their libraries; DOVELANE_VALGRIND=1: the server runs under valgrind;
DOVELANE_REDIS_SERVER: the command of another server (Redis 8, Valkey 8), default redis-server. A server that does not end well, or whose log shows a
crash or a sanitizer's report, fails its test.
"""
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import time

from support.stack.ports import Ports

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DOVELANE_BUILD", ROOT / "build"))
MODULE = BUILD / "redis-module" / "lane.so"
ASAN = os.environ.get("DOVELANE_ASAN") == "1"
VALGRIND = os.environ.get("DOVELANE_VALGRIND") == "1"
SERVER = shlex.split(os.environ.get("DOVELANE_REDIS_SERVER", "redis-server"))
FORCE = ["FORCE"]
PORTS = Ports()  # for replication, which needs one; reserved as long as the tests run
SLOW = 5 if ASAN else 20 if VALGRIND else 1


def ident(n):
    """The id of 16 bytes that stands for a number."""
    return b"id%014d" % n


class ReplyError(Exception):
    """An error reply."""


class Client:
    """Called with the words of one command. `send` and `reply` take them apart, `pipe` does many."""

    def __init__(self, path, timeout=20):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout * SLOW)
        self.socket.connect(str(path))
        self.stream = self.socket.makefile("rb")

    def close(self):
        self.stream.close()
        self.socket.close()

    @staticmethod
    def encode(words):
        out = [b"*%d\r\n" % len(words)]
        for word in words:
            data = word if isinstance(word, (bytes, bytearray)) else str(word).encode()
            out.append(b"$%d\r\n%s\r\n" % (len(data), data))
        return b"".join(out)

    def send(self, *words):
        self.socket.sendall(self.encode(words))

    def reply(self):
        """Error replies are returned, not raised."""
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("closed by the server")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return ReplyError(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if int(rest) < 0:
                return None
            data = self.stream.read(int(rest) + 2)
            if len(data) != int(rest) + 2:
                raise ConnectionError("closed by the server")
            return data[:-2]
        if kind == b"*":
            return None if int(rest) < 0 else [self.reply() for _ in range(int(rest))]
        raise ConnectionError(f"not a reply: {line!r}")

    def __call__(self, *words):
        self.send(*words)
        answer = self.reply()
        if isinstance(answer, ReplyError):
            raise answer
        return answer

    def pipe(self, *commands):
        self.socket.sendall(b"".join(self.encode(c) for c in commands))
        return [self.reply() for _ in commands]

    def silent(self, seconds):
        """Whether nothing comes for that long."""
        self.socket.settimeout(seconds)
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(20 * SLOW)

    # ---- short ways to the commands ----

    @staticmethod
    def pushing(key, *numbers, meta=b"m", body=b"body", session=None, delay=None):
        """The words of a PUSH of entries with the ids of these numbers. In one `pipe` no time passes between it and what follows, however busy the machine is."""
        words = ["LANE.PUSH", 1, key]
        words += ["SESSION", *session] if session else []
        words += ["DELAY", delay] if delay is not None else []
        words += ["ENTRIES", len(numbers)]
        for n in numbers:
            words += [1, ident(n), meta, body]
        return words

    def push(self, key, *numbers, **more):
        """The answers for them."""
        return self(*self.pushing(key, *numbers, **more))[1]

    def take(self, key, count=1, *more):
        """(lease, entries) of one lane; (None, []) when it gives nothing."""
        lanes = self("LANE.TAKE", 1, key, "COUNT", count, *more)
        return (lanes[0][1], lanes[0][2]) if lanes else (None, [])

    def ids(self, key, count=1, *more):
        """The numbers of what a TAKE gives."""
        return [number(e[1]) for e in self.take(key, count, *more)[1]]

    @staticmethod
    def given(lanes):
        """The same, of the answer to a TAKE of one lane."""
        return [number(e[1]) for _, _, entries in lanes for e in entries]

    def read(self, key):
        return self("LANE.READ", key, 0, "COUNT", 100000, "BYTES", 10**9)[1]

    def info(self, *key):
        flat = self("LANE.INFO", *key)
        return {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}

    def digest(self, *keys):
        return self("DEBUG", "DIGEST-VALUE", *keys)


def number(name):
    """The number behind an id made by ident."""
    return int(name[2:])


def wait_for(condition, seconds=5, what="the condition"):
    """Waits until condition() is true, and returns what it gave."""
    end = time.monotonic() + seconds * SLOW
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < end, f"{what} did not come true within {seconds * SLOW} s"
        time.sleep(0.005)


def sanitizer_libraries():
    found = []
    for name in ("libasan.so", "libubsan.so"):
        path = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        found.append(os.path.realpath(path))
    return ":".join(found)


class LaneServer:
    def __init__(self, directory, *options, name="server", module=MODULE, module_line=True):
        self.directory = pathlib.Path(directory) / name
        self.directory.mkdir(parents=True, exist_ok=True)
        # The path of a UNIX socket is short; pytest's directories are not.
        self.path = pathlib.Path(f"/tmp/lane-{os.getpid()}-{abs(hash(str(self.directory))) % 10**8}.sock")
        self.log = self.directory / "log"
        self.options, self.module, self.module_line = list(options), module, module_line
        self.conf = [self.options.pop(0)] if self.options and self.options[0].endswith(".conf") else []
        self.process = None
        self.clients = []

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        self.stop(quiet=kind is not None)
        if kind:
            print(self.reports(), *self.log.read_text(errors="replace").splitlines()[-40:], sep="\n")

    def suppressions(self):
        """LZF looks into a table that it never clears; that is its way."""
        path = self.directory / "suppressions"
        path.write_text("{\nlzf\nMemcheck:Cond\nfun:lzf_compress\n}\n{\nlzf8\nMemcheck:Value8\nfun:lzf_compress\n}\n")
        return path

    def command(self):
        valgrind = ["valgrind", "--quiet", "--error-exitcode=99", "--trace-children=no", "--child-silent-after-fork=yes",
                    f"--suppressions={self.suppressions()}"] if VALGRIND else []
        load = ["--loadmodule", str(self.module)] if self.module_line else []
        return valgrind + [*SERVER, *self.conf, "--port", "0", "--unixsocket", str(self.path), "--save", "", "--dir", str(self.directory),
                           "--enable-debug-command", "yes", "--logfile", str(self.log), "--daemonize", "no", *load, *self.options]

    def start(self):
        assert self.module.exists(), f"{self.module} is not built"
        env = dict(os.environ)
        if ASAN:
            env |= {"LD_PRELOAD": sanitizer_libraries(), "UBSAN_OPTIONS": f"print_stacktrace=1:halt_on_error=1:log_path={self.directory}/san",
                    "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:handle_segv=0:log_path={self.directory}/san"}
        self.process = subprocess.Popen([str(c) for c in self.command()], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        wait_for(self.answers, 10, "a start of the server")
        return self

    def answers(self):
        assert self.process.poll() is None, f"the server ended: {self.log.read_text()[-3000:] if self.log.exists() else ''}"
        try:
            c = Client(self.path)
            answer = c.pipe(["PING"])[0]
            c.close()
            return answer == "PONG"
        except OSError:
            return False

    def client(self, timeout=20):
        return self.client_at(self.path, timeout)

    def client_at(self, path, timeout=20):
        c = Client(path, timeout)
        self.clients.append(c)
        return c

    def close_clients(self):
        for c in self.clients:
            c.close()
        self.clients = []

    def kill(self):
        """As a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.close_clients()

    def end_well(self, how):
        """SHUTDOWN; a server that writes its first append-only file refuses it until that is done."""
        end = time.monotonic() + 20 * SLOW
        while self.process.poll() is None and time.monotonic() < end:
            try:
                last = Client(self.path, 2)
                answer = last.pipe(["SHUTDOWN", "NOSAVE", "NOW", *how])
                assert isinstance(answer[0], ReplyError)
                time.sleep(0.05)
            except OSError:
                pass
            try:
                self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                pass
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            raise AssertionError("the server did not end")

    def stop(self, quiet=False):
        if self.process and self.process.poll() is None:
            self.end_well(FORCE if quiet else [])
        self.close_clients()
        self.path.unlink(missing_ok=True)
        if not quiet:
            self.check_end()

    def reports(self):
        return "".join(p.read_text(errors="replace") for p in self.directory.glob("san*"))

    def check_end(self):
        log = self.log.read_text(errors="replace")
        reports = self.reports()
        errors = self.process.stderr.read().decode(errors="replace")
        assert not reports, reports
        assert "BUG REPORT" not in log and "API misuse" not in log and "crashed" not in log, log[-5000:]
        assert self.process.returncode in (0, -signal.SIGKILL), f"ended with {self.process.returncode}\n{errors}{log[-3000:]}"
        assert not VALGRIND or "==" not in errors, errors

    def restart(self):
        self.stop()
        return self.start()

    def log_says(self, pattern):
        return re.search(pattern, self.log.read_text(errors="replace"))
