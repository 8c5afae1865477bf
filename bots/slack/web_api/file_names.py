"""What files are called where several workspaces are served: with their workspace, under a seal.

Slack keeps the files of workspaces with tokens of their own apart. To an organisation's token it gives those of all its
workspaces, so there the seal alone says that a workspace has been shown the file.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.domain.threads import IncomingFile

_NAME = re.compile(r"(?P<team>T[A-Z0-9]{1,40})(\.(?P<seal>[0-9a-f]{64}))?/(?P<ref>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """`file` as its workspace calls it. `is_sealed`: the workspace was shown it, by our own seal."""

    team_id: str
    is_sealed: bool
    file: IncomingFile


class FileNames:
    """`keys` are secrets, the newest first: it seals, all of them are accepted."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(keys)

    def named(self, team_id: str, file: IncomingFile) -> IncomingFile:
        """The file of a workspace, as it is called from now on."""
        seal = _seal(self._keys[0], team_id, file.file_ref)
        return replace(file, file_ref=f"{team_id}.{seal}/{file.file_ref}")

    def read(self, file: IncomingFile) -> NamedFile | None:
        """Whose it is; None: the name is none of ours. Names without a seal are from before there was one."""
        found = _NAME.fullmatch(file.file_ref)
        if found is None:
            return None
        team_id, ref, seal = found["team"], found["ref"], found["seal"] or ""
        is_sealed = any(hmac.compare_digest(_seal(key, team_id, ref), seal) for key in self._keys)
        if seal and not is_sealed:
            return None
        return NamedFile(team_id=team_id, is_sealed=is_sealed, file=replace(file, file_ref=ref))


def _seal(key: str, team_id: str, ref: str) -> str:
    return hmac.new(
        key.encode(), f"slack-file:{team_id}/{ref}".encode(), hashlib.sha256
    ).hexdigest()
