"""Serve the pages of streams in Airflow's UI to those who may see them.

Airflow's auth manager decides: a page of a stream is for those who may read the task instances and
the task logs of its DAG, which show the same kind of things. Every value is escaped by the
templates; no page runs a script or loads anything from elsewhere.

With Jinja, which Airflow brings, from the templates in this package; everything that is put into a
page is escaped, and so is each character that would turn or hide what stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import quote, urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.api_fastapi.logging.decorators import action_logging
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from airflow_cloudfiles.commands import docs
from airflow_cloudfiles.engine.errors import PAGE, OptionError
from airflow_cloudfiles.engine.intake.file_state_columns import error_text
from airflow_cloudfiles.engine.intake.file_states import STATUSES
from airflow_cloudfiles.engine.messages import counted, plural, printable
from airflow_cloudfiles.plugins import stream_list, views
from airflow_cloudfiles.plugins.docs import rendered
from airflow_cloudfiles.plugins.tasks import TaskKey, newest_of_each_task, stream_of

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

ICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="#017cee" '
    'stroke-width="2" stroke-linecap="round" stroke-linejoin="round"><path d="M7 15a4 4 0 1 1 '
    '.9-7.9A5.5 5.5 0 0 1 18.4 8 3.5 3.5 0 0 1 18 15"/><path d="M12.5 11v9m-3-3 3 3 3-3"/></svg>'
)
"""A cloud, and an arrow down."""
_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB", "PB")
_THOUSAND: Final = 1000
_MINUTE: Final = 60


def page(template: str, *, root: str, **values: object) -> str:
    """Write a page; `root` is the address of all of them, a folder of Airflow's."""
    airflow = root.rpartition("/")[0]
    values |= {"root": root, "airflow": airflow, "now": datetime.now(tz=UTC)}
    return _environment().get_template(template).render(values)


def size(count: float) -> str:
    """Format a number of bytes, to three digits."""
    value, unit = float(count), 0
    while value >= _THOUSAND and unit < len(_UNITS) - 1:
        value, unit = value / _THOUSAND, unit + 1
    return f"{value:,.0f} {plural(count, 'byte')}" if unit == 0 else f"{value:.3g} {_UNITS[unit]}"


def time(value: str | datetime | None) -> str:
    """Format a time in UTC, to the second; a dash stands for none."""
    if not value:
        return "-"
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def age(value: str | None, now: datetime) -> str:
    """Say how long ago a time was, in its largest unit."""
    if not value:
        return "-"
    seconds = max(0.0, (now - datetime.fromisoformat(value)).total_seconds())
    for noun, length in (("day", 86_400), ("hour", 3600), ("minute", _MINUTE)):
        if seconds >= length:
            return counted(int(seconds // length), noun)
    return counted(int(seconds), "second")


def stream_path(key: TaskKey, place: str = "stream") -> str:
    """Build the path of a stream's first page, at a place of its own or in a tab."""
    parts = (place, key.dag_id, key.run_id, key.task_id, str(key.map_index))
    return "/" + "/".join(quote(each, safe="") for each in parts)


def within(path: str, source: str) -> str:
    """Shorten the URI of a file to what is below its source, if it is."""
    start = source if "://" in source else f"file://{source}"
    return path.removeprefix(f"{start.rstrip('/')}/")


def _visible(value: object) -> object:
    """Convert what is put into a page; markup of a filter stays as it is."""
    return printable(value, but="\n") if type(value) is str else value


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("airflow_cloudfiles.plugins"),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "size": size,
        "counted": counted,
        "error_text": error_text,
        "plural": plural,
        "time": time,
        "age": age,
        "within": within,
        "stream_path": stream_path,
        "tone": lambda state: _TONES.get(state, "waiting"),
    }
    return made


_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; "
    "form-action 'self'; frame-ancestors 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_PARTS = {"Content-Encoding": "identity", "X-Accel-Buffering": "no"}
"""For an answer in two parts: nothing on the way is to wait for the second one."""
_WAITS: Final = "<!-- what follows waits for them -->"
_TONES: Final = {"success": "succeeded", "failed": "failed", "upstream_failed": "failed"}
_WORDS: Final = {word: word for word in stream_list.STANDINGS} | {
    "undecided": "waits for a decision",
    "unread": "not read yet",
}
_OF_STREAM = "/{place}/{dag_id}/{run_id}/{task_id}/{map_index}"
_MAY_READ = [
    Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE)),
    Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS)),
]
_may_decide = requires_access_dag("PUT", DagAccessEntity.HITL_DETAIL)
_MOST_FIELDS: Final = 5000
_pages = APIRouter(default_response_class=HTMLResponse)


def make_app() -> FastAPI:
    """Make the application that Airflow mounts."""
    app = FastAPI(title="Cloud Files", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(_pages)
    return app


def task_key(
    dag_id: str,
    run_id: str,
    task_id: str,
    map_index: str,
    place: Literal["stream", "tab"] = "stream",  # noqa: ARG001 - FastAPI checks it
) -> TaskKey:
    """Read which task instance a path names; `tab` is for the tab, which leads to no other stream.

    Airflow 3.3 leaves `{MAP_INDEX}` as it is for tasks that are not mapped.
    """
    is_number = map_index.removeprefix("-").isdecimal()
    return TaskKey(dag_id, run_id, task_id, int(map_index) if is_number else -1)


Key = Annotated[TaskKey, Depends(task_key)]


@_pages.get("/icon.svg")
def icon() -> Response:
    """Give the icon of the tab and of the page in the navigation."""
    return Response(ICON, media_type="image/svg+xml")


@_pages.get("/errors/{code}")
def error(request: Request, code: str, user: GetUserDep) -> HTMLResponse:  # noqa: ARG001 - signed in
    """Show what the documentation says of an error."""
    try:
        text = docs.section(code)
    except OptionError as failure:
        raise HTTPException(404, str(failure)) from failure
    return _documentation(request, PAGE, text)


@_pages.get("/docs/{name:path}")
def documentation(request: Request, name: str, user: GetUserDep) -> HTMLResponse:  # noqa: ARG001
    """Show a page of the documentation."""
    path = docs.pages().get(name)
    if path is None:
        raise HTTPException(404, f"There is no page {name!r}.")
    return _documentation(request, name, path.read_text(encoding="utf-8"))


def _documentation(request: Request, name: str, text: str) -> HTMLResponse:
    content = rendered(text, name, str(request.scope.get("root_path", "")))
    return _answer(request, "docs.html", name=name, content=content)


@_pages.get("/streams")
def streams(  # noqa: PLR0913, PLR0917 - the parameters of the address
    request: Request,
    user: GetUserDep,
    q: Annotated[str, Query(max_length=200)] = "",
    dag: Annotated[str, Query(max_length=250)] = "",
    status: Annotated[str, Query(max_length=20)] = "",
    state: Annotated[str, Query(max_length=50)] = "",
    sort: Annotated[str, Query(max_length=20)] = "",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> StreamingResponse:
    """Show the streams of all DAGs that the user may read.

    What does not need their states is sent before these have answered.
    """
    manager = get_auth_manager()
    readable = manager.get_authorized_dag_ids(user=user, method="GET")
    rows, looks = stream_list.located(newest_of_each_task(readable))
    stream_list.ask(looks)
    asked = stream_list.ListQuery(q.strip(), dag.strip(), status, state, sort, page)
    parts = list_parts(rows, asked, str(request.scope.get("root_path", "")))
    return StreamingResponse(parts, headers={**_HEADERS, **_PARTS}, media_type="text/html")


def list_parts(
    rows: Sequence[stream_list.ListedStream], asked: stream_list.ListQuery, root: str
) -> Iterator[str]:
    """Write the list of streams in two parts: what is known, and what waits for their states.

    Args:
        rows: The streams, whose states are being read.
        asked: What is asked of the list.
        root: Where the pages are.
    """
    pieces = (
        _environment()
        .get_template("streams.html")
        .generate(
            now=datetime.now(tz=UTC),
            root=root,
            asked=asked,
            known=len(rows),
            dags=sorted({dag_id for row in rows for dag_id in row.dag_ids}),
            states=sorted({each.state for row in rows for each in row.tasks}),
            standings=list(_WORDS.items()),
            words=_WORDS,
            read=lambda: stream_list.page_of(stream_list.read_rows(rows), asked),
        )
    )
    before: list[str] = []
    for piece in pieces:
        before.append(piece)
        if _WAITS in piece:
            break
    yield "".join(before)
    yield "".join(pieces)


@_pages.get(_OF_STREAM, dependencies=_MAY_READ)
def stream(request: Request, key: Key) -> HTMLResponse:
    """Show how a stream is, and how its newest runs went."""
    return _of_stream(request, key, "stream.html", views.stream_view)


@_pages.get(f"{_OF_STREAM}/schema", dependencies=_MAY_READ)
def schema(request: Request, key: Key, user: GetUserDep) -> HTMLResponse:
    """Show the history of its schema, and the change that waits for a decision."""
    return _schema(request, key, user)


def _schema(
    request: Request, key: TaskKey, user: BaseUser, mistake: str = "", **given: str
) -> HTMLResponse:
    try:
        _may_decide(request, user)
        may_decide = True
    except HTTPException:
        may_decide = False
    more = {"may_decide": may_decide, "mistake": mistake, "given": given}
    return _of_stream(request, key, "schema.html", views.schema_view, **more)


async def form_of(request: Request) -> dict[str, str]:
    """Read what a form has sent, if it is on a page of this server.

    Raises:
        HTTPException: Another site has sent it, with the cookie of somebody who looks at it.
    """
    site = request.headers.get("Sec-Fetch-Site", "")  # only to https and to this machine
    origin = urlsplit(request.headers.get("Origin", "")).netloc
    if site != "same-origin" if site else origin != request.headers.get("Host"):
        raise HTTPException(403, "Only a page of this server may send an answer.")
    async with request.form(max_fields=_MOST_FIELDS) as form:
        return {name: str(value) for name, value in form.items()}


@_pages.post(
    f"{_OF_STREAM}/decide",
    dependencies=[*_MAY_READ, Depends(_may_decide), Depends(action_logging("cloudfiles_decide"))],
    response_model=None,
)
def decide(
    request: Request,
    key: Key,
    user: GetUserDep,
    fields: Annotated[dict[str, str], Depends(form_of)],
) -> Response:
    """Answer the task that asks about a change of the schema."""
    task = stream_of(key)
    if task is None:
        raise HTTPException(404, "Airflow knows no stream of this task instance.")
    try:
        mistake = views.read(lambda: views.answer(task, fields, user)).problem
    except HTTPException as refused:
        mistake = str(refused.detail)
    if mistake:
        return _schema(request, key, user, mistake, **fields)
    return RedirectResponse(_path(request, key), 303, headers=_HEADERS)


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
    more |= {"here": _path(request, key), "is_tab": request.path_params["place"] == "tab"}
    return _answer(request, template, key=key, task=task.value, view=view, problem=problem, **more)


def _answer(request: Request, template: str, **values: object) -> HTMLResponse:
    root = str(request.scope.get("root_path", ""))
    return HTMLResponse(page(template, root=root, **values), headers=_HEADERS)


def _path(request: Request, key: TaskKey) -> str:
    root = str(request.scope.get("root_path", ""))
    return root + stream_path(key, str(request.path_params["place"]))
