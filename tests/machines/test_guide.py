"""What guide.py refuses, so that a guide cannot come to say what nobody ran."""
import guide
import pytest

pytestmark = pytest.mark.here


class Host:
    """Takes the place of a machine: keeps what it was told."""

    def __init__(self, tmp_path):
        self.root, self.ran = tmp_path, []

    def place(self, path):
        return self.root / path.lstrip("/")

    def read(self, path):
        return self.place(path).read_text(encoding="utf-8")

    def write(self, path, text, mode=None):
        self.place(path).parent.mkdir(parents=True, exist_ok=True)
        self.place(path).write_text(text, encoding="utf-8")

    def run(self, script):
        self.ran.append(script)


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.setattr(guide, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()

    def read(text, **keywords):
        (tmp_path / "docs/g.md").write_text(text, encoding="utf-8")
        hosts = {name: Host(tmp_path / name) for name in ("mx1", "mx2")}
        reader = guide.Reader(hosts, {"mx1": {}, "mx2": {"mx1": "mx2"}}, **keywords)
        reader.follow("g.md", "## Do")
        reader.done()
        return hosts
    return read


@pytest.mark.parametrize("text,said", [
    ("## Do\n```\nrm x\n```\n", "not one of"),
    ("## Do\n```bash\nrm x\n```\n", "not one of"),
    ("## Do\nPut this into `/etc/other`:\n```file /etc/x\na\n```\n", "does not name /etc/x"),
    ("## Else\n", "no heading"),
])
def test_a_block_that_nobody_can_follow_is_an_error(read, text, said):
    with pytest.raises(guide.GuideError, match=said):
        read(text)


def test_a_line_that_the_guide_lost_is_an_error(read):
    with pytest.raises(guide.GuideError, match="no longer"):
        read("## Do\n```sh\nmake install\n```\n", instead={"make setup": "true"})


def test_blocks_are_done_in_order_and_each_host_has_its_own_values(read):
    hosts = read("## Before\n```sh\nno\n```\n## Do\n```sh\necho mx1   # a name\n```\n### Part\nIn `/etc/x`:\n```lines /etc/x\nname mx1\nb = 2\n```\n   ```sh on mx2\n   here\n   ```\n## After\n```sh\nno\n```\n",
                 per_host=["/etc/x"])
    assert [script.splitlines()[2:] for script in hosts["mx2"].ran] == [["echo mx2   # a name"], ["here"]]
    assert [script.splitlines()[2:] for script in hosts["mx1"].ran] == [["echo mx1   # a name"]]
    assert hosts["mx2"].read("/etc/x") == "name mx2\nb = 2\n" and hosts["mx1"].read("/etc/x") == "name mx1\nb = 2\n"


def test_lines_take_the_place_of_those_of_their_name():
    assert guide.merged("# c\nport 1\nnode a { x }\n", "port 2\nnode b { y }\nnode a { z }\n") == "# c\nport 2\nnode a { z }\nnode b { y }\n"


def test_a_service_takes_the_place_of_the_one_of_its_name():
    master = "smtp inet n - y - - smtpd\n  -o a=b\n#smtp inet\nsmtp unix - - y - - smtp\n"
    assert guide.replaced_service(master, "smtp  inet n - n - - smtpd\n") == "smtp  inet n - n - - smtpd\n#smtp inet\nsmtp unix - - y - - smtp\n"
    with pytest.raises(guide.GuideError):
        guide.replaced_service(master, "qmqp inet n - n - - qmqpd\n")
