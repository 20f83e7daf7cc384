"""Framing and encoding of the two pipes between the engine process and its parent."""

from __future__ import annotations

import json
import math
import typing
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackscope import errors
from stackscope.engine import wire
from stackscope.engine.devices import Device
from stackscope.errors import EngineError, StackscopeError, ToggleRefusedError, UsageError
from stackscope.records import Log, Mark
from stackscope.session.format import encode, encode_all
from stackscope.toggles import EngineConfig
from stackscope.workload.spec import Length, WorkloadSpec
from tests.unit.fake_engine import SUMMARY

COMMANDS: list[wire.AnyCommand] = [
    wire.Start(
        config=EngineConfig(model="/models/größe.gguf", tensor_split=(0.5, 0.5)),
        workload=WorkloadSpec(name="chat", turns=Length.uniform(1, 4)),
        origin_ns=2**62,
        record_text=True,
    ),
    wire.Begin(),
    wire.Reconfigure(changes={"slots": 4, "draft_model": None, "tensor_split": [1.0]}),
    wire.SetConcurrency(concurrency=3),
    wire.SetRate(rate=0.5),
    wire.Cancel(request=7),
    wire.SetMark(label="warm\nup"),
    wire.ShowText(shown=True),
    wire.Quit(drain=True),
]
MESSAGES: list[wire.AnyMessage] = [
    wire.Loading(what="target.gguf", fraction=0.25),
    wire.Ready(
        library="llama.cpp b1",
        model=SUMMARY,
        draft=None,
        config=EngineConfig(),
        capabilities=("phases",),
        context_tokens=4096,
        devices=(Device(name="CUDA0", description="NVIDIA H100", type="gpu", pci_id="0000:01:00.0"),),
    ),
    wire.Text(gained=((1, "line\n!{"), (2, "é"))),
    wire.Dropped(display=3),
    wire.Note(text="Two prompts were shortened."),
    wire.Refused(text="No.", remedy="Ask again."),
    wire.Failed(error="EngineError", text="Broken."),
    wire.Done(reason="interrupted"),
]


def test_every_kind_is_covered_below() -> None:
    assert {type(c) for c in COMMANDS} == set(typing.get_args(wire.AnyCommand))
    assert {type(m) for m in MESSAGES} == set(typing.get_args(wire.AnyMessage))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: type(c).__name__)
def test_commands_survive_the_pipe_as_one_line_each(command: wire.AnyCommand) -> None:
    line = wire.encode_command(command)
    assert line.count(b"\n") == 1
    assert wire.decode_command(line) == command


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_messages_survive_the_pipe_and_are_no_records(message: wire.AnyMessage) -> None:
    line = wire.encode_message(message)
    assert line.count(b"\n") == 1
    assert line.startswith(wire.CONTROL)
    assert wire.decode_message(line) == message


@pytest.mark.parametrize(
    "line", [b"", b"{}", b'{"command":"sing"}', b'{"command":"quit","drain":"yes"}', b"\xff", b"["]
)
def test_what_is_no_command_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        wire.decode_command(line)


def test_a_path_that_is_not_utf8_is_refused_in_a_command_and_blurred_in_a_message() -> None:
    config = EngineConfig(model="caf\udce9.gguf")
    with pytest.raises(UsageError, match="UTF-8"):
        wire.encode_command(wire.Start(config=config, workload=WorkloadSpec(name="chat"), origin_ns=0))
    assert wire.decode_message(wire.encode_message(wire.Loading(what="caf\udce9", fraction=1))) == wire.Loading(
        what="caf?", fraction=1
    )


@pytest.mark.parametrize(
    "command",
    [
        wire.SetRate(rate=math.nan),
        wire.Reconfigure(changes={"synthetic_acceptance": math.inf}),
        wire.Start(config=EngineConfig(tensor_split=(1.0, math.nan)), workload=WorkloadSpec(name="chat"), origin_ns=0),
    ],
)
def test_what_is_no_number_is_not_sent_as_null(command: wire.AnyCommand) -> None:
    with pytest.raises(UsageError, match="not a finite number"):
        wire.encode_command(command)


ERRORS = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, StackscopeError)]


class TestErrors:
    @pytest.mark.parametrize("kind", ERRORS)
    def test_an_error_arrives_as_it_left(self, kind: type[StackscopeError]) -> None:
        sent = kind("It broke.", remedy="Mend it.")
        got = wire.error_of(wire.failure_of(sent))
        assert type(got) is kind
        assert (got.message, got.remedy, got.exit_code) == ("It broke.", "Mend it.", kind.exit_code)

    def test_an_error_that_only_the_engine_knows_is_an_engine_error(self) -> None:
        class LocalError(ToggleRefusedError):
            pass

        assert type(wire.error_of(wire.failure_of(LocalError("No.")))) is EngineError


class TestReconfigure:
    def test_changes_are_made_on_the_configuration_in_force(self) -> None:
        before = EngineConfig(model="a.gguf", slots=8, tensor_split=(1.0,))
        command = wire.reconfigure({"slots": 2, "cache_tokens": 100})
        arrived = wire.decode_command(wire.encode_command(command))
        assert isinstance(arrived, wire.Reconfigure)
        assert wire.applied(before, arrived.changes) == EngineConfig(
            model="a.gguf", slots=2, cache_tokens=100, tensor_split=(1.0,)
        )

    def test_no_changes_are_no_change(self) -> None:
        assert wire.applied(EngineConfig(slots=3), {}) == EngineConfig(slots=3)

    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"slot": 2}, "no setting slot"),
            ({"slots": "two"}, "slots"),
            ({"slots": 2.5}, "slots"),
            ({"speculation": "magic"}, "speculation"),
            ({"synthetic_acceptance": "high"}, "synthetic_acceptance"),
        ],
    )
    def test_what_cannot_be_a_setting_is_refused_before_it_is_sent(
        self, changes: dict[str, object], match: str
    ) -> None:
        with pytest.raises(UsageError, match=match):
            wire.reconfigure(changes)


class TestSplitter:
    def test_records_stay_together_and_control_lines_stand_alone(self) -> None:
        one, two, three = (encode(Mark(at_ns=i, label=f"m{i}")) for i in range(3))
        done = wire.encode_message(wire.Done(reason="done"))
        text = wire.encode_message(wire.Text(gained=((1, "\n!"),)))
        splitter = wire.LineSplitter()
        assert splitter.feed(one + two + text + done + three) == [one + two, text, done, three]

    def test_a_line_is_held_until_it_is_whole(self) -> None:
        line = encode(Log(at_ns=0, text="x"))
        splitter = wire.LineSplitter()
        assert splitter.feed(line[:-1]) == []
        assert splitter.partial == line[:-1]
        assert splitter.feed(b"\n") == [line]
        assert splitter.partial == b""

    def test_nothing_is_nothing(self) -> None:
        assert wire.LineSplitter().feed(b"") == []

    @given(
        items=st.lists(
            st.one_of(st.text(max_size=20).map(lambda t: Mark(at_ns=1, label=t)), st.sampled_from(MESSAGES))
        ),
        cuts=st.lists(st.integers(0, 2_000), max_size=20),
    )
    def test_however_the_stream_is_cut_the_lines_are_the_same(
        self, items: list[Mark | wire.AnyMessage], cuts: list[int]
    ) -> None:
        lines = [encode(i) if isinstance(i, Mark) else wire.encode_message(i) for i in items]
        stream = b"".join(lines)
        bounds = [0, *sorted(c for c in cuts if c < len(stream)), len(stream)]
        splitter = wire.LineSplitter()
        stretches = [s for a, b in pairwise(bounds) for s in splitter.feed(stream[a:b])]
        assert splitter.partial == b""
        assert b"".join(stretches) == stream
        seen = []
        for stretch in stretches:
            assert stretch.endswith(b"\n")
            if stretch.startswith(wire.CONTROL):
                assert stretch.count(b"\n") == 1
                seen.append(stretch)
            else:
                seen += [line + b"\n" for line in stretch.removesuffix(b"\n").split(b"\n")]
                assert wire.CONTROL not in {line[:1] for line in stretch.split(b"\n")}
        assert seen == lines


@given(st.text(), st.integers(0, 2**63 - 1))
def test_a_record_line_is_a_json_object_on_one_line(label: str, at_ns: int) -> None:
    line = encode_all([Mark(at_ns=at_ns, label=label)])
    assert line.count(b"\n") == 1
    assert line.startswith(b'{"type":"mark"')
    assert json.loads(line) == {"type": "mark", "at_ns": at_ns, "label": label}
