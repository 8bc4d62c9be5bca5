"""Give `deltalake` the identity and the address with which Cloud Storage is reached."""

from __future__ import annotations

import json
import os

from airflow_cloudfiles.engine.clouds.addresses import address_options
from airflow_cloudfiles.engine.clouds.gcp.access import GcpAccess
from airflow_cloudfiles.engine.errors import UnsupportedOptionError
from airflow_cloudfiles.engine.storage.access import of_kind

_NO_KEY = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}


def table_options(_bucket: str) -> dict[str, str]:
    """Find identity and address for Cloud Storage; without a key, `deltalake` looks for its own."""
    access: GcpAccess = of_kind(GcpAccess, None) or GcpAccess()
    options: dict[str, str] = {}
    if access.identity is not None:
        raise UnsupportedOptionError(
            "A Delta table on Cloud Storage is written through deltalake, which takes no token: "
            "an identity that Airflow's Google provider logs in with can't reach it. Use the key "
            "of a service account, or application default credentials, for the target."
        )
    if access.keyfile_json:
        options["google_service_account_key"] = access.keyfile_json
    elif access.keyfile_path:
        options["google_service_account"] = access.keyfile_path
    elif access.anonymous:
        options["google_skip_signature"] = "true"
        # Without this option, too, it asks for a token when it writes (object_store 0.13).
        options["google_service_account_key"] = json.dumps(_NO_KEY)
    endpoint = access.storage_endpoint or os.environ.get("STORAGE_EMULATOR_HOST")
    if endpoint:
        endpoint = endpoint if "://" in endpoint else f"http://{endpoint}"
        options |= address_options("google_base_url", "google_allow_http", endpoint)
    return options
