"""What can be refused from arguments is refused before anything is made or measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from typer.testing import CliRunner

from stackscope.cli import app
from stackscope.commands import calibrate
from stackscope.commands.experiment_models import ModelMaker
from stackscope.model.catalog import bundled_target

if TYPE_CHECKING:
    from pathlib import Path

ALONE: Final = ("--model", "lab-target-f16")


@pytest.fixture(autouse=True)
def _nothing_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With an empty cache, every experiment would have to make its models; making one fails the test."""

    def made(*arguments: Any, **_: Any) -> None:
        raise AssertionError(f"it was made: {arguments}")

    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("stackscope.model.inflate.inflate", made)
    monkeypatch.setattr("stackscope.model.quantise.quantise", made)
    monkeypatch.setattr(calibrate, "measure", made)


def refused(*arguments: str) -> tuple[int, str]:
    """(exit code, the one line)"""
    done = CliRunner().invoke(app, list(arguments))
    assert not isinstance(done.exception, AssertionError), done.exception
    assert done.exit_code != 0
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.exit_code, done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("ablate", "--factors", "foo"), 2, "'foo' is no setting with a value"),
        (("ablate", "--factors", "foo=1"), 2, "there is no setting foo"),
        (("ablate", "--factors", "weights=Q8_0,foo=1"), 2, "there is no setting foo"),
        (("ablate", "--factors", "weights=Q9"), 2, "There is no type Q9"),
        (("ablate", "--factors", "slots=0"), 2, "slots=0 must be a whole number from 1 to 255"),
        (("ablate", "--factors", "weights=Q8_0,slots=4,threads=1,prefix_cache=on,kv_type=q8_0,shadows=on", "--full"), 2,
         "All combinations of 6 settings"),
        (("ablate", "--draft", "nowhere.gguf"), 3, "nowhere.gguf"),
        (("ablate", "--quick", "--folder", "{}/file"), 8, "cannot be used: Not a directory"),
        (("ablate", *ALONE, "--factors", "weights=Q8_0,speculation=draft"), 5, "needs a draft model"),
        (("sweep", "--over", "foo=1,2"), 2, "there is no setting foo"),
        (("sweep", "--over", "weights=Q8_0,Q9"), 2, "There is no type Q9"),
        (("sweep", "--over", "weights=Q8_0"), 2, "There is only one configuration"),
        (("sweep", "--over", "weights=F16,Q8_0", "--objectives", "fame"), 2, "fame"),
        (("sweep", "--over", "weights=F16,Q8_0", "--blocks", "0"), 2, "There cannot be 0 blocks"),
        (("sweep", "--over", "weights=F16,Q8_0", "--folder", "{}/file"), 8, "cannot be used: Not a directory"),
        (("learn", "99"), 2, "There is no lesson 99"),
        (("learn", "1", "-o", "{}/file/x.json"), 1, "x.json"),
        (("learn", "1", "--draft", "nowhere.gguf"), 3, "nowhere.gguf"),
        (("learn", "3", *ALONE), 2, "This lesson takes a draft model"),
        (("calibrate", "--threads", "0"), 2, "--threads must be a whole number from 1 to 512"),
    ],
)  # fmt: skip
def test_it_is_refused_first(arguments: tuple[str, ...], code: int, says: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found, told = refused(*(argument.format(tmp_path) for argument in arguments))
    assert says in told
    assert found == code


def test_ceilings_that_could_not_be_kept_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STACKSCOPE_CACHE", str(tmp_path / "file"))
    assert refused("calibrate")[1].startswith("stackscope: The ceilings cannot be kept in ")


def test_models_are_named_at_once_and_made_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr("stackscope.model.inflate.inflate", lambda source, size: made.append((source, size)))
    monkeypatch.setattr("stackscope.model.quantise.quantise", lambda source, kind, **_: made.append((source, kind)))
    said: list[str] = []
    maker = ModelMaker(said.append)
    target = maker.inflated_target()
    lighter = maker.weights(str(target), "Q8_0")
    assert maker.weights(str(target), "Q8_0") == lighter
    assert made == said == []
    maker.make()
    assert made == [(bundled_target(), 200.0), (target, "Q8_0")]
    assert said == [f"making {target.name}", f"making {lighter.rpartition('/')[2]}"]
    maker.make()
    assert len(made) == 2
