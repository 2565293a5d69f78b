"""Our Dovecot modules, without installing them.

Dovecot looks for doveadm's and the config process's modules only where it was installed. So a program that shall see ours runs in
a mount namespace of its own, in which a folder of links to the build lies over Dovecot's module directory; nobody else sees that.
"""
import os
import subprocess
from pathlib import Path

from .dovecot import entered, seen
from .failure import StackError

# Where a module lies below Dovecot's module directory, by its file's name.
PLACES = {"lib20_dovelane_plugin.so": "", "lib10_doveadm_dovelane_plugin.so": "doveadm", "libdovelane_settings.so": "settings"}
# Without its own propagation: in a chroot "/" is no mount point that could be made private. Overlays stay in the namespace either
# way, unless "/" is shared, which --propagation private would mend where it can.
SCRIPT = 'mount -t overlay overlay -o "lowerdir=$0:$1" "$1" && shift && exec "$@"'


def module_directory(root=None):
    """Dovecot's own, as dovecot-config says, and as seen below the root."""
    for base in ("usr/lib64/dovecot", "usr/lib/dovecot", "usr/local/lib/dovecot"):
        config = Path(root or "/") / base / "dovecot-config"
        if config.is_file():
            for line in config.read_text().splitlines():
                if line.startswith("dovecot_moduledir="):
                    return line.partition("=")[2].strip("\"'")
    raise StackError("Dovecot's dovecot-config is missing: run ./setup")


def lay(build, directory, root=None):
    """Makes `directory` a module directory of links to what `build` has, which lead there below the root. Returns it."""
    directory = Path(directory)
    for path in sorted((Path(build) / "dovecot-plugin").rglob("*.so")):
        if path.name in PLACES:
            place = directory / PLACES[path.name]
            place.mkdir(parents=True, exist_ok=True)
            link = place / path.name
            link.unlink(missing_ok=True)
            link.symlink_to(seen(path.resolve(), root))
    if not (directory / "lib20_dovelane_plugin.so").is_symlink():
        raise StackError(f"no plugin in {build}/dovecot-plugin: build it with ninja -C {build}")
    return directory


def propagation():
    """What unshare can do here: a namespace whose mounts nobody else sees."""
    done = subprocess.run(["unshare", "--mount", "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return "private" if done.returncode == 0 else "unchanged"


def command(directory, words=(), root=None):
    """The command line that runs `words` (dovecot, doveadm) with the modules of `directory` over Dovecot's own."""
    if os.geteuid() != 0:
        raise StackError("a mount namespace needs root")
    return ["unshare", "--mount", "--propagation", propagation(), "sh", "-c", SCRIPT, str(directory),
            f"{root or ''}{module_directory(root)}", *entered(root), *map(str, words)]
