"""Each task instance links its stream, its report and its table, and says no secret in doing so."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest
from airflow.sdk import DAG

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.get_provider_info import get_provider_info
from airflow_cloudfiles.hooks.observability.links import (
    PAGE,
    ReportLink,
    StreamLink,
    TableLink,
    console_of,
)
from airflow_cloudfiles.hooks.task import run_id_of
from airflow_cloudfiles.operators.clean import CloudFilesCleanOperator
from airflow_cloudfiles.operators.cloud_files import (
    CloudFilesInferSchemaOperator,
    CloudFilesIngestOperator,
    CloudFilesReconcileOperator,
)
from airflow_cloudfiles.operators.promote import CloudFilesPromoteOperator
from airflow_cloudfiles.operators.table import (
    CloudFilesOptimizeTableOperator,
    CloudFilesVacuumTableOperator,
)
from airflow_cloudfiles.plugins.cloud_files import PREFIX, CloudFilesPlugin
from airflow_cloudfiles.sensors.cloud_files import CloudFilesSensor

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperatorLink

pytestmark = pytest.mark.airflow

STREAM = {"source": "/in", "format": "json", "checkpoint_location": "/state"}
RUN_ID = "manual__2026-11-24T00:00:00+00:00"
HUSH = "hush-5e81"
PORTAL = (
    "https://portal.azure.com/#view/Microsoft_Azure_Storage/ContainerMenuBlade/~/overview/"
    "storageAccountId/%2Fsubscriptions%2F1-2%2FresourceGroups%2Fr%20g%2Fproviders%2F"
    "Microsoft.Storage%2FstorageAccounts%2Facme/path/lake"
)
CONSOLE = "https://console.aws.amazon.com/s3/buckets/lake"


@pytest.fixture(autouse=True)
def _no_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)


def _key(map_index: int = -1) -> Any:
    return SimpleNamespace(
        dag_id="d/e", run_id=RUN_ID, task_id="g.t", map_index=map_index, try_number=2
    )


def _link(link: BaseOperatorLink, operator: Any, map_index: int = -1) -> str:
    return link.get_link(operator, ti_key=_key(map_index))


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (CloudFilesSensor, {"Stream", "Table"}),
        (CloudFilesReconcileOperator, {"Stream", "Table"}),
        (CloudFilesInferSchemaOperator, {"Stream", "Table", "Report"}),
        (CloudFilesIngestOperator, {"Stream", "Table", "Report"}),
        (CloudFilesPromoteOperator, {"Stream", "Table", "Report"}),
        (CloudFilesCleanOperator, {"Stream", "Table", "Report"}),
        (CloudFilesOptimizeTableOperator, {"Table"}),
        (CloudFilesVacuumTableOperator, {"Table"}),
    ],
)
def test_each_task_has_the_links_that_lead_somewhere(cls: Any, names: set[str]) -> None:
    assert {link.name for link in cls.operator_extra_links} == names
    paths = {f"{type(link).__module__}.{type(link).__name__}" for link in cls.operator_extra_links}
    assert paths <= set(get_provider_info()["extra-links"])  # type: ignore[call-overload]


def test_airflow_knows_the_links_and_keeps_their_keys_with_a_mapped_task_too() -> None:
    from airflow.providers_manager import ProvidersManager

    from tests.support.dag_serialization import DagSerialization

    classes = ProvidersManager().extra_links_class_names
    assert set(get_provider_info()["extra-links"]) <= set(classes)  # type: ignore[call-overload]
    with DAG("links", schedule=None) as dag:
        CloudFilesIngestOperator(task_id="one", target="/table", **STREAM)
        CloudFilesIngestOperator.partial(
            task_id="many", format="json", source="/in", target="/table"
        ).expand(checkpoint_location=["/a", "/b"])
    written = json.loads(json.dumps(DagSerialization.to_dict(dag)))
    keys = {f"_link_{name}" for name in ("StreamLink", "ReportLink", "TableLink")}
    for task in DagSerialization.from_dict(written).task_dict.values():
        links = {link.name: link.xcom_key for link in task.operator_extra_links}
        assert links.keys() == {"Stream", "Report", "Table"}
        assert set(links.values()) == keys


@pytest.mark.parametrize("map_index", [-1, 3])
@pytest.mark.parametrize("base", ["", "https://airflow.acme.com/data/"])
def test_a_link_leads_to_the_tab_and_the_page_of_the_task_instance(
    map_index: int, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base)
    tab = urlsplit(_link(StreamLink(), None, map_index))
    page = urlsplit(_link(ReportLink(), None, map_index))
    prefix = "/data" if base else ""
    mapped = "/mapped/3" if map_index == 3 else ""
    [view] = [
        each for each in CloudFilesPlugin.external_views if each["destination"] == "task_instance"
    ]
    route = f"/plugin/{view['url_route']}"
    assert unquote(tab.path) == f"{prefix}/dags/d/e/runs/{RUN_ID}/tasks/g.t{mapped}{route}"
    assert unquote(page.path) == f"{prefix}{PAGE}/d/e/{RUN_ID}/g.t/{map_index}"
    assert (
        tab.path.count("/") == len(f"{prefix}/dags/d/runs/r/tasks/t{mapped}{route}".split("/")) - 1
    )
    assert page.fragment == f"run-{run_id_of({'ti': _key(map_index)})}"
    assert view["href"].replace("/tab/", "/stream/").startswith(PAGE)
    assert PAGE.startswith(PREFIX)
    assert tab.netloc == page.netloc == ("airflow.acme.com" if base else "")


@pytest.mark.parametrize(
    ("location", "access", "address"),
    [
        ("s3://lake", None, CONSOLE),
        ("s3://lake/a b/t", None, f"{CONSOLE}?prefix=a+b%2Ft%2F"),
        ("s3://lake/t/", AwsAccess(region="eu-central-1"),
         f"{CONSOLE}?region=eu-central-1&prefix=t%2F"),
        ("s3://lake/t", AwsAccess(region="cn-north-1"),
         "https://console.amazonaws.cn/s3/buckets/lake?region=cn-north-1&prefix=t%2F"),
        ("s3://lake/t", AwsAccess(endpoint_urls={"": "http://minio:9000"}), ""),
        (f"s3://key:{HUSH}@lake/t", None, ""),
        ("gs://lake/a b/t", None, "https://console.cloud.google.com/storage/browser/lake/a%20b/t"),
        ("gs://lake", GcpAccess(project="acme", keyfile_json=HUSH),
         "https://console.cloud.google.com/storage/browser/lake?project=acme"),
        ("gs://lake/t", GcpAccess(storage_endpoint="http://fake"), ""),
        ("abfss://lake@acme.dfs.core.windows.net/t", None, ""),
        ("abfss://lake@acme.dfs.core.windows.net/t", AzureAccess(subscription_id="1-2"), ""),
        ("abfss://lake@acme.dfs.core.windows.net/t",
         AzureAccess(subscription_id="1-2", resource_group="r g", account_key=HUSH), PORTAL),
        ("abfss://lake@acme.dfs.core.chinacloudapi.cn/t",
         AzureAccess(subscription_id="1-2", resource_group="r g"),
         PORTAL.replace("azure.com", "azure.cn")),
        ("abfss://lake@acme.dfs.core.windows.net/t",
         AzureAccess(subscription_id="1-2", resource_group="g", blob_endpoint="http://azure"), ""),
        ("abfss://lake@evil.example/t",
         AzureAccess(subscription_id="1-2", resource_group="g"), ""),
        ("iceberg:lake.sales.orders", None, ""),
        ("/data/t", None, ""),
        ("file:///data/t", None, ""),
    ],
)  # fmt: skip
def test_a_table_is_shown_by_the_console_of_its_cloud(
    location: str, access: Any, address: str
) -> None:
    assert console_of(location, access) == address


def test_another_s3_of_the_environment_has_no_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://minio:9000")
    assert not console_of("s3://lake/t", None)


def test_a_link_has_the_region_of_the_connection_and_none_of_its_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extra = {"region_name": "us-gov-west-1", "aws_session_token": HUSH}
    lake = {"conn_type": "cloudfiles_aws", "login": HUSH, "password": HUSH, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(lake))
    stream = {**STREAM, "target": "s3://lake/orders/table"}
    task = CloudFilesIngestOperator(task_id="t", conn_id="lake", **stream)
    links = {link.name: _link(link, task) for link in task.operator_extra_links}
    assert links["Table"] == (
        "https://console.amazonaws-us-gov.com/s3/buckets/lake"
        "?region=us-gov-west-1&prefix=orders%2Ftable%2F"
    )
    assert HUSH not in str(links)


@pytest.mark.parametrize(
    "place", ["abfss://lake@acme.dfs", "abfs://lake@acme.dfs", "wasbs://lake@acme.blob"]
)
def test_a_place_has_one_link_however_it_is_written(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    extra = {"subscription_id": "1-2", "resource_group": "r g"}
    lake = {"conn_type": "cloudfiles_azure", "password": HUSH, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(lake))
    target = f"{place}.core.windows.net/orders"
    task = CloudFilesIngestOperator(task_id="t", conn_id="lake", target=target, **STREAM)
    assert _link(TableLink(), task) == PORTAL


def test_a_local_table_asks_for_no_connection() -> None:
    for target in ("table", "file:///data/table"):
        task = CloudFilesIngestOperator(task_id="t", target=target, conn_id="missing", **STREAM)
        assert not _link(TableLink(), task)
    assert not _link(TableLink(), CloudFilesSensor(task_id="s", **STREAM))
