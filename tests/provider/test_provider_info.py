"""Airflow sees this package as a provider, and its types of connections in forms and commands."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import airflow
import jsonschema
import pytest
from airflow.providers.common.compat.sdk import BaseHook, BaseOperator, Connection, redact
from airflow.triggers.base import BaseTrigger
from packaging.version import Version

from airflow_cloudfiles import hooks, operators, sensors, triggers
from airflow_cloudfiles.get_provider_info import get_provider_info
from airflow_cloudfiles.hooks.access import access_of

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.airflow

INFO: dict[str, Any] = get_provider_info()
TYPES = {each["connection-type"]: each for each in INFO["connection-types"]}
HAS_FORMS = Version(airflow.__version__) >= Version("3.2")
MASKS_ALL = Version(airflow.__version__) >= Version("3.3")
HUSH = "hush-2c41d9"
FIELDS = [(name, field) for name, each in TYPES.items() for field in each["conn-fields"]]

# Several commands in one process: starting Airflow is what takes the time.
# Several commands in one process: starting Airflow is what takes the time.
COMMANDS = """
import json, sys
from airflow.__main__ import main

for arguments in json.loads(sys.argv[1]):
    sys.argv = ["airflow", *arguments]
    main()
"""


@pytest.mark.slow
def test_the_command_line_knows_the_provider_and_its_types(tmp_path: Path) -> None:
    extra = {"region_name": "eu-central-1", "test_location": "s3://acme-lake/_state"}
    add = ["connections", "add", "lake", "--conn-type", "cloudfiles_aws"]
    add += ["--conn-login", "AKIA", "--conn-password", HUSH, "--conn-extra", json.dumps(extra)]
    commands = [
        ["providers", "get", "airflow-provider-cloudfiles"],
        ["db", "migrate"],
        add,
        ["connections", "get", "lake", "--output", "json"],
    ]
    told = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)],
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__UNIT_TEST_MODE": "False"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    assert "airflow-provider-cloudfiles" in told.stdout
    [stored] = json.loads(told.stdout[told.stdout.rindex("\n[{") :])
    assert (stored["conn_type"], stored["login"]) == ("cloudfiles_aws", "AKIA")
    assert HUSH not in told.stderr


def test_it_is_what_airflow_reads() -> None:
    schema = Path(airflow.__file__).parent / "provider_info.schema.json"
    jsonschema.validate(INFO, json.loads(schema.read_text(encoding="utf-8")))
    behaviours = schema.with_name("customized_form_field_behaviours.schema.json")
    rules = json.loads(behaviours.read_text(encoding="utf-8"))
    for each in TYPES.values():
        given = each["ui-field-behaviour"].items()
        jsonschema.validate({name.replace("-", "_"): value for name, value in given}, rules)


@pytest.mark.parametrize(
    ("section", "package", "base"),
    [
        ("operators", operators, BaseOperator),
        ("sensors", sensors, BaseOperator),
        ("hooks", hooks, BaseHook),
        ("triggers", triggers, BaseTrigger),
    ],
)
def test_every_module_with_something_to_use_is_listed(
    section: str, package: ModuleType, base: type
) -> None:
    used = set()
    [folder] = package.__path__
    for path in Path(folder).glob("[a-z]*.py"):
        module = importlib.import_module(f"{package.__name__}.{path.stem}")
        for name, cls in inspect.getmembers(module, inspect.isclass):
            if name.startswith("CloudFiles") and issubclass(cls, base):
                used.add(cls.__module__)
    used |= {"airflow_cloudfiles.triggers.spark_connect"} if section == "triggers" else set()
    used -= {"airflow_cloudfiles.operators.spark_job"}  # a base class
    [listed] = INFO[section]
    assert sorted(listed["python-modules"]) == sorted(
        name for name in used if name.startswith(package.__name__)
    )


@pytest.mark.parametrize("name", TYPES)
def test_a_types_hook_says_what_the_form_says(name: str) -> None:
    module, _, cls = TYPES[name]["hook-class-name"].rpartition(".")
    hook = getattr(importlib.import_module(module), cls)
    assert (hook.conn_type, hook.hook_name) == (name, TYPES[name]["hook-name"])
    assert inspect.signature(hook).parameters.keys() == {hook.conn_name_attr}
    example = TYPES[name]["conn-fields"]["test_location"]["description"]
    assert hook.example in example


def _read(conn_type: str, field: str, value: object) -> Any:
    """What a connection with one field reads as."""
    needs = {
        "assume_role_kwargs": json.dumps({"ExternalId": value}),
        "config_kwargs": json.dumps({"s3": {"addressing_style": "path"}}),
        "extra_args": json.dumps({"SSEKMSKeyId": value}),
        "is_anonymous": True,
        "key_path": f"/{value}.json",
        "keyfile_dict": json.dumps({"private_key": value}),
        "max_connections": 7,
        "service_config": json.dumps({"s3": {"endpoint_url": value}}),
    }
    login = {"login": "id", "password": "x"} if field == "tenant_id" else {}
    if conn_type == "cloudfiles_sftp":
        login = {"host": "sftp.acme.com"}
    text = json.dumps({field: needs.get(field, value)})
    return access_of(Connection(conn_id="ours", conn_type=conn_type, extra=text, **login))


@pytest.mark.parametrize(("conn_type", "field"), FIELDS)
def test_a_field_of_a_form_is_read_and_what_is_secret_is_hidden(conn_type: str, field: str) -> None:
    access = _read(conn_type, field, HUSH)
    bare = _read(conn_type, "test_location", "")
    if field == "test_location":
        assert access == bare
        return
    changed = [
        one for one in fields(access) if getattr(access, one.name) != getattr(bare, one.name)
    ]
    assert changed
    is_secret = any(HUSH in str(getattr(access, one.name)) and not one.repr for one in changed)
    schema = TYPES[conn_type]["conn-fields"][field]["schema"]
    assert (schema.get("format") == "password") == is_secret
    # An external id is shown to whoever may edit; older versions of Airflow know fewer names.
    if is_secret and MASKS_ALL and field != "assume_role_kwargs":
        assert redact({field: HUSH}) == {field: "***"}


@pytest.mark.skipif(not HAS_FORMS, reason="forms are declared from Airflow 3.2 on")
@pytest.mark.filterwarnings("ignore:ProvidersManager.hooks is deprecated")
def test_airflow_builds_forms_with_a_test_from_it() -> None:
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()
    widgets = manager.connection_form_widgets
    for name, field in FIELDS:
        assert f"extra__{name}__{field}" in widgets
    for name in TYPES:
        assert manager.hooks[name].connection_testable
        assert manager.field_behaviours[name]["placeholders"].keys() <= {"login", "host"}
