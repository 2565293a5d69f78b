"""Dovelane's own programs and their dovelane.conf; the Redis of each node; the milter that only discards."""
import functools
import os
import re
import shutil
from pathlib import Path

from .failure import StackError
from .service import Service


def quoted(value):
    """A value in libconfuse's syntax; what is written as a list or in quotes stays as it is."""
    value = str(value)
    if value.startswith(("{", '"')):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def listed(values):
    return "{" + ", ".join(quoted(value) for value in values) + "}"


def needed(path, what):
    """The path of a built program, or a clear error."""
    if not path.exists():
        raise StackError(f"{what} is not built: {path} is missing (run make, or set DOVELANE_BUILD)")
    return path


def settings_text(settings, nodes):
    """dovelane.conf: settings first, then the nodes, each name once. The settings destinations, replicas and classes: title to settings of that section; shapes: pairs of these."""
    lines = [f"{name} = {quoted(value)}" for name, value in settings.items() if name not in ("destinations", "replicas", "classes", "shapes")]
    for name, inside in settings.get("replicas", {}).items():
        lines += [f"replica {name} {{", *(f"    {key} = {quoted(value) if key != 'id' else value}" for key, value in inside.items()), "}"]
    for name, inside in settings.get("classes", {}).items():
        lines += [f"class {name} {{", f"    match = {listed(inside['match'])}", f"    weight = {inside.get('weight', 1)}", "}"]
    for title, inside in settings.get("destinations", {}).items():
        lines += [f'destination "{title}" {{',
                  *(f"    {name} = {value if isinstance(value, int) else quoted(value)}" for name, value in inside.items()), "}"]
    for pattern, inside in settings.get("shapes", ()):
        lines += [f'shape "{pattern}" {{', *(f"    {name} = {value if isinstance(value, int) else quoted(value)}" for name, value in inside.items()), "}"]
    for name, node in nodes.items():
        node = node if isinstance(node, dict) else {"redis": node}
        if not node["redis"].startswith(("127.", "unix:")):
            node = {"tls": "no", **node}  # a network of the test's own
        lines += [f"node {name} {{", *(f"    {key} = {quoted(value)}" for key, value in node.items()), "}"]
    return "\n".join(lines) + "\n"


def write_settings(service, changes=None):
    """Writes the service's dovelane.conf from its note (and keeps the changes there)."""
    note = service.note
    note["settings"].update(changes or {})
    path = Path(note["conf"])
    fresh = path.with_suffix(".new")
    fresh.write_text(settings_text(note["settings"], note["nodes"]))
    fresh.rename(path)


@functools.lru_cache
def no_metrics(program):
    """The setting that keeps a program off the one port that all stacks would share; none for an earlier version."""
    return {"metrics_listen": ""} if b"metrics_listen" in Path(program).read_bytes() else {}


def milliseconds(text):
    """A TIME of dovelane.conf ("400ms", "1.5s", "5m", "10min", "1h") in milliseconds."""
    found = re.fullmatch(r"([0-9.]+) *(ms|s|min|m|h)", str(text).strip('"'))
    if not found:
        raise StackError(f"{text!r} is not a time such as 400ms, 1.5s, 10min, 1h")
    return round(float(found[1]) * {"ms": 1, "s": 1000, "min": 60000, "m": 60000, "h": 3600000}[found[2]])


def sanitized(module):
    """Environment for a server that loads a module built with AddressSanitizer: its runtime must come first."""
    found = re.search(rb"libasan\.so\.\d+", module.read_bytes())
    if not found:
        return {}
    options = os.environ.get("ASAN_OPTIONS", "")
    return {"LD_PRELOAD": found[0].decode(), "ASAN_OPTIONS": ":".join(filter(None, [options, "detect_leaks=0"]))}


def redis(base, name, shape, ports, log, host="127.0.0.1", more=()):
    """A node's Redis with the lane module. more: lines of its redis.conf."""
    module = needed(shape.build / "redis-module" / "lane.so", "the lane module")
    server = shutil.which(shape.redis_server)
    if not server:
        raise StackError(f"{shape.redis_server} is not installed: run ./setup")
    base.mkdir(parents=True, exist_ok=True)
    port = ports.take()
    conf = base / "redis.conf"
    lines = [f"port {port}", f"bind {host}", f"unixsocket {base}/redis.sock", "unixsocketperm 777", f"dir {base}", 'save ""',
             "appendonly no", f"maxmemory {shape.maxmemory}", "maxmemory-policy noeviction", "maxmemory-clients 1gb", "stop-writes-on-bgsave-error no",
             "tcp-backlog 511", "enable-debug-command local", f"loadmodule {module}", f"lane.node {name}"]
    if "settle" in shape.settings:
        lines.append(f"lane.settle-ms {milliseconds(shape.settings['settle'])}")  # the two must agree
    conf.write_text("\n".join([*lines, *more, *shape.redis_conf]) + "\n")
    address = f"{host}:{port}"
    # A Redis that was killed leaves its socket file; the server removes it itself before it binds.
    return Service(f"redis-{name}", [server, conf], log, [("redis", address)], cwd=base, env=sanitized(module), grace=10,
                   note={"address": address, "socket": f"unix:{base}/redis.sock", "conf": str(conf), "node": name})


def relay(base, name, shape, settings, nodes, log):
    """A node's relay; its metrics socket tells when it answers."""
    program = needed(shape.build / "relay" / "dovelane-relay", "the relay")
    base.mkdir(parents=True, exist_ok=True)
    conf = base / "dovelane.conf"
    metrics = base / "dovelane-relay.metrics"
    note = {"conf": str(conf), "node": name, "metrics": str(metrics), "nodes": nodes,
            "settings": {"log": "stderr", "metrics_socket": str(metrics), "state_directory": str(base),
                         **no_metrics(program),
                         **({} if settings.get("postfix_config") else {"host_name": f"{name}.stack.example"}), **settings}}
    service = Service(f"relay-{name}", [program, "-c", conf, "-n", name], log, [("metrics", f"unix:{metrics}")], cwd=base,
                      grace=20, note=note)
    write_settings(service)
    return service


def milter(base, shape, settings, nodes, socket_path, config_directory, log):
    """dovelane-milter, which belongs to the first node's host."""
    program = needed(shape.build / "milter" / "dovelane-milter", "the milter")
    base.mkdir(parents=True, exist_ok=True)
    conf = base / "dovelane.conf"
    metrics = base / "dovelane-milter.metrics"
    name = next(iter(nodes))
    engine = os.environ.get("DOVELANE_MILTER_ENGINE")  # not written without: an earlier version's milter does not know it
    note = {"conf": str(conf), "node": name, "metrics": str(metrics), "socket": str(socket_path), "nodes": nodes,
            "settings": dict({"log": "stderr", "metrics_socket": str(metrics), "milter_socket": str(socket_path),
                              "state_directory": str(base), "postfix_config": str(config_directory), **no_metrics(program),
                              **({"milter_engine": engine} if engine else {})}, **settings)}
    # MAIL_CONFIG: the milter asks postmap(1) about aliases, which must be this Postfix's.
    service = Service("milter", [program, "-c", conf, "-n", name], log, [("milter", f"unix:{socket_path}")], cwd=base,
                      env={"MAIL_CONFIG": str(config_directory)}, grace=20, note=note)
    write_settings(service)
    return service


def proxy(base, shape, settings, nodes, mta, domains, log):
    """dovelane-proxy, which belongs to the first node's host. Its routes are what transport_maps says."""
    program = needed(shape.build / "proxy" / "dovelane-proxy", "the proxy")
    (base / "proxy").mkdir(parents=True, exist_ok=True)
    conf = base / "dovelane.conf"
    metrics = base / "dovelane-proxy.metrics"
    name = next(iter(nodes))
    socket_path = Path(mta.note["queue_directory"]) / "dovelane-proxy" / "proxy.sock"
    routes = listed(f"{domain}={destination}" for domain, destination in domains.items())
    note = {"conf": str(conf), "node": name, "metrics": str(metrics), "socket": str(socket_path), "nodes": nodes,
            "settings": dict({"log": "stderr", "metrics_socket": str(metrics), "proxy_socket": str(socket_path),
                              "proxy_next": mta.note["next"], "route": routes, "state_directory": str(base), **no_metrics(program),
                              "postfix_config": mta.note["config_directory"]}, **settings)}
    service = Service("proxy", [program, "-c", conf, "-n", name], log, [("smtp", f"unix:{socket_path}")], cwd=base,
                      env={"MAIL_CONFIG": mta.note["config_directory"]}, grace=20, note=note)
    write_settings(service)
    return service


def discard_milter(shape, socket_path, log):
    """The floor of an engine: a milter that answers every message with a discard."""
    name = {"libmilter": "discard_libmilter"}.get(shape.settings.get("milter_engine"), "discard_milter")
    program = needed(shape.build / "tests" / "bench" / name, "the discarding milter")
    return Service("milter", [program, socket_path], log, [("milter", f"unix:{socket_path}")], grace=10,
                   note={"socket": str(socket_path)})


def swallowing_proxy(mta, log):
    """The floor of the proxy way: smtp-sink where Postfix expects a proxy, which takes all of a mail and keeps nothing."""
    path = Path(mta.note["queue_directory"]) / "dovelane-proxy" / "proxy.sock"
    shutil.chown(path.parent, "postfix")
    program = shutil.which("smtp-sink", path="/usr/sbin:/usr/bin:/sbin:/bin")
    return Service("proxy", [program, "-u", "postfix", f"unix:{path}", "1024"], log, [("smtp", f"unix:{path}")], grace=3, note={"socket": str(path)})


def smtp_sink(sink, port, log):
    """Postfix's smtp-sink; -c writes its counters to the log."""
    program = shutil.which("smtp-sink", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if not program:
        raise StackError("smtp-sink is not installed (it is in the package postfix): run ./setup")
    address = f"127.0.0.1:{port}"
    argv = [program, "-u", "nobody", "-c", "-h", f"{sink.name}.sink.example", *sink.options, address, "1024"]
    return Service(f"sink-{sink.name}", argv, log, [("smtp", address)], grace=3,
                   note={"address": address, "protocol": sink.protocol, "destination": f"{sink.protocol}:[127.0.0.1]:{port}"})


def python_sink(base, sink, port, log, host="127.0.0.1"):
    """The sink that records ids."""
    base.mkdir(parents=True, exist_ok=True)
    address = f"{host}:{port}"
    note = {"address": address, "protocol": sink.protocol, "destination": f"{sink.protocol}:[{host}]:{port}",
            "journal": str(base / "journal"), "control": str(base / "control")}
    argv = ["/usr/bin/python3", Path(__file__).with_name("pysink.py"), "--listen", address, "--protocol", sink.protocol,
            "--journal", note["journal"], "--control", note["control"], "--name", f"{sink.name}.sink.example"]
    return Service(f"sink-{sink.name}", argv, log, [("control", "unix:" + note["control"])], grace=3, note=note)


