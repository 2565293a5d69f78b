"""Built again, at another place, at another time, in another time zone, by one process at a time and with another umask, the packages are the
same byte by byte, and so is the source package."""
import hashlib
import subprocess

import machine
import packaged
import pytest


def digests(folder):
    files = sorted(file for kind in ("*.deb", "*.tar.xz", "*.dsc") for file in folder.glob(kind))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_two_builds_are_equal(debs, tmp_path):
    from conftest import RELEASE
    if RELEASE != packaged.release_here():
        pytest.skip("packages are built for this host's release")
    place = tmp_path / "another" / "place"
    machine.call("sh", "-c", f"umask 027; exec nice {machine.ROOT}/packaging/make-deb {place}", timeout=3600,
                 env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent", "TZ": "Pacific/Kiritimati", "LC_ALL": "C", "DEB_BUILD_OPTIONS": "parallel=1"})
    first, second = digests(debs.folder), digests(place)
    print("\n" + "\n".join(f"{digest}  {name}{'' if second.get(name) == digest else '   DIFFERENT'}" for name, digest in first.items()))
    for name in [name for name in first if second.get(name) != first[name]][:1]:
        subprocess.run(["diffoscope", debs.folder / name, place / name], check=False)
    assert second == first and len(first) >= 4 + 3
