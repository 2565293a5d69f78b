"""`docker compose up`, each command of its demo, a browser at both webmails (docs/docker.md).

With the engine that answers, or one of its own (dockerd, as root). Where no registry answers the
two base images are made by debootstrap. DOVELANE_PICTURES=DIR: the pages are kept there, as PNG.
DOVELANE_DOCKER=DIR: its engine keeps images and layers there, and the next run makes less anew.
"""

import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import smtplib
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from support.page_commands import commands
from support.stack.imap import Imap, ImapError, Lost
from support.stack.ports import Ports
from support.stack.shape import REPOSITORY
from support.waiting import eventually

pytestmark = pytest.mark.long

PUBLISHED = (
    "MX1",
    "MX2",
    "MX3",
    "SMTP",
    "IMAP_A",
    "IMAP_B",
    "WEBMAIL",
    "WEBMAIL_A",
    "WEBMAIL_B",
    "PROMETHEUS",
    "GRAFANA",
)
RELEASES = ("trixie", "bookworm")
CAROL = "carol@example.org"
# What the page has a reader type to look, and nothing else.
LOOKS = [
    command
    for command in commands((REPOSITORY / "docs/docker.md").read_text(encoding="utf-8"))
    if re.match(r"docker compose (exec|logs|run .*demo (log|help))", command)
]


def runs(*words, env=None):
    """Whether a command is there and ends well."""
    try:
        return (
            subprocess.run(
                words,
                env=env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
                timeout=60,
                check=False,
            ).returncode
            == 0
        )
    except OSError:
        return False


class Engine:
    """A Docker engine, its compose, and this test's project in it."""

    def __init__(self, directory):
        self.directory, self.daemon, self.made = directory, None, []
        self.ports = Ports()
        name = f"dovelane-test-{os.getpid()}"
        self.env = dict(os.environ, COMPOSE_PROJECT_NAME=name)
        self.port = {name: self.ports.take() for name in PUBLISHED}
        self.env.update({f"DOVELANE_{name}_PORT": str(port) for name, port in self.port.items()})

    def up(self):
        if not shutil.which("docker"):
            pytest.skip("no docker client is here")
        if not runs("docker", "version", env=self.env):
            self.start()
        self.compose = next(
            (
                words
                for words in (["docker", "compose"], ["docker-compose"])
                if runs(*words, "version", env=self.env)
            ),
            None,
        )
        if not self.compose:
            pytest.skip("neither docker compose nor docker-compose is here")
        # Compose 2 has BuildKit in it; 1.29 calls the client, and a newer one wants buildx for it.
        if len(self.compose) == 1:
            kit = runs("docker", "build", "--help", env=self.env | {"DOCKER_BUILDKIT": "1"})
            self.env["DOCKER_BUILDKIT"] = "1" if kit else "0"
        for release in RELEASES:
            self.base(f"debian:{release}-slim", release)

    def start(self):
        if os.geteuid() != 0:
            pytest.skip("no Docker engine answers, and only root can start one")
        if not shutil.which("dockerd"):
            pytest.skip("no Docker engine answers, and no dockerd is here")
        log, where = self.directory / "log", self.directory
        data = os.environ.get("DOVELANE_DOCKER") or where / "data"
        self.env.update(DOCKER_HOST=f"unix://{where}/socket", DOVELANE_BUILD_NETWORK="host")
        with log.open("wb") as out:
            self.daemon = subprocess.Popen(
                [
                    "dockerd",
                    "--data-root",
                    data,
                    "--exec-root",
                    where / "exec",
                    "--pidfile",
                    where / "pid",
                    "-H",
                    f"unix://{where}/socket",
                    # The host's firewall and interfaces stay as they are: builds have the host's
                    # network, and what is published goes through Docker's own proxy.
                    "--iptables=false",
                    "--ip6tables=false",
                    "--bridge=none",
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        eventually(
            "dockerd answers or ends",
            lambda: self.daemon.poll() is not None or runs("docker", "version", env=self.env),
        )
        if self.daemon.poll() is not None:
            pytest.skip(
                f"dockerd cannot run here: {log.read_text(errors='replace').splitlines()[-1]}"
            )

    def base(self, image, release):
        if runs("docker", "image", "inspect", image, env=self.env):
            return
        self.made.append(image)
        if not runs("docker", "pull", "-q", image, env=self.env):
            if not shutil.which("debootstrap") or os.geteuid() != 0:
                pytest.skip(
                    f"no registry has {image}, and it cannot be made: root and debootstrap do that"
                )
            self.docker_script("docker/make-base-image.sh", RELEASE=release)

    def docker_script(self, script, **more):
        subprocess.run(
            [REPOSITORY / script],
            env=self.env | more,
            stdin=subprocess.DEVNULL,
            timeout=1800,
            check=True,
        )

    def run(self, *words, timeout=900):
        """compose WORDS: its status and what it said."""
        done = subprocess.run(
            [*self.compose, *words],
            cwd=REPOSITORY,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        said = re.sub(r"\x1b\[[\d;]*[A-Za-z]|\r", "", done.stdout)  # compose 1 has colours
        print(f"+ compose {' '.join(words)}: {done.returncode}\n{said}")
        return done.returncode, said

    def typed(self, command, keys=""):
        """A command of the page, word for word, at a terminal: its status and what it said."""
        command = command.replace("docker compose", " ".join(self.compose))
        done = subprocess.run(
            ["script", "-qec", command, "/dev/null"],
            cwd=REPOSITORY,
            env=self.env | {"TERM": "xterm"},
            input=keys,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
        print(f"$ {command}: {done.returncode}\n{done.stdout}")
        return done.returncode, done.stdout

    def demo(self, *words):
        return self.run("run", "--rm", "demo", *words)

    def send(self, user, *subjects):
        """Mails from this host, one for each subject, at Postfix."""
        host, port = self["SMTP"].split(":")
        with smtplib.SMTP(host, int(port), timeout=120) as client:
            for subject in subjects:
                client.sendmail(
                    "alice@client.example",
                    [user],
                    f"From: Alice <alice@client.example>\r\nTo: <{user}>\r\n"
                    f"Subject: {subject}\r\n\r\n{subject}\r\n",
                )

    def mails(self, name, user):
        """How many a site's INBOX has."""
        with Imap(self[name], user) as session:
            session.select("INBOX")
            return len(session.command("UID SEARCH ALL")[1][0].split()[2:])

    def docker(self, *words):
        """What docker says: lines."""
        done = subprocess.run(
            ["docker", *words],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout.split("\n")[:-1]

    def ours(self, *words):
        """What `docker WORDS --filter` lists of this project."""
        project = self.env["COMPOSE_PROJECT_NAME"]
        return self.docker(*words, "--filter", f"label=com.docker.compose.project={project}")

    def down(self):
        if getattr(self, "compose", None):
            self.run("down", "-v", "--remove-orphans", "--rmi", "all")
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            self.daemon.wait(120)
        elif self.made:
            for image in self.made:
                runs("docker", "rmi", image, env=self.env)
        self.ports.close()

    def __getitem__(self, name):
        return f"127.0.0.1:{self.port[name]}"


@pytest.fixture(scope="module")
def engine():
    """All is built once. Mounts that a daemon leaves when it ends are taken away with it."""
    directory = Path(tempfile.mkdtemp(prefix="dovelane-docker-", dir="/var/tmp"))
    fresh = Engine(directory)
    try:
        fresh.up()
        code, said = fresh.run("build", timeout=5400)
        assert code == 0, said[-3000:]
        yield fresh
    finally:
        fresh.down()
        for line in Path("/proc/mounts").read_text().splitlines():
            if f" {directory}/" in line:
                subprocess.run(["umount", "-l", line.split()[1]], check=False)
        shutil.rmtree(directory)


@pytest.fixture(scope="module")
def shown(engine):
    """What `docker compose up` shows until its demo ended; afterwards all of it runs on."""
    engine.ports.close()  # as the last moment before they are bound by others
    code, said = engine.run("up", "--exit-code-from", "demo")
    assert code == 0, said[-5000:]
    engine.containers = set(engine.ours("ps", "-aq"))
    up_again(engine)
    engine.again = set(engine.ours("ps", "-aq"))
    return said


def up_again(engine):
    code, said = engine.run("up", "-d", "postfix", "webmail", "prometheus", "link")
    assert code == 0, said


def test_a_second_up_makes_no_container_anew(engine, shown):
    """What waits in a node's container would be gone with it."""
    assert engine.again == engine.containers


def test_up_shows_the_demo_and_a_closing_table(shown):
    rows = re.findall(r"(?m)\| +(mails|one user's).*?  +(\d+) +(\d+) +(\d+) +(\d+)$", shown)
    assert len(rows) == 2, shown
    for _, sent, arrived, lost, twice in rows:
        assert int(sent) == int(arrived) > 0 and (lost, twice) == ("0", "0"), shown
    assert "because another node took over" in shown and "All mail arrived" in shown
    said = [
        line for line in shown.splitlines() if "|" in line and not re.match(r"\S*demo\S* +\|", line)
    ]
    assert not said, said[:20]


@pytest.mark.parametrize(
    "words",
    [["kill", "mx1"], ["kill", "mx2"], ["conflict"], ["lag"], ["load"], ["fill"], ["cut"]],
    ids=" ".join,
)
def test_a_command_finds_what_it_says(engine, shown, words):
    code, said = engine.demo(*words)
    assert code == 0 and "Should: " in said and "It is as it should be." in said, said[-5000:]


def test_what_is_cut_is_told_and_heals(engine, shown):
    assert engine.demo("cut")[0] == 0
    code, said = engine.demo("conflict")
    assert code == 1 and "demo heal" in said
    code, said = engine.demo("heal")
    assert code == 0 and "Both sites show the same" in said, said
    assert engine.demo("nonsense")[0] == 1


@pytest.mark.parametrize("command", LOOKS)
def test_what_the_page_has_one_look_at(engine, shown, command):
    code, said = engine.typed(command.replace("NAME", "site-b"), keys="q")
    assert code == 0 and len(said.split()) > 3, said


def test_what_waits_while_the_next_hop_is_away_waits_through_a_stop(engine, shown):
    """The page's stop and start of site-a, and in between of all."""
    user, subjects = "away@example.org", ["One", "Two", "Three"]
    assert engine.typed("docker compose stop site-a")[0] == 0
    engine.send(user, *subjects)
    assert engine.typed("docker compose exec mx1 dovelane mailq")[1].count(user) == len(subjects)
    assert engine.typed("docker compose stop")[0] == 0
    assert engine.typed("docker compose start")[0] == 0

    def arrived():
        """Nobody listens at first."""
        try:
            return engine.mails("IMAP_A", user), engine.mails("IMAP_B", user)
        except (OSError, ImapError, Lost):
            return None

    eventually("three mails at both sites", lambda: arrived() == (3, 3), 300)
    up_again(engine)
    assert engine.demo("kill", "mx2")[0] == 0
    assert arrived() == (3, 3)


def test_two_commands_at_once_are_one_after_the_other(engine, shown):
    """Each kills a node: at once they would kill both owners of a mail."""
    engine.demo("heal")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        ended = list(pool.map(lambda node: engine.demo("kill", node), ("mx1", "mx2")))
    assert [code for code, _ in ended] == [0, 0], ended
    assert sum("Another demo command is at work" in said for _, said in ended) >= 1, ended


def test_what_a_killed_command_left_the_next_one_makes_whole(engine, shown):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        killed = pool.submit(engine.demo, "fill")

        def held():
            return "demo-" in engine.run("exec", "-T", "mx2", "dovelane", "hold", "--list")[1]

        eventually("the demo holds mail", held)
        engine.docker("kill", *engine.ours("ps", "-q", "--filter", "name=demo_run|demo-run"))
        assert killed.result()[0] != 0
    assert held()
    assert engine.demo("kill", "mx3")[0] == 0
    assert not held()


def test_a_command_goes_on_after_a_stop(engine, shown):
    """What the first start left in the containers, a socket say, is no sign of the second one."""
    assert engine.run("stop")[0] == 0
    ended = engine.ours("ps", "-a", "--format", "{{.Names}} {{.Status}}")
    assert not [line for line in ended if "(137)" in line], ended
    code, said = engine.demo("kill", "mx1")
    assert code == 0, said
    up_again(engine)


def test_all_is_published_on_loopback_alone(engine, shown):
    published = [
        port
        for line in engine.ours("ps", "--format", "{{.Ports}}")
        for port in line.split(", ")
        if "->" in port
    ]
    assert len(published) >= len(PUBLISHED) - 1, published  # no Grafana here
    assert all(port.startswith("127.0.0.1:") for port in published), published


def fetched(address):
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read().decode()


def test_prometheus_sees_all_programs(engine, shown):
    engine.demo("heal")

    def up():
        query = urllib.parse.quote("sum by (program) (up{job='dovelane'})")
        found = json.loads(fetched(f"http://{engine['PROMETHEUS']}/api/v1/query?query={query}"))[
            "data"
        ]["result"]
        return {each["metric"]["program"]: int(each["value"][1]) for each in found} == {
            "milter": 1,
            "relay": 3,
            "replicator": 2,
        }

    eventually("all programs answer", up)
    rules = json.loads(fetched(f"http://{engine['PROMETHEUS']}/api/v1/rules"))["data"]["groups"]
    assert sum(len(group["rules"]) for group in rules) > 10
    page = fetched(f"http://{engine['PROMETHEUS']}/consoles/dovelane.html")
    assert page.count("alive</td>") == 3 and "site-b:7064" in page, page


@contextlib.contextmanager
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="python3-selenium is not here")
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("chromium and chromium-driver are not here")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--window-size=1500,760",
        "--hide-scrollbars",
        "--lang=en",
        "--no-proxy-server",
    ):
        options.add_argument(word)
    driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    try:
        yield driver
    finally:
        driver.quit()


def picture(driver, name):
    if os.environ.get("DOVELANE_PICTURES"):
        time.sleep(1)  # for the eye: fonts and icons
        driver.save_screenshot(f"{os.environ['DOVELANE_PICTURES']}/{name}.png")


def test_a_flag_crosses_from_one_webmail_to_the_other(engine, shown):
    engine.demo("heal")
    engine.send(CAROL, "Lunch on Friday?", "Minutes of the meeting", "Order 4711")
    for name in ("IMAP_A", "IMAP_B"):
        eventually(
            f"three mails at {name}", lambda: engine.mails(name, CAROL) == 3
        )  # pylint: disable=cell-var-from-loop
    with browser() as driver:
        driver.get(f"http://{engine['WEBMAIL']}/")
        frames = driver.find_elements("tag name", "iframe")
        assert len(frames) == 2

        def within(number):
            driver.switch_to.default_content()
            driver.switch_to.frame(frames[number])

        def seen(number, selector):
            within(number)
            return driver.find_elements("css selector", selector)

        for number in (0, 1):
            eventually(
                "a login form", lambda: seen(number, "#rcmloginuser")
            )  # pylint: disable=cell-var-from-loop
            seen(number, "#rcmloginuser")[0].send_keys("carol")
            seen(number, "#rcmloginpwd")[0].send_keys("any")
            seen(number, "#rcmloginsubmit")[0].click()
        for number in (0, 1):
            eventually(
                "three mails", lambda: len(seen(number, "#messagelist tbody tr")) == 3
            )  # pylint: disable=cell-var-from-loop
            assert not seen(number, "#messagelist tr.flagged")

        def flagged():
            """Clicks until the page has bound its handlers; a click that counts shows at once."""
            if not seen(0, "#messagelist tr.flagged"):
                found = seen(0, "#messagelist tbody tr .flag span")
                driver.execute_script("arguments[0].click()", found[0])
            return seen(0, "#messagelist tr.flagged")

        eventually("the flag at site-a", flagged, pause=1)
        eventually("the flag at site-b", lambda: len(seen(1, "#messagelist tr.flagged")) == 1)
        driver.switch_to.default_content()
        picture(driver, "webmails")
        engine.send(CAROL, "Lunch on Monday?")
        for number in (0, 1):
            eventually(
                "a new mail", lambda: len(seen(number, "#messagelist tbody tr")) == 4
            )  # pylint: disable=cell-var-from-loop
        driver.switch_to.default_content()
        driver.get(f"http://{engine['PROMETHEUS']}/consoles/dovelane.html")
        assert "alive" in driver.page_source
        picture(driver, "console")


def test_down_leaves_nothing(engine, shown):
    """The last one: what it takes away the others need."""
    code, said = engine.run("down", "-v", "--rmi", "all")
    assert code == 0, said
    for words in (("ps", "-aq"), ("volume", "ls", "-q"), ("network", "ls", "-q")):
        assert not engine.ours(*words), words
    names = engine.docker("image", "ls", "--format", "{{.Repository}}")
    assert not [name for name in names if name.startswith(engine.env["COMPOSE_PROJECT_NAME"])]
