"""Fetching a model file from the Hugging Face Hub: resumed where it stopped, verified, and never half there.

Finding the file, credentials and the HTTP client are huggingface_hub's (HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE). Its
download function begins from zero in the next process; the part file and the resuming are therefore here.
"""

from __future__ import annotations

import glob
import hashlib
import re
import time
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import msgspec
from huggingface_hub import constants, get_hf_file_metadata, get_session, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HFValidationError,
    HTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

from stackscope import units
from stackscope.errors import DownloadError, ModelFileError, UsageError
from stackscope.model.download_place import alone, cannot_store, folders_of
from stackscope.model.files import PARTIAL_SUFFIX, require_room, shown
from stackscope.model.header import read_header
from stackscope.model.hub_files import HubFile, place_of

if TYPE_CHECKING:
    from collections.abc import Callable

Stage: TypeAlias = Literal["download", "verify"]
OnProgress: TypeAlias = "Callable[[Stage, int, int], None]"
"""Called with the stage, the bytes done and the bytes in all."""

CHUNK_BYTES: Final = 1 << 20
ATTEMPTS: Final = 5
"""Tries without a single byte of progress before giving up."""

_LOG_IN: Final = "Log in with hf auth login, or set HF_TOKEN to a token that may read it."
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class Downloaded(NamedTuple):
    """A model file that is there now."""

    path: Path
    bytes: int
    sha256: str | None
    """`None`: the file was there already and was not hashed again."""
    how: Literal["downloaded", "present", "unchecked"]
    """`present`: the Hub's version was there already. `unchecked`: so is a file, but the Hub could not be asked."""


class _State(NamedTuple):
    """What the Hub says of a file now."""

    location: str
    """Where its bytes are; may be a signed address on another host."""
    etag: str
    """The SHA-256 of a large file, else a name of its version."""
    commit: str
    size: int


class _Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What is noted beside a downloaded file."""

    etag: str
    commit: str
    sha256: str


def fetch(
    wanted: HubFile,
    *,
    sha256: str | None = None,
    endpoint: str | None = None,
    on_progress: OnProgress | None = None,
    retry_pause_s: float = 1.0,
) -> Downloaded:
    """Make the file present and say where. What is there already, in the Hub's current version, is not fetched again.

    `sha256` is required of the file when given; else the Hub's own, where it states one. `endpoint`: `None` is what
    HF_ENDPOINT names, else the Hub. Raises `UsageError` for a malformed checksum or endpoint, `DownloadError` with a
    sentence for every way the transfer can fail. What was received of a broken transfer is kept, and the next call
    continues there; where nothing was, no folder is left either.
    """
    if sha256 is not None and not _SHA256.fullmatch(sha256.lower()):
        raise UsageError("A SHA-256 has 64 hexadecimal digits.", remedy="Give it in full with --sha256.")
    hub = _require_address(constants.ENDPOINT if endpoint is None else endpoint.rstrip("/"))
    run = _Fetch(wanted, hub, None if sha256 is None else sha256.lower(), on_progress, retry_pause_s)
    if constants.HF_HUB_OFFLINE:
        return run.offline()
    try:
        with folders_of(run.place), alone(run.place):
            return run.online()
    except (HTTPError, HFValidationError) as error:
        raise _sentence(error, wanted, hub) from error
    except OSError as error:
        raise cannot_store(run.place, error) from error


class _Fetch:
    """One download."""

    def __init__(
        self, wanted: HubFile, hub: str, sha256: str | None, on_progress: OnProgress | None, pause_s: float
    ) -> None:
        self.wanted = wanted
        self.hub = hub
        self.place = place_of(wanted)
        self.sha256 = sha256
        self.on_progress = on_progress
        self.pause_s = pause_s
        self.note = self.place.with_name(f".{self.place.name}.json")

    def offline(self) -> Downloaded:
        """What is there without asking anyone. Raises `DownloadError` when nothing is."""
        found = self._local()
        if found is None:
            raise DownloadError(
                f"{shown(self.wanted.file)} is not in the cache, and HF_HUB_OFFLINE forbids fetching it.",
                remedy="Unset HF_HUB_OFFLINE, or name a file that is there: stackscope models list.",
            )
        return self._accepted(found, "unchecked")

    def online(self) -> Downloaded:
        """The Hub's version, fetched unless it is there; without a network, what is there."""
        try:
            state = self._locate()
        except HTTPError as error:
            found = self._local()
            if found is None or _status(error) is not None:
                raise
            return self._accepted(found, "unchecked")
        if self._is_current(state):
            return self._accepted(self.place, "present")
        partial = self._partial(state)
        self._receive(partial, state)
        digest = self._verified(partial, state)
        partial.replace(self.place)
        self._write_note(state, digest)
        return Downloaded(self.place, state.size, digest, "downloaded")

    @property
    def _url(self) -> str:
        name, file, revision = self.wanted
        return hf_hub_url(name, file, revision=revision, endpoint=self.hub)

    def _locate(self, *, expected: _State | None = None) -> _State:
        """Ask the Hub for size, checksum and place of the file: one HEAD request.

        Asked before every transfer, because the address of the place may be signed for an hour.
        """
        found = get_hf_file_metadata(self._url, endpoint=self.hub)
        if found.etag is None or found.commit_hash is None or found.size is None:
            raise DownloadError(
                f"{self.hub} does not answer like the Hugging Face Hub.",
                remedy="Check HF_ENDPOINT, and any proxy or login page in between.",
            )
        if expected is not None and found.etag != expected.etag:
            raise DownloadError(f"{shown(self.wanted.file)} changed on the Hub meanwhile.", remedy="Try again.")
        return _State(found.location, found.etag, found.commit_hash, found.size)

    def _is_current(self, state: _State) -> bool:
        """Whether the file in place is the Hub's; one without a note is hashed and adopted when it is."""
        if not self.place.is_file() or self.place.stat().st_size != state.size:
            return False
        origin = self._origin()
        if origin is not None:
            return origin.etag == state.etag
        if not _SHA256.fullmatch(state.etag) or self._digest(self.place) != state.etag:
            return False
        self._write_note(state, state.etag)
        return True

    def _write_note(self, state: _State, digest: str) -> None:
        self.note.write_bytes(msgspec.json.encode(_Origin(etag=state.etag, commit=state.commit, sha256=digest)))

    def _origin(self) -> _Origin | None:
        try:
            return msgspec.json.decode(self.note.read_bytes(), type=_Origin)
        except (FileNotFoundError, msgspec.DecodeError, RecursionError):
            return None

    def _local(self) -> Path | None:
        """The file in our cache, else in huggingface_hub's own."""
        if self.place.is_file():
            return self.place
        found = try_to_load_from_cache(self.wanted.repository, self.wanted.file, revision=self.wanted.revision)
        return Path(found) if isinstance(found, str) else None

    def _accepted(self, path: Path, how: Literal["present", "unchecked"]) -> Downloaded:
        """A file that is there already, checked against the caller's checksum."""
        digest = None if self.sha256 is None else self._digest(path)
        if digest != self.sha256:
            raise DownloadError(
                f"{shown(path)} is there and has the SHA-256 {digest}, not the one given.",
                remedy="Check the checksum; delete the file to fetch it again.",
            )
        return Downloaded(path, path.stat().st_size, digest, how)

    def _partial(self, state: _State) -> Path:
        """The part file of this version; parts of other versions are of no use any more."""
        version = hashlib.sha256(state.etag.encode()).hexdigest()[:12]
        partial = self.place.with_name(f".{self.place.name}.{version}{PARTIAL_SUFFIX}")
        for other in self.place.parent.glob(f".{glob.escape(self.place.name)}.*{PARTIAL_SUFFIX}"):
            if other != partial:
                other.unlink(missing_ok=True)
        return partial

    def _receive(self, partial: Path, state: _State) -> None:
        """Transfer what is missing, again and again while there is progress."""
        have = partial.stat().st_size if partial.exists() else 0
        if have > state.size:
            partial.unlink()
            have = 0
        try:
            require_room(self.place, state.size - have)
        except ModelFileError as error:
            raise _as_download_error(error) from error
        failures, reason = 0, None
        while have < state.size:
            if failures >= ATTEMPTS:
                raise DownloadError(
                    f"The download of {shown(self.wanted.file)} stopped at {units.data_size(have)} of "
                    f"{units.data_size(state.size)}, and {ATTEMPTS} tries brought nothing more.",
                    remedy="Run the same command later: it continues there.",
                ) from reason
            try:
                if failures > 0:
                    time.sleep(self.pause_s)
                self._transfer(partial, have, self._locate(expected=state))
            except HTTPError as error:
                status = _status(error)
                if status is not None and status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise  # the Hub said no; trying again is no use
                reason = error
            before, have = have, partial.stat().st_size if partial.exists() else 0
            failures = 1 if have > before else failures + 1

    def _transfer(self, partial: Path, have: int, state: _State) -> None:
        """One GET from byte `have` on, appended to the part file."""
        headers = build_hf_headers()
        if urlsplit(state.location).netloc != urlsplit(self._url).netloc:
            headers.pop("authorization", None)  # a signed address elsewhere: the token is none of its business
        headers["Accept-Encoding"] = "identity"
        if have > 0:
            headers["Range"] = f"bytes={have}-"
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with (
            get_session().stream(
                "GET", state.location, headers=headers, timeout=timeout, follow_redirects=True
            ) as answer,
            partial.open("ab") as file,
        ):
            hf_raise_for_status(answer)
            if have > 0 and answer.status_code != HTTPStatus.PARTIAL_CONTENT:  # the server sends all of it again
                file.truncate(0)
                have = 0
            for chunk in answer.iter_bytes(CHUNK_BYTES):
                file.write(chunk)
                have += len(chunk)
                self._tell("download", have, state.size)

    def _verified(self, partial: Path, state: _State) -> str:
        """The SHA-256 of a part file that is whole. One that is not what the Hub promised is deleted."""
        digest = self._digest(partial)
        expected = self.sha256 or (state.etag if _SHA256.fullmatch(state.etag) else None)
        if partial.stat().st_size != state.size or (expected is not None and digest != expected):
            partial.unlink()
            raise DownloadError(
                f"What arrived of {shown(self.wanted.file)} has the SHA-256 {digest}, not {expected}; it was deleted.",
                remedy="Check the checksum and the network (a proxy may change files), then try again.",
            )
        try:
            read_header(partial)
        except ModelFileError as error:
            partial.unlink()
            whole_name = f"{self.wanted.repository}/{shown(self.wanted.file)}"
            raise DownloadError(
                f"{error.message.replace(shown(partial), whole_name)} It was deleted again.",
                remedy="Choose another file of the repository.",
            ) from error
        return digest

    def _digest(self, path: Path) -> str:
        digest, done, size = hashlib.sha256(), 0, path.stat().st_size
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                done += len(chunk)
                self._tell("verify", done, size)
        return digest.hexdigest()

    def _tell(self, stage: Stage, done: int, total: int) -> None:
        if self.on_progress is not None:
            self.on_progress(stage, done, total)


def _require_address(hub: str) -> str:
    try:
        parts = urlsplit(hub)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an IPv6 address in them, or a port that is no number
        is_address = False
    if not is_address:
        remedy = "For example: https://huggingface.co."
        raise UsageError(f"The Hub's address, {hub!r}, is not a web address; HF_ENDPOINT sets it.", remedy=remedy)
    return hub


def _status(error: HTTPError) -> int | None:
    """Status of the Hub's answer. `None`: there was no answer."""
    status: int | None = getattr(getattr(error, "response", None), "status_code", None)
    return status


def _as_download_error(error: ModelFileError) -> DownloadError:
    return DownloadError(error.message, remedy=error.remedy)


def _sentence(error: HTTPError | HFValidationError, wanted: HubFile, hub: str) -> DownloadError:
    """The sentence for an error of huggingface_hub, or of the HTTP client under it."""
    repository, file, revision = wanted
    if isinstance(error, HFValidationError):
        return DownloadError(f"{shown(repository)} is not a repository's name.", remedy="Write OWNER/REPO/FILE.gguf.")
    status = _status(error)
    if isinstance(error, GatedRepoError):
        page = f"{hub}/{repository}"
        return DownloadError(
            f"{repository} is gated: its owner wants terms accepted first.", remedy=f"Accept them at {page}. {_LOG_IN}"
        )
    if isinstance(error, DisabledRepoError):
        return DownloadError(f"The Hub has disabled {repository}.", remedy="Get the model from another repository.")
    if isinstance(error, RevisionNotFoundError):
        return DownloadError(f"{repository} has no revision {revision}.", remedy="Leave --revision out for the newest.")
    if isinstance(error, EntryNotFoundError):
        page = f"{hub}/{repository}/tree/{revision}"
        return DownloadError(f"{repository} has no file {shown(file)}.", remedy=f"See what there is: {page}.")
    if isinstance(error, RepositoryNotFoundError):
        return DownloadError(
            f"There is no repository {repository}, or it is private.", remedy=f"Check the spelling. {_LOG_IN}"
        )
    if status in (401, 403):
        return DownloadError(f"The Hub refuses access to {repository} ({status}).", remedy=_LOG_IN)
    if status == 404:
        return DownloadError(f"{repository} has no file {shown(file)} (404).", remedy="Check the spelling.")
    if status == 429:
        return DownloadError(
            "The Hub says that there were too many requests (429).", remedy="Wait, or log in. " + _LOG_IN
        )
    if status is not None:
        return DownloadError(f"{hub} answered with status {status}.", remedy="Try again later.")
    reason = str(error).strip() or type(error).__name__
    return DownloadError(
        f"{hub} cannot be reached: {reason.rstrip('.')}.",
        remedy="Check the network and the proxy settings; what has arrived is kept, and the next try continues there.",
    )
