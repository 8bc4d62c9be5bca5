"""Give `deltalake` the identity and the address with which a container of Azure is reached."""

from __future__ import annotations

from airflow_cloudfiles.engine.clouds.addresses import address_options, proxy_options
from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.azure.client import open_account
from airflow_cloudfiles.engine.clouds.azure.errors import token_of
from airflow_cloudfiles.engine.storage.access import of_kind

_STORAGE_SCOPE = "https://storage.azure.com/.default"


def table_options(bucket: str) -> dict[str, str]:
    """Find identity and address for a container, as the Azure store does."""
    name, _, domain = bucket.rpartition("@")[2].partition(".dfs.")
    access: AzureAccess | None = of_kind(AzureAccess, None)
    account = open_account(name, access, "blob", domain=domain)
    options = {
        **proxy_options(access.proxies if access else {}),
        "azure_storage_account_name": name,
        **address_options("azure_storage_endpoint", "azure_allow_http", account.endpoint),
    }
    credential = account.credential
    if isinstance(credential, dict):
        options["azure_storage_account_key"] = credential["account_key"]
    elif hasattr(credential, "signature"):
        options["azure_storage_sas_token"] = credential.signature
    else:
        options["azure_storage_token"] = token_of(credential, _STORAGE_SCOPE)
    return options
