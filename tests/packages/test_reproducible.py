"""Built again, at another place and with another umask, the packages are the same byte by byte."""
import hashlib

import machine
import packaged
import pytest


def digests(folder):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.glob("*.deb"))}


def test_two_builds_are_equal(debs, tmp_path):
    from conftest import RELEASE
    if RELEASE != packaged.release_here():
        pytest.skip("packages are built for this host's release")
    place = tmp_path / "another" / "place"
    machine.call("sh", "-c", f"umask 027; exec nice {machine.ROOT}/packaging/make-deb {place}", timeout=3600)
    assert digests(place) == digests(debs.folder)
