"""Downloads against a Hub on loopback: whole, resumed, verified, refused, offline."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from stackscope.errors import DownloadError, UsageError
from stackscope.model import download
from stackscope.model.catalog import bundled_target, catalogue
from stackscope.model.download import CHUNK_BYTES, Downloaded, fetch
from stackscope.model.download_place import alone
from stackscope.model.hub_files import parse, place_of
from tests.integration.stub_hub import HubState, stub_hub
from tests.unit.gguf_builder import gguf_bytes, keys
from tests.unit.test_model_files import largest_file
from tests.unit.tiny_models import llama

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "owner/repo/sub/model-Q8_0.gguf"
PATH = "/owner/repo/resolve/main/sub/model-Q8_0.gguf"
MODEL = bundled_target().read_bytes()
DIGEST = hashlib.sha256(MODEL).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def hub() -> Iterator[tuple[str, HubState]]:
    with stub_hub() as (address, state):
        state.files[PATH] = MODEL
        yield address, state


def get(address: str, name: str = NAME, *, sha256: str | None = None) -> Downloaded:
    return fetch(parse(name), endpoint=address, sha256=sha256, retry_pause_s=0.0)


def leftovers(cache: Path) -> set[str]:
    """Files of the cache but models, notes and locks."""
    return {p.name for p in cache.rglob("*") if p.is_file() and p.suffix not in (".gguf", ".json", ".lock")}


def test_a_file_is_fetched_verified_and_listed(hub: tuple[str, HubState], cache: Path) -> None:
    address, _ = hub
    done = get(address)
    assert done == Downloaded(
        cache / "downloaded" / "owner" / "repo" / "sub" / "model-Q8_0.gguf", len(MODEL), DIGEST, "downloaded"
    )
    assert done.path.read_bytes() == MODEL
    assert leftovers(cache) == set()
    assert "owner/repo/sub/model-Q8_0" in [entry.name for entry in catalogue() if entry.kind == "downloaded"]


def test_what_is_there_is_not_fetched_again(hub: tuple[str, HubState]) -> None:
    address, state = hub
    get(address)
    assert get(address) == Downloaded(place_of(parse(NAME)), len(MODEL), None, "present")
    assert state.ranges() == [None]
    assert get(address, sha256=DIGEST.upper()).sha256 == DIGEST
    for content in (gguf_bytes(*llama()), gguf_bytes(*llama())[:-1] + b"x"):  # the Hub's file changes, even in size
        state.files[PATH] = content
        changed = get(address)
        assert changed.how == "downloaded"
        assert changed.path.read_bytes() == content


def test_a_file_that_somebody_put_there_is_adopted_when_it_is_the_hub_s(hub: tuple[str, HubState]) -> None:
    address, state = hub
    place = place_of(parse(NAME))
    place.parent.mkdir(parents=True)
    place.write_bytes(MODEL)
    assert get(address).how == "present"
    place.with_name(f".{place.name}.json").unlink()
    place.write_bytes(b"x" + MODEL[1:])
    assert get(address).how == "downloaded"
    assert state.ranges() == [None]


def test_a_broken_transfer_goes_on_where_it_broke(hub: tuple[str, HubState], cache: Path) -> None:
    """Breaks after 3 MB and then 2 MB more; whole chunks of 1 MiB are kept."""
    address, state = hub
    state.breaks = [3_000_000, 2_500_000]
    assert get(address).sha256 == DIGEST
    kept = [2 * CHUNK_BYTES, 4 * CHUNK_BYTES]
    assert state.ranges() == [None, *(f"bytes={n}-" for n in kept)]
    assert leftovers(cache) == set()


def test_a_transfer_that_breaks_often_but_gets_on_is_not_given_up(hub: tuple[str, HubState]) -> None:
    address, state = hub
    state.breaks = [1_100_000] * (download.ATTEMPTS + 3)
    assert get(address).sha256 == DIGEST
    assert len(state.ranges()) == download.ATTEMPTS + 4


def test_a_transfer_that_brings_nothing_gives_up_and_goes_on_next_time(hub: tuple[str, HubState], cache: Path) -> None:
    address, state = hub
    state.breaks = [3_000_000] + [0] * 20
    with pytest.raises(DownloadError, match=r"stopped at 2\.10 MB of 11\.7 MB"):
        get(address)
    assert len(state.ranges()) == 1 + download.ATTEMPTS - 1
    assert [entry.kind for entry in catalogue() if entry.kind not in ("bundled", "downloaded")] == ["unfinished"]
    state.breaks = []
    assert get(address).sha256 == DIGEST
    assert state.ranges()[-1] == f"bytes={2 * CHUNK_BYTES}-"
    assert leftovers(cache) == set()


def test_a_killed_download_goes_on_in_the_next_process(hub: tuple[str, HubState], cache: Path) -> None:
    address, state = hub
    code = (
        "import os, signal, sys\n"
        "from stackscope.model.download import fetch\n"
        "from stackscope.model.hub_files import parse\n"
        "die = lambda stage, done, total: done >= 5 * 2**20 and os.kill(os.getpid(), signal.SIGKILL)\n"
        f"fetch(parse({NAME!r}), on_progress=die)\n"
    )
    environment = {**os.environ, "HF_ENDPOINT": address}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not list(cache.rglob("*.gguf"))
    assert get(address).sha256 == DIGEST
    assert state.ranges() == [None, f"bytes={5 * CHUNK_BYTES}-"]


def test_a_server_without_ranges_sends_all_of_it_again(hub: tuple[str, HubState]) -> None:
    address, state = hub
    state.ignores_ranges = True
    state.breaks = [3_000_000]
    assert get(address).sha256 == DIGEST


def test_parts_of_another_version_are_dropped(hub: tuple[str, HubState], cache: Path) -> None:
    address, state = hub
    state.breaks = [3_000_000] + [0] * 20
    with pytest.raises(DownloadError):
        get(address)
    state.breaks = []
    state.files[PATH] = gguf_bytes(*llama())
    get(address)
    assert state.ranges()[-1] is None
    assert leftovers(cache) == set()


def test_a_whole_part_file_is_not_fetched_but_verified(hub: tuple[str, HubState], cache: Path) -> None:
    address, state = hub
    state.breaks = [3_000_000] + [0] * 20
    with pytest.raises(DownloadError):
        get(address)
    (part,) = cache.rglob("*.partial")
    state.requests.clear()
    part.write_bytes(MODEL)
    assert get(address).sha256 == DIGEST
    assert state.ranges() == []


def test_a_part_file_that_is_too_long_is_dropped(hub: tuple[str, HubState], cache: Path) -> None:
    address, state = hub
    state.breaks = [3_000_000] + [0] * 20
    with pytest.raises(DownloadError):
        get(address)
    (part,) = cache.rglob("*.partial")
    part.write_bytes(MODEL + b"more")
    state.breaks = []
    assert get(address).sha256 == DIGEST
    assert state.ranges()[-1] is None


@pytest.mark.parametrize("spoil", [b"GGUF" + bytes(len(MODEL) - 4), MODEL[:-9] + b"different"])
def test_bytes_that_are_not_the_hub_s_are_deleted(hub: tuple[str, HubState], cache: Path, spoil: bytes) -> None:
    address, state = hub
    state.breaks = [3_000_000] + [0] * 20
    with pytest.raises(DownloadError):
        get(address)
    (part,) = cache.rglob("*.partial")
    part.write_bytes(spoil)
    with pytest.raises(DownloadError, match=f"not {DIGEST}; it was deleted"):
        get(address)
    assert leftovers(cache) == set()
    assert not list(cache.rglob("*.gguf"))


def test_the_caller_s_checksum_decides(hub: tuple[str, HubState], cache: Path) -> None:
    address, state = hub
    state.is_large = False  # the Hub then states no SHA-256
    with pytest.raises(DownloadError, match="it was deleted"):
        get(address, sha256="0" * 64)
    assert not list(cache.rglob("*.gguf"))
    assert get(address, sha256=DIGEST).sha256 == DIGEST
    with pytest.raises(DownloadError, match="not the one given"):
        get(address, sha256="0" * 64)
    assert list(cache.rglob("*.gguf"))  # a file that was there is not deleted for a mistyped checksum
    with pytest.raises(UsageError, match="64 hexadecimal"):
        get(address, sha256="abc")


def test_what_is_no_model_is_refused_even_when_the_hub_has_it(hub: tuple[str, HubState], cache: Path) -> None:
    address, state = hub
    state.files[PATH] = b"<html>nothing here</html>"
    with pytest.raises(DownloadError, match=r"owner/repo/sub/model-Q8_0\.gguf is a web page"):
        get(address)
    assert leftovers(cache) == set()
    assert not list(cache.rglob("*.gguf"))


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (404, "EntryNotFound", "has no file sub/model-Q8_0.gguf"),
        (404, "RepoNotFound", "There is no repository owner/repo, or it is private"),
        (401, "", "refuses access"),
        (404, "RevisionNotFound", "has no revision main"),
        (403, "GatedRepo", "is gated"),
        (401, "GatedRepo", "is gated"),
        (403, "", "refuses access"),
        (429, "", "too many requests"),
        (500, "", "answered with status 500"),
        (404, "", "has no file"),
    ],
)
def test_refusals(hub: tuple[str, HubState], cache: Path, status: int, code: str, says: str) -> None:
    address, state = hub
    state.refusals[PATH] = (status, code)
    with pytest.raises(DownloadError, match=says) as caught:
        get(address)
    assert caught.value.remedy is not None
    assert "\n" not in str(caught.value)
    assert state.ranges() == []
    assert leftovers(cache) == set()


def test_what_fails_leaves_no_folders(hub: tuple[str, HubState], cache: Path) -> None:
    address, state = hub
    state.files["/owner/repo/resolve/main/page.gguf"] = b"<html>" * 100
    for name in ("owner/repo/none.gguf", "nobody/nothing/deep/er/none.gguf", "owner/repo/page.gguf"):
        with pytest.raises(DownloadError):
            get(address, name)
        assert not cache.exists()
    with pytest.raises(DownloadError):
        get("http://127.0.0.1:9")
    assert not cache.exists()
    get(address)
    with pytest.raises(DownloadError):
        get(address, "owner/repo/sub/none.gguf")
    assert place_of(parse(NAME)).is_file()


def test_a_refusal_in_the_middle_is_not_tried_again(hub: tuple[str, HubState]) -> None:
    address, state = hub
    state.get_status = 403
    with pytest.raises(DownloadError, match="refuses access"):
        get(address)
    assert len(state.ranges()) == 1


def test_a_hub_in_trouble_is_tried_again(hub: tuple[str, HubState]) -> None:
    address, state = hub
    state.get_status = 503
    with pytest.raises(DownloadError, match=r"stopped at 0 B of 11\.7 MB, and 5 tries"):
        get(address)
    assert len(state.ranges()) == download.ATTEMPTS


def test_a_cache_that_cannot_be_written_is_one_sentence(hub: tuple[str, HubState], cache: Path) -> None:
    address, _ = hub
    cache.write_bytes(b"a file where a folder is wanted")
    with pytest.raises(DownloadError, match="cannot be written"):
        get(address)


def test_a_web_server_that_is_no_hub(hub: tuple[str, HubState]) -> None:
    address, state = hub
    state.is_hub = False
    with pytest.raises(DownloadError, match="does not answer like the Hugging Face Hub"):
        get(address)


def test_no_network(hub: tuple[str, HubState]) -> None:
    address, _ = hub
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1:9 cannot be reached"):
        get("http://127.0.0.1:9")
    get(address)
    found = get("http://127.0.0.1:9")  # the file is there: it has to do
    assert found.how == "unchecked"
    assert found.path.read_bytes() == MODEL


@pytest.mark.parametrize("address", ["", "hub", "ftp://hub", "http://", "http://[x", "http://hub:port"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(UsageError, match="not a web address"):
        get(address)


def test_names_that_the_hub_would_not_take(hub: tuple[str, HubState]) -> None:
    address, _ = hub
    with pytest.raises(DownloadError, match="not a repository's name"):
        get(address, "owner/re--po..x/m.gguf")


def test_the_token_stays_with_the_hub(hub: tuple[str, HubState], monkeypatch: pytest.MonkeyPatch) -> None:
    address, state = hub
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with stub_hub() as (cdn, store):
        state.cdn = cdn
        store.files[PATH] = MODEL
        assert get(address).sha256 == DIGEST
        assert store.requests
        assert all("authorization" not in headers for _, _, headers in store.requests)
    assert all(headers.get("authorization") == "Bearer hf_secret" for method, _, headers in state.requests)


def test_a_limit_on_the_size_of_a_file_is_one_sentence_and_the_part_is_kept(
    hub: tuple[str, HubState], cache: Path
) -> None:
    address, state = hub
    with pytest.raises(DownloadError, match="limit for one file"), largest_file(3 * CHUNK_BYTES):
        get(address)
    (part,) = cache.rglob("*.partial")
    assert part.stat().st_size == 3 * CHUNK_BYTES
    assert get(address).sha256 == DIGEST
    assert state.ranges()[-1] == f"bytes={3 * CHUNK_BYTES}-"


def test_two_processes_do_not_write_one_part_file(hub: tuple[str, HubState]) -> None:
    address, _ = hub
    place = place_of(parse(NAME))
    place.parent.mkdir(parents=True)
    with alone(place), pytest.raises(DownloadError, match="Another process is downloading"):
        get(address)
    assert get(address).sha256 == DIGEST


def test_progress_counts_to_the_end(hub: tuple[str, HubState]) -> None:
    address, _ = hub
    seen: list[tuple[str, int, int]] = []
    fetch(parse(NAME), endpoint=address, on_progress=lambda *step: seen.append(step))
    assert list(dict.fromkeys(stage for stage, _, _ in seen)) == ["download", "verify"]
    assert {total for _, _, total in seen} == {len(MODEL)}
    assert seen[-1] == ("verify", len(MODEL), len(MODEL))
    assert max(done for stage, done, _ in seen if stage == "download") == len(MODEL)


def cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stackscope", "models", "get", *arguments]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def test_the_command_honours_the_endpoint_and_offline_mode(hub: tuple[str, HubState]) -> None:
    address, state = hub
    refused = cli(NAME, HF_ENDPOINT=address, HF_HUB_OFFLINE="1")
    assert refused.returncode == DownloadError.exit_code
    assert "not in the cache, and HF_HUB_OFFLINE forbids fetching it" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert state.requests == []
    fetched = cli(NAME, "--json", "--sha256", DIGEST, HF_ENDPOINT=address)
    assert fetched.returncode == 0, fetched.stderr
    assert json.loads(fetched.stdout) == {
        "path": str(place_of(parse(NAME))), "bytes": len(MODEL), "sha256": DIGEST, "how": "downloaded",
    }  # fmt: skip
    assert fetched.stderr == ""
    asked = len(state.requests)
    again = cli(NAME, HF_ENDPOINT=address, HF_HUB_OFFLINE="1")
    assert again.returncode == 0
    assert "was not compared with the Hub's" in again.stdout
    assert len(state.requests) == asked


def test_a_projector_is_fetched_with_a_word_of_warning(hub: tuple[str, HubState]) -> None:
    address, state = hub
    state.files[PATH] = gguf_bytes(keys("clip"))
    done = cli(NAME, HF_ENDPOINT=address)
    assert done.returncode == 0
    assert "mmproj" in done.stderr
