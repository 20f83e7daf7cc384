"""Home folders: of users that have none, and of users that there are none of."""

from __future__ import annotations

import pwd
import shutil
from pathlib import Path

import pytest

from stackscope import homes
from stackscope.commands.folder_examinations import of_folders
from stackscope.config import resolve as resolve_options
from stackscope.config import settings_file
from stackscope.errors import UsageError
from stackscope.hardware import ceilings
from stackscope.homes import NoHomeError, expanded, expanded_text
from stackscope.model.catalog import bundled_target, cache_folder, catalogue, resolve
from stackscope.session.paths import known_folders, recording_folder
from tests.unit.test_cli import invoke

STORY = Path(__file__).parents[2] / "profiles" / "story.jsonl.zst"
VARIABLES = ("HOME", "STACKSCOPE_CACHE", "STACKSCOPE_CONFIG", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
NOBODY = "~nobodyhere/x"


def unknown(_id: object) -> None:
    raise KeyError


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container under a numeric uid."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.usefixtures("homeless")
class TestWithoutHome:
    def test_what_needs_a_folder_says_what_to_set(self) -> None:
        with pytest.raises(NoHomeError, match=r"HOME is not set.* Set HOME, or STACKSCOPE_CACHE\."):
            cache_folder()
        with pytest.raises(NoHomeError, match=r"Set HOME, or STACKSCOPE_CACHE\."):
            ceilings.require_place()
        with pytest.raises(NoHomeError, match=r"Set HOME, or XDG_DATA_HOME\."):
            recording_folder(package=Path("/nowhere/at/all"))
        with pytest.raises(UsageError, match=r"~/x names no place: HOME is not set"):
            expanded("~/x")

    def test_older_releases_of_platformdirs_are_seen_through(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("platformdirs.user_cache_path", lambda *_a, **_k: Path("~/.cache/stackscope"))
        with pytest.raises(NoHomeError):
            homes.user_folder("cache")

    def test_what_only_reads_finds_nothing_there(self) -> None:
        assert settings_file(None, {}) is None
        assert [entry.kind for entry in catalogue()] == ["bundled", "bundled"]
        assert resolve("lab-target-f16") == bundled_target()
        assert list(ceilings.known()) == []
        assert known_folders(package=Path("/nowhere/at/all")) == ()
        assert resolve_options({}).engine.model == ""

    @pytest.mark.parametrize(
        "arguments",
        [
            ("report", str(STORY)),
            ("replay", str(STORY)),
            ("models", "show", str(bundled_target())),
            ("models", "list"),
            ("learn", "1", "--show"),
            ("explain", "--params", "8B", "--bits", "16", "--bandwidth", "1TB/s", "--flops", "100TFLOP/s"),
        ],
    )
    def test_commands_that_read_work(self, arguments: tuple[str, ...]) -> None:
        status, said, _ = invoke(*arguments)
        assert status == 0
        assert said

    def test_the_doctor_says_it(self) -> None:
        _, models, settings = of_folders()
        assert models.holds is False
        assert models.remedy == "Set HOME, or STACKSCOPE_CACHE."
        assert settings.holds
        assert "no home folder" in settings.value


class TestUnknownUsers:
    def test_a_path_of_theirs_names_no_place(self) -> None:
        with pytest.raises(UsageError, match=r"~nobodyhere/x names no place: there is no user nobodyhere\."):
            expanded(NOBODY)

    def test_other_paths_stay(self) -> None:
        assert expanded("~/x") == Path.home() / "x"
        assert expanded_text("~/x/").endswith("/x/")
        assert expanded_text("./~nobodyhere") == "./~nobodyhere"
        assert expanded("a~b") == Path("a~b")

    @pytest.mark.parametrize("name", ["workload", "model", "draft", "record"])
    def test_options_say_which(self, name: str) -> None:
        with pytest.raises(UsageError, match=rf"--{name}: ~nobodyhere/x names no place"):
            resolve_options({name: NOBODY})

    def test_settings_files_say_where(self, tmp_path: Path) -> None:
        file = tmp_path / "own.toml"
        file.write_text(f'[engine]\nmodel = "{NOBODY}"\n')
        with pytest.raises(UsageError, match=r"own.toml: model in \[engine\]: ~nobodyhere/x names no place"):
            resolve_options({}, config=file)

    def test_variables_say_which(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(UsageError, match=r"STACKSCOPE_CONFIG: ~nobodyhere/x names no place"):
            settings_file(None, {"STACKSCOPE_CONFIG": NOBODY})
        monkeypatch.setenv("STACKSCOPE_CACHE", NOBODY)
        with pytest.raises(UsageError, match=r"STACKSCOPE_CACHE: ~nobodyhere/x names no place"):
            cache_folder()
        _, models, _ = of_folders()
        assert not models.holds
        assert "STACKSCOPE_CACHE" in models.value

    @pytest.mark.parametrize(
        "arguments",
        [
            ("models", "show", NOBODY),
            ("models", "inflate", NOBODY, "30"),
            ("models", "inflate", "lab-target-f16", "30", "-o", NOBODY),
            ("run", "--config", NOBODY),
            ("replay", NOBODY),
            ("report", str(STORY), "-o", f"{NOBODY}.md"),
            ("export", str(STORY), "--to", "json", "-o", f"{NOBODY}.json"),
            ("export", NOBODY, "--to", "json", "-o", "x.json"),
            ("compare", str(STORY), NOBODY),
            ("score", NOBODY),
            ("sweep", NOBODY),
            ("sweep", "--folder", NOBODY),
            ("ablate", "--folder", NOBODY),
            ("learn", "1", "-o", NOBODY),
        ],
    )
    def test_no_command_makes_a_folder_of_that_name(
        self, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        story = tmp_path / STORY.name
        shutil.copy(STORY, story)
        monkeypatch.chdir(tmp_path)
        status, said = ended(*arguments)
        assert status == UsageError.exit_code
        assert "there is no user nobodyhere" in said
        assert list(tmp_path.iterdir()) == [story]


def ended(*arguments: str) -> tuple[int, str]:
    """(exit code, what was said) of the command line, whose options are read outside of any verb."""
    from typer.testing import CliRunner

    from stackscope.cli import app

    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, UsageError):
        return result.exception.exit_code, str(result.exception)
    return result.exit_code, result.stderr
