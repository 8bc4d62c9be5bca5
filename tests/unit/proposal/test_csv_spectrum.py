"""Ingest files of the public suite csv-spectrum, which lie in one folder, by what is proposed.

https://github.com/max-mapper/csv-spectrum: each file has one oddity of CSV; the suite says what its
records are.
"""

from __future__ import annotations

from pathlib import Path

from airflow_cloudfiles.engine.extensions.proposal.propose import propose
from airflow_cloudfiles.engine.extensions.proposal.proposed import Limits, Places, as_yaml
from airflow_cloudfiles.engine.extensions.streams_file import read_streams
from tests.support.ingested import Ingested

SUITE: dict[str, tuple[str, list[tuple[object, ...]]]] = {
    "comma_in_quotes": (
        'first,last,address,city,zip\nJohn,Doe,120 any st.,"Anytown, WW",08123\n',
        [("John", "Doe", "120 any st.", "Anytown, WW", "08123")],
    ),
    "empty": ('a,b,c\n1,"",""\n2,3,4\n', [(1, None, None), (2, 3, 4)]),
    "escaped_quotes": ('a,b\n1,"ha ""ha"" ha"\n3,4\n', [(1, 'ha "ha" ha'), (3, "4")]),
    "json": (
        'key,val\n1,"{""type"": ""Point"", ""coordinates"": [102.0, 0.5]}"\n',
        [(1, '{"type": "Point", "coordinates": [102.0, 0.5]}')],
    ),
    "newlines_crlf": (
        'a,b,c\r\n1,2,3\r\n"Once upon \r\na time",5,6\r\n7,8,9\r\n',
        # Spark's reader, too, makes every end of a line inside of a value the same.
        [("1", 2, 3), ("Once upon \na time", 5, 6), ("7", 8, 9)],
    ),
    "utf": ("a,b,c\n1,2,3\n4,5,ʤ\n", [(1, 2, "3"), (4, 5, "ʤ")]),
}


def test_the_suite_is_ingested_as_it_says(tmp_path: Path) -> None:
    source = tmp_path / "csvs"
    source.mkdir()
    for name, (content, _) in SUITE.items():
        (source / f"{name}.csv").write_bytes(content.encode())
    places = Places(state_root=str(tmp_path / "states"), target_root=str(tmp_path / "tables"))
    file = tmp_path / "streams.yaml"
    file.write_text(as_yaml(propose(str(source), places, Limits())), encoding="utf-8")
    streams = read_streams(file)
    assert set(streams) == set(SUITE)
    for name, stream in streams.items():
        (tmp_path / name).mkdir()
        run = Ingested(tmp_path / name, **stream["options"])
        run.source = Path(stream["source"].removeprefix("file://"))
        run.state, run.target = Path(stream["checkpoint_location"]), Path(stream["target"])
        run.format = stream["format"]
        run.run()
        table = run.table.to_pyarrow_dataset().to_table().drop_columns(["_rescued_data"])
        assert [tuple(row.values()) for row in table.to_pylist()] == SUITE[name][1], name
