"""How does Airflow serialize a DAG, by whatever name its version has for that?"""

from __future__ import annotations

try:
    from airflow.serialization.serialized_objects import DagSerialization
except ImportError:  # Airflow 3.1
    from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization

__all__ = ["DagSerialization"]
