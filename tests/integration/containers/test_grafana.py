"""What docker-compose.yml gives Grafana, held to what Grafana's documents say of it.

Its image is out of reach here, so nobody else looks. Grafana ignores a name that it does not know:
a mistyped one would be a data source or a dashboard that is not there, without a word.

The dashboard itself: tests/integration/gateway/test_dashboard.py.
"""

import json
import re

import pytest
from support.stack.shape import REPOSITORY

pytestmark = pytest.mark.long

# Grafana 11.6: "Provision Grafana", "Configure Grafana" and "Prometheus data source".
DATASOURCE = {
    "name": str,
    "type": str,
    "access": ("proxy", "direct"),
    "orgId": int,
    "uid": str,
    "url": str,
    "isDefault": bool,
    "jsonData": {
        "timeInterval": str,
        "queryTimeout": str,
        "httpMethod": ("GET", "POST"),
        "manageAlerts": bool,
    },
    "version": int,
    "editable": bool,
}
PROVIDER = {
    "name": str,
    "orgId": int,
    "folder": str,
    "folderUid": str,
    "type": ("file",),
    "disableDeletion": bool,
    "updateIntervalSeconds": int,
    "allowUiUpdates": bool,
    "options": {"path": str, "foldersFromFilesStructure": bool},
}
SETTINGS = {
    "analytics": ("reporting_enabled", "check_for_updates", "check_for_plugin_updates"),
    "auth": ("disable_login_form",),
    "auth_anonymous": ("enabled", "org_role"),
    "auth_basic": ("enabled",),
    "dashboards": ("default_home_dashboard_path",),
    "security": ("disable_initial_admin_creation",),
}


def faults(value, rule, where):
    """Names that the rule does not have, and values of another kind."""
    if isinstance(rule, dict):
        assert isinstance(value, dict), where
        for name, part in value.items():
            if name in rule:
                yield from faults(part, rule[name], f"{where}.{name}")
            else:
                yield f"{where} has no {name}"
    elif value not in rule if isinstance(rule, tuple) else type(value) is not rule:
        yield f"{where}: {value!r}"


@pytest.fixture(scope="module")
def read():
    yaml = pytest.importorskip("yaml", reason="python3-yaml is not here: ./setup containers")
    return lambda name: yaml.safe_load((REPOSITORY / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def service(read):
    return read("docker-compose.yml")["services"]["grafana"]


@pytest.fixture(scope="module")
def mounts(service):
    """Path in the container: path here."""
    parts = (volume.split(":") for volume in service["volumes"])
    return {inside: REPOSITORY / here for here, inside, mode in parts if mode == "ro"}


PROVISIONING = "docker/grafana/provisioning"


def test_what_grafana_is_given_fits_its_documents(read):
    source = read(f"{PROVISIONING}/datasources/prometheus.yml")
    provider = read(f"{PROVISIONING}/dashboards/dovelane.yml")
    assert source.keys() == {"apiVersion", "datasources"} and source["apiVersion"] == 1
    assert provider.keys() == {"apiVersion", "providers"} and provider["apiVersion"] == 1
    found = [
        fault
        for rule, given in ((DATASOURCE, source["datasources"]), (PROVIDER, provider["providers"]))
        for one in given
        for fault in faults(one, rule, one["name"])
    ]
    assert not found, found
    for one in source["datasources"]:
        assert {"name", "type", "access", "url"} <= one.keys()
    for one in provider["providers"]:
        assert {"name", "type", "options"} <= one.keys() and "path" in one["options"]


def test_a_wrong_name_or_value_is_found():
    wrong = {"name": "x", "acces": "proxy", "access": "server", "isDefault": "yes",
             "jsonData": {"interval": "2s"}}
    assert len(list(faults(wrong, DATASOURCE, "x"))) == 4


def test_the_settings_are_grafanas(service):
    known = {
        f"GF_{section}_{name}".upper() for section, names in SETTINGS.items() for name in names
    }
    assert set(service["environment"]) <= known, set(service["environment"]) - known
    assert all(isinstance(value, str) for value in service["environment"].values())


def test_what_is_named_is_mounted_and_there(read, service, mounts):
    assert all(path.exists() for path in mounts.values()), mounts
    provisioned = {inside.rpartition("/")[2] for inside in mounts if "/provisioning/" in inside}
    assert provisioned == {"dashboards", "datasources"}
    folders = {
        one["options"]["path"]
        for one in read(f"{PROVISIONING}/dashboards/dovelane.yml")["providers"]
    }
    home = service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home in mounts and home.rpartition("/")[0] in folders


def test_the_dashboard_asks_the_source_that_is_provisioned(read, mounts):
    (source,) = read(f"{PROVISIONING}/datasources/prometheus.yml")["datasources"]
    services = read("docker-compose.yml")["services"]
    host, port = re.fullmatch(r"http://([\w-]+):(\d+)", source["url"]).groups()
    assert [address for address in services[host]["ports"] if address.endswith(f":{port}")]
    (path,) = (path for path in mounts.values() if path.suffix == ".json")
    board = json.loads(path.read_text(encoding="utf-8"))
    (variable,) = board["templating"]["list"]
    assert variable["type"] == "datasource" and variable["query"] == source["type"]
    # "default" is the source that says so, and there is one.
    assert variable["current"]["value"] == "default" and source["isDefault"]
    interval = read("docker/prometheus.yml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval
    asked = {
        target["datasource"]["uid"]
        for panel in board["panels"]
        for target in panel.get("targets", [])
    }
    assert asked == {"${" + variable["name"] + "}"}
