"""Which pages are there, and who may see them?

Airflow's auth manager decides: a page of a stream is for those who may read the task instances and
the task logs of its DAG, which show the same kind of things. Every value is escaped by the
templates; no page runs a script or loads anything from elsewhere.
"""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import HTMLResponse, Response

from airflow_cloudfiles.engine.intake.file_query import STATUSES
from airflow_cloudfiles.plugins import views
from airflow_cloudfiles.plugins.pages import ICON, page
from airflow_cloudfiles.plugins.tasks import TaskKey, newest_of_each_task, stream_of

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; "
    "form-action 'self'; frame-ancestors 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_OF_STREAM = "/stream/{dag_id}/{run_id}/{task_id}/{map_index}"
_MAY_READ = [
    Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE)),
    Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS)),
]
_pages = APIRouter(default_response_class=HTMLResponse)


def make_app() -> FastAPI:
    """Make the application that Airflow mounts."""
    app = FastAPI(title="Cloud Files", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(_pages)
    return app


def task_key(dag_id: str, run_id: str, task_id: str, map_index: str) -> TaskKey:
    """Read which task instance a path names.

    Airflow 3.3 leaves `{MAP_INDEX}` as it is for tasks that are not mapped.
    """
    is_number = map_index.removeprefix("-").isdecimal()
    return TaskKey(dag_id, run_id, task_id, int(map_index) if is_number else -1)


Key = Annotated[TaskKey, Depends(task_key)]


@_pages.get("/icon.svg")
def icon() -> Response:
    """Give the icon of the tab and of the page in the navigation."""
    return Response(ICON, media_type="image/svg+xml")


@_pages.get("/streams")
def streams(request: Request, user: GetUserDep) -> HTMLResponse:
    """Show the streams of all DAGs that the user may read."""
    manager = get_auth_manager()
    readable = manager.get_authorized_dag_ids(user=user, method="GET")
    listed = views.listed_streams(newest_of_each_task(readable))
    return _answer(request, "streams.html", streams=listed)


@_pages.get(_OF_STREAM, dependencies=_MAY_READ)
def stream(request: Request, key: Key) -> HTMLResponse:
    """Show how a stream is, and how its newest runs went."""
    return _of_stream(request, key, "stream.html", views.stream_view)


@_pages.get(f"{_OF_STREAM}/schema", dependencies=_MAY_READ)
def schema(request: Request, key: Key) -> HTMLResponse:
    """Show the history of its schema."""
    return _of_stream(request, key, "schema.html", views.schema_view)


@_pages.get(f"{_OF_STREAM}/files", dependencies=_MAY_READ)
def files(
    request: Request,
    key: Key,
    status: Annotated[str, Query(max_length=20)] = "",
    path: Annotated[str, Query(max_length=1024)] = "",
) -> HTMLResponse:
    """Show its newest files."""
    return _of_stream(
        request,
        key,
        "files.html",
        lambda task: views.files_view(task, status, path),
        asked={"status": status, "path": path},
        statuses=STATUSES,
    )


@_pages.get(f"{_OF_STREAM}/rescued", dependencies=_MAY_READ)
def rescued(request: Request, key: Key) -> HTMLResponse:
    """Show what was rescued newest, by field."""
    return _of_stream(request, key, "rescued.html", views.rescued_view)


def _of_stream(
    request: Request, key: TaskKey, template: str, look: Any, **more: object
) -> HTMLResponse:
    """Answer with a page of one stream."""
    task = views.read(lambda: stream_of(key))
    found = None if task.value is None else views.read(lambda: look(task.value))
    problem = task.problem or ("" if found is None else found.problem)
    view = None if found is None else found.value
    here = _path(request, key)
    return _answer(
        request, template, key=key, task=task.value, view=view, problem=problem, here=here, **more
    )


def _answer(request: Request, template: str, **values: object) -> HTMLResponse:
    root = str(request.scope.get("root_path", ""))
    return HTMLResponse(page(template, root=root, **values), headers=_HEADERS)


def _path(request: Request, key: TaskKey) -> str:
    """The path of a stream's first page."""
    parts = (key.dag_id, key.run_id, key.task_id, str(key.map_index))
    root = str(request.scope.get("root_path", ""))
    return f"{root}/stream/" + "/".join(quote(each, safe="") for each in parts)
