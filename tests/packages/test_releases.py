"""The packages are built on each Debian release, and its own checkers find no error."""
import re

import pytest
import releases

TAG = re.compile(r"^([EWIPXNO]): (.*)$", re.M)


@pytest.fixture(scope="module", params=["bookworm", "trixie", "forky"])
def built(request):
    return releases.built(request.param)


def test_lintian_finds_neither_error_nor_warning(built):
    said = (built / "lintian.txt").read_text(encoding="utf-8")
    print(f"\n{built.name}\n{said}")
    assert list(built.glob("*.changes")) and [tag for level, tag in TAG.findall(said) if level in "EW"] == []


def test_apparmor_profiles_are_parsed(built):
    said = (built / "apparmor.txt").read_text(encoding="utf-8")
    print(f"\n{built.name}\n{said}")
    assert said.count(": parsed") == 4 and "failed" not in said
