"""How does what pyiceberg writes to a local disk survive a power failure?

pyiceberg writes a table's files without syncing them, and the catalog's database syncs itself:
after a power failure it may name metadata that never reached the disk, and the table is gone. Here
each file, its name and its folders are synced before the catalog learns of it.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from airflow_cloudfiles.engine.storage.local_disk import make_folders, sync_folder

if TYPE_CHECKING:
    from pyiceberg.io import OutputStream


class DurableFileIO(PyArrowFileIO):
    """pyiceberg's own reading and writing, but durable on local disks."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file that is to be written."""
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _LocalOutput(location, path, self.fs_by_scheme(scheme, None))


class _LocalOutput(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - pyiceberg's
        path = Path(self._path)
        make_folders(os.fsencode(path.parent))
        return cast("OutputStream", _SyncedFile(path, "wb" if overwrite else "xb"))


class _SyncedFile(io.FileIO):
    """Is on the disk, with its name, when it is closed."""

    def close(self) -> None:
        if self.closed:
            return
        os.fsync(self.fileno())
        super().close()
        sync_folder(os.fsencode(Path(str(self.name)).parent))

    def write(self, content: Any, /) -> int:
        """Write all of it: a plain file may take a part only."""
        left = memoryview(content).cast("B")
        size = left.nbytes
        while left.nbytes:
            left = left[super().write(left) or 0 :]
        return size
