"""What machine.py itself promises; no machine is booted here."""
import machine
import pytest

pytestmark = pytest.mark.here


@pytest.mark.parametrize("name", machine.DEVICES)
def test_a_device_of_this_host_that_is_not_for_all_is_named(monkeypatch, tmp_path, name):
    """Machines get a copy of it, and their services would fail one by one, each in its own words."""
    for each in machine.DEVICES:
        (tmp_path / each).touch()
        (tmp_path / each).chmod(0o600 if each == name else 0o666)
    monkeypatch.setattr(machine, "DEV", tmp_path)
    with pytest.raises(machine.Failed, match=f"chmod 666 /dev/{name}: ") as told:
        machine.require()
    assert str(told.value).count("chmod") == 1
