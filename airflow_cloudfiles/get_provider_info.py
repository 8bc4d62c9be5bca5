"""Tell Airflow's provider manager what this package brings.

Plain data: Airflow reads it through the entry point `apache_airflow_provider` in every process it
starts, so this module imports nothing. The keys are those of Airflow's `provider_info.schema.json`.

Forms of connections (`conn-fields`) are shown by Airflow 3.2 and later; 3.1 shows the same fields
as JSON in *Extra*. What is secret is a password field, and has a name that Airflow 3.3 masks.
"""

from __future__ import annotations

__all__ = ["get_provider_info"]


def get_provider_info() -> dict[str, object]:
    """Describe the package to Airflow.

    Returns:
        What `airflow providers get` shows. `package-name` is the name of the distribution: Airflow
        refuses a provider where the two differ.
    """
    integration = "Cloud Files"
    return {
        "package-name": "airflow-provider-cloudfiles",
        "name": integration,
        "description": "An open Auto Loader: files landing in storage go into tables, scheduled by "
        "Airflow, run by PySpark.",
        "versions": ["0.1.0"],
        "integrations": [{"integration-name": integration, "tags": ["software"]}],
        "operators": [
            {
                "integration-name": integration,
                "python-modules": [
                    "airflow_cloudfiles.operators.cloud_files",
                    "airflow_cloudfiles.operators.clean",
                    "airflow_cloudfiles.operators.files",
                    "airflow_cloudfiles.operators.promote",
                    "airflow_cloudfiles.operators.schema_change",
                    "airflow_cloudfiles.operators.table",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": integration,
                "python-modules": ["airflow_cloudfiles.sensors.cloud_files"],
            }
        ],
        "hooks": [
            {
                "integration-name": integration,
                "python-modules": [
                    "airflow_cloudfiles.hooks.cloud_files",
                    "airflow_cloudfiles.hooks.clouds",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": integration,
                "python-modules": [
                    "airflow_cloudfiles.triggers.cloud_files",
                    "airflow_cloudfiles.triggers.file_events",
                    "airflow_cloudfiles.triggers.spark_connect",
                ],
            }
        ],
        "task-decorators": [
            {
                "class-name": "airflow_cloudfiles.decorators.cloud_files.cloud_files_task",
                "name": "cloud_files",
            }
        ],
        "extra-links": [
            f"airflow_cloudfiles.hooks.observability.links.{name}"
            for name in ("StreamLink", "ReportLink", "TableLink")
        ],
        "connection-types": [_aws(), _azure(), _gcp(), _sftp()],
    }


def _aws() -> dict[str, object]:
    """Build the form of a connection to S3 and SQS."""
    return {
        "connection-type": "cloudfiles_aws",
        "hook-class-name": "airflow_cloudfiles.hooks.clouds.CloudFilesAwsHook",
        "hook-name": "Cloud Files: Amazon S3",
        "conn-fields": {
            "test_location": _test_location("s3://acme-lake/_state"),
            "region_name": _text("Region", "Such as eu-central-1."),
            "role_arn": _text("Role ARN", "Of a role to assume with the credentials above."),
            "assume_role_kwargs": _text(
                "Role: external ID and session name (JSON)",
                'Such as {"ExternalId": "…", "RoleSessionName": "airflow"}.',
                secret=True,
            ),
            "profile_name": _text("Profile", "Name of a profile in AWS's configuration files."),
            "aws_session_token": _text("Session token", "Of temporary credentials.", secret=True),
            "endpoint_url": _text("Endpoint URL", "Of another S3; none for Amazon's own."),
            "service_config": _text(
                "Endpoint URLs by service (JSON)", 'Such as {"sqs": {"endpoint_url": "https://…"}}.'
            ),
            "config_kwargs": _text(
                "Client configuration (JSON)",
                'Such as {"s3": {"addressing_style": "path"}}.',
            ),
            "extra_args": _text(
                "Arguments of S3 requests (JSON)",
                'Such as {"RequestPayer": "requester"}, or {"ServerSideEncryption": "aws:kms"}.',
            ),
            "verify": _text(
                "Verify certificates", "false, or the path of a CA bundle to check them with."
            ),
        },
        "ui-field-behaviour": {
            "hidden-fields": ["host", "schema", "port"],
            "relabeling": {"login": "Access key ID", "password": "Secret access key"},
            "placeholders": {"login": "none: the environment's own credentials"},
        },
    }


def _azure() -> dict[str, object]:
    """Build the form of a connection to Azure Storage."""
    return {
        "connection-type": "cloudfiles_azure",
        "hook-class-name": "airflow_cloudfiles.hooks.clouds.CloudFilesAzureHook",
        "hook-name": "Cloud Files: Azure Storage",
        "conn-fields": {
            "test_location": _test_location("abfss://lake@acme.dfs.core.windows.net/_state"),
            "tenant_id": _text("Tenant ID", "Of a service principal."),
            "managed_identity_client_id": _text(
                "Managed identity client ID", "Of one that a user has assigned."
            ),
            "sas_token": _text("Shared access signature (SAS)", "Alone, or as a URL.", secret=True),
            "connection_string": _text(
                "Connection string", "Everything at once, as the portal shows it.", secret=True
            ),
            "queue_endpoint": _text("Queue endpoint", "Of an emulator or a cloud of one's own."),
            "subscription_id": _text("Subscription ID", "Of the account, for links to the portal."),
            "resource_group": _text("Resource group", "Of the account, for links to the portal."),
        },
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "port"],
            "relabeling": {
                "host": "Blob endpoint",
                "login": "Client ID of a service principal",
                "password": "Account key, or client secret",
            },
            "placeholders": {
                "host": "none: the location says which account",
                "login": "none: account key, or the environment's own credentials",
            },
        },
    }


def _gcp() -> dict[str, object]:
    """Build the form of a connection to Cloud Storage and Pub/Sub."""
    return {
        "connection-type": "cloudfiles_gcp",
        "hook-class-name": "airflow_cloudfiles.hooks.clouds.CloudFilesGcpHook",
        "hook-name": "Cloud Files: Google Cloud Storage",
        "conn-fields": {
            "test_location": _test_location("gs://acme-lake/_state"),
            "project": _text("Project ID", "Of the project that requests are made for."),
            "keyfile_dict": _text(
                "Service account key (JSON)", "The text of its key file.", secret=True
            ),
            "key_path": _text("Key file", "Path of such a file on every worker."),
            "is_anonymous": {
                "label": "Anonymous",
                "description": "Without credentials: public buckets and emulators.",
                "schema": {"type": ["boolean", "null"], "default": False},
            },
            "storage_endpoint": _text("Cloud Storage endpoint", "Of an emulator."),
            "pubsub_endpoint": _text("Pub/Sub endpoint", "Of an emulator: host:port."),
        },
        "ui-field-behaviour": {
            "hidden-fields": ["host", "schema", "port", "login", "password"],
            "relabeling": {},
            "placeholders": {},
        },
    }


def _sftp() -> dict[str, object]:
    """Build the form of a connection to an SFTP server."""
    return {
        "connection-type": "cloudfiles_sftp",
        "hook-class-name": "airflow_cloudfiles.hooks.clouds.CloudFilesSftpHook",
        "hook-name": "Cloud Files: SFTP server",
        "conn-fields": {
            "test_location": _text(
                "Location to test", "A folder such as sftp://sftp.acme.com/inbox, to be listed."
            ),
            "host_key": _text("Host key", "Such as ssh-ed25519 AAAA…; none for the known hosts."),
            "known_hosts": _text("Known hosts", "Path of a file on every worker."),
            "key_file": _text("Private key file", "Path of such a file on every worker."),
            "private_key": _text("Private key", "The text of its file.", secret=True),
            "private_key_passphrase": _text(
                "Passphrase", "Of the private key, if it has one.", secret=True
            ),
            "max_connections": {
                "label": "Connections",
                "description": "To the server at once, of one process; 2 if none is given.",
                "schema": {"type": ["integer", "null"], "minimum": 1},
            },
        },
        "ui-field-behaviour": {
            "hidden-fields": ["schema"],
            "relabeling": {"login": "User"},
            "placeholders": {"host": "sftp.acme.com"},
        },
    }


def _test_location(example: str) -> dict[str, object]:
    """Build the field that says where the button *Test* tries a connection."""
    return _text(
        "Location to test",
        f"A folder such as {example}. The test lists it, and writes and removes one object.",
    )


def _text(label: str, description: str, *, secret: bool = False) -> dict[str, object]:
    """Build a field of a form."""
    schema: dict[str, object] = {"type": ["string", "null"]}
    if secret:
        schema["format"] = "password"
    return {"label": label, "description": description, "schema": schema}
