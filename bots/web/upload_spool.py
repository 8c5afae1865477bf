"""The upload spool: a folder that stores uploaded files until a run reads them."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from core.domain.errors import RunError
from core.domain.ids import new_id
from core.domain.threads import IncomingFile
from core.failpoints import Failpoint

log = logging.getLogger(__name__)

RETENTION_SECONDS = 7 * 24 * 3600
CLEAN_UP_INTERVAL_SECONDS = 3600.0
_CHUNK_BYTES = 256 * 1024
_STORE = Failpoint("web.spool")


class UploadTooLarge(Exception):
    """Raised if the upload exceeds the size limit. It is not stored."""


async def store_upload(folder: Path, pieces: AsyncIterator[bytes], *, bytes_max: int) -> tuple[str, int]:
    """Stores an upload in a new file. Returns its reference and its size in bytes.

    Raises UploadTooLarge if the upload exceeds `bytes_max`, and OSError if it cannot be written."""
    file_id = new_id()
    part = folder / f"{file_id}.part"
    await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
    try:
        with _STORE:
            size = 0
            await asyncio.to_thread(part.touch, mode=0o600, exist_ok=False)
            file = await asyncio.to_thread(part.open, "wb")
            try:
                async for piece in pieces:
                    size += len(piece)
                    if size > bytes_max:
                        raise UploadTooLarge
                    await asyncio.to_thread(file.write, piece)
            finally:
                await asyncio.to_thread(file.close)
            await asyncio.to_thread(part.replace, folder / file_id)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return f"spool:{file_id}", size


def discard_upload(folder: Path, file_ref: str) -> None:
    """Deletes an upload if it exists."""
    _locate(folder, file_ref).unlink(missing_ok=True)


def delete_old_uploads(folder: Path) -> int:
    """Deletes uploads older than RETENTION_SECONDS. Returns the number of deleted files."""
    if not folder.is_dir():
        return 0
    oldest = time.time() - RETENTION_SECONDS
    stale = [file for file in folder.iterdir() if file.is_file() and file.stat().st_mtime < oldest]
    for file in stale:
        file.unlink(missing_ok=True)
    return len(stale)


async def delete_old_uploads_periodically(folder: Path, *, interval_seconds: float = CLEAN_UP_INTERVAL_SECONDS) -> None:
    """Deletes old uploads immediately and then every `interval_seconds` until cancelled."""
    while True:
        try:
            if removed := await asyncio.to_thread(delete_old_uploads, folder):
                log.info("deleted %d old uploads", removed)
        except OSError as error:
            log.warning("old uploads could not be deleted: %s", error.strerror)
        await asyncio.sleep(interval_seconds)


class UploadSource:
    """Opens uploads by the reference that `store_upload` returns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
        """Yields the content of an upload. Raises RunError if the file is missing or larger than `bytes_max`."""
        path = _locate(self._folder, file.file_ref)
        try:
            opened = await asyncio.to_thread(path.open, "rb")
        except OSError as error:
            raise RunError(
                f"The file {file.name} is no longer there; please send it again.",
                detail=f"{error}: workers on other machines need the same THREADHAND_DATA_DIR",
            ) from error
        try:
            if path.stat().st_size > bytes_max:
                raise RunError(f"The file {file.name} is too large: at most {bytes_max // 2**20} MB are taken.")
            while piece := await asyncio.to_thread(opened.read, _CHUNK_BYTES):
                yield piece
        finally:
            opened.close()


def _locate(folder: Path, file_ref: str) -> Path:
    scheme, _, file_id = file_ref.partition(":")
    try:
        name = str(uuid.UUID(file_id))
    except ValueError:
        name = ""
    if scheme != "spool" or not name:
        raise RunError("This file cannot be opened.", detail=f"no upload: {file_ref[:80]!r}")
    return folder / name
