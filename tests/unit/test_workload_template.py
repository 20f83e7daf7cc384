"""Chat templates: rendered as their models know them, adapted where they refuse, harmless where they are hostile."""

from __future__ import annotations

import time

import pytest

from stackscope.errors import WorkloadError
from stackscope.workload.entries import Message
from stackscope.workload.template import ChatFormat
from tests.workload_fakes import CHATML, ByteTokenizer

SYSTEM = Message("system", "Be brief.")
HELLO = Message("user", "Hello <b> & 'you'")
ANSWER = Message("assistant", "Hé!")
MORE = Message("user", "More.")

NO_SYSTEM = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>model\n' }}{% endif %}"
)


def form(template: str | None) -> ChatFormat:
    return ChatFormat(ByteTokenizer(template))


def test_messages_become_the_template_s_text() -> None:
    assert form(CHATML).text([SYSTEM, HELLO, ANSWER, MORE]) == (
        "<s><|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHello <b> & 'you'<|im_end|>\n"
        "<|im_start|>assistant\nHé!<|im_end|>\n"
        "<|im_start|>user\nMore.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_template_that_writes_its_own_beginning_gets_no_second_one() -> None:
    tokens = form(CHATML).encode([HELLO])
    assert tokens[:2] == [256, 258]  # beginning of sequence once, then <|im_start|> as the special token that it is
    assert form(CHATML.removeprefix("{{ bos_token }}")).encode([HELLO])[:2] == [256, 258]


def test_without_a_template_messages_are_plain_text() -> None:
    plain = form(None)
    assert plain.text([SYSTEM, HELLO, ANSWER, MORE]) == (
        "Be brief.\n\nUser: Hello <b> & 'you'\nAssistant: Hé!\nUser: More.\nAssistant:"
    )
    assert plain.stop == ("\nUser:",)
    assert plain.notes == ("The model has no chat template: messages are plain text.",)
    # Text is text: what looks like a special token is not one.
    assert 258 not in plain.encode([Message("user", "<|im_start|>")])


def test_plain_text_can_be_chosen_without_complaint() -> None:
    chosen = ChatFormat(ByteTokenizer(CHATML), template="plain")
    assert chosen.text([HELLO]) == "User: Hello <b> & 'you'\nAssistant:"
    assert chosen.notes == ()


def test_a_refused_system_role_goes_in_front_of_the_first_user_message() -> None:
    gemma = form(NO_SYSTEM)
    assert (
        gemma.text([SYSTEM, HELLO])
        == "<s><|im_start|>user\nBe brief.\n\nHello <b> & 'you'<|im_end|>\n<|im_start|>model\n"
    )
    assert gemma.notes == ("The chat template knows no system role: it was put in front of the first user message.",)


def test_a_system_role_that_the_template_would_drop_is_kept() -> None:
    dropping = form("{% for m in messages if m.role != 'system' %}[{{ m.role }}] {{ m.content }}\n{% endfor %}")
    assert dropping.text([SYSTEM, HELLO]) == "[user] Be brief.\n\nHello <b> & 'you'\n"


def test_neighbours_of_one_role_are_joined_only_where_the_template_refuses_them() -> None:
    assert "More.<|im_end|>\n<|im_start|>user\nMore." in form(CHATML).text([MORE, MORE])
    gemma = form(NO_SYSTEM)
    assert gemma.text([MORE, MORE]) == "<s><|im_start|>user\nMore.\n\nMore.<|im_end|>\n<|im_start|>model\n"
    assert len(gemma.notes) == 1


def test_an_empty_answer_is_filled_only_where_the_template_refuses_it() -> None:
    picky = form(
        "{% for m in messages %}{% if not m.content %}{{ raise_exception('empty') }}{% endif %}"
        "{{ m.content }};{% endfor %}"
    )
    assert picky.text([HELLO, Message("assistant", ""), MORE]) == "Hello <b> & 'you';...;More.;"
    assert "assistant\n<|im_end|>" in form(CHATML).text([HELLO, Message("assistant", ""), MORE])


def test_templates_for_images_get_their_content_in_parts() -> None:
    parts = form(
        "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}"
        "{% endfor %}{% endfor %}"
    )
    assert parts.text([HELLO]) == "Hello <b> & 'you'"


def test_templates_that_insist_on_tools_get_an_empty_list() -> None:
    assert form("{% for t in tools %}{{ t }}{% endfor %}{{ messages[0].content }}").text([MORE]) == "More."


def test_an_answer_goes_back_without_what_closes_it() -> None:
    chatml = form(CHATML)
    tokenizer = ByteTokenizer()
    for closing in ("", "<|im_end|>", "</s>"):
        output = tokenizer.encode(f" Yes. \n{closing}", add_special=False, parse_special=True)
        assert chatml.answer(output) == " Yes. \n"
    assert form(None).answer(tokenizer.encode(" Yes. \n</s>", add_special=False, parse_special=True)) == "Yes."


def test_what_hugging_face_offers_is_there() -> None:
    text = form(
        "{%- for m in messages -%}\n"
        "{%- if loop.first %}{% generation %}{{ m | tojson }}{% endgeneration %}{% continue %}{% endif -%}\n"
        "{%- endfor -%}\n"
        "{{ strftime_now('%d %b %Y') }} {{ 'a{}c'.format('b') }} {{ eos_token }} {{ documents is none }}"
    ).text([HELLO])
    assert text == '{"role": "user", "content": "Hello <b> & \'you\'"}01 Jan 2025 abc </s> True'


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for %}", "is broken"),
        ("{% if x %}" * 200 + "{% endif %}" * 200, "is broken"),
        ("{{ messages[0].content | no_such_filter }}", "No filter named 'no_such_filter'"),
        ("{{ raise_exception('not today') }}", "not today"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ undefined_thing.x }}", "undefined_thing"),
        ("{% include 'other' %}", "no loader"),
        ("always the same", "leaves out what the user says"),
    ],
)
def test_a_template_that_cannot_work_is_refused_with_a_remedy(template: str, reason: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        form(template)
    assert reason in caught.value.message
    assert caught.value.remedy is not None
    assert "\n" not in str(caught.value)


ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ raise_exception.__globals__.sys }}",
    "{{ strftime_now.__self__.__class__.__base__ }}",
    "{{ messages.append(1) }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ ''|attr('__class__') }}",
    "{{ ['x'] | map(attribute='__class__') | first | string | upper ~ messages[0].nope.x }}",
    "{{ self._TemplateReference__context.environment.call }}",
]

GLUTTONS = [
    "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% for a in range(10 ** 12) %}{% endfor %}",
    "{% for a in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for a in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for a in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for a in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for a in range(99) %}{% set n.x = [n.x, n.x] | sum(start=[]) %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for a in range(99) %}"
    "{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}{% endfor %}",
    "{% set n = namespace(x=9) %}{% for a in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "{{ 'a' * 10 ** 10 }}",
    "{{ [0] * 10 ** 10 }}",
    "{% set x = 10 ** (10 ** 10) %}",
    "{{ 'a'.center(10 ** 9) }}",
    "{{ 'a'.zfill(10 ** 9) }}",
    "{{ '{:>999999999}'.format(1) }}",
    "{{ '{:{}}'.format(1, 999999999) }}",
    "{{ '%999999999d' % 3 }}",
    "{{ (5).to_bytes(10 ** 9, 'big') }}",
    "{% set x = ('a' * 10000).replace('a', 'b' * 10000) %}",
    "{% set x = ('a' * 10000) | replace('a', 'b' * 10000) %}",
    "{% set x = ('b' * 10000).join(['a'] * 10000) %}",
    "{% set x = (['a'] * 10000) | join('b' * 10000) %}",
    "{% set x = ([range(10000)] * 10000) | map('list') | list %}",
    "{{ 1.5 | round(10 ** 9, 'ceil') }}",
    "x" * 1_000_001,
]


@pytest.mark.parametrize("template", ESCAPES)
def test_a_hostile_template_does_not_get_out(template: str) -> None:
    """It is refused, or what it reaches for is simply undefined and renders as nothing."""
    try:
        text = form(template + "{{ messages[0].content }}").text([MORE])
    except WorkloadError:
        return
    assert text == "More."


@pytest.mark.parametrize("template", GLUTTONS)
def test_a_greedy_template_is_stopped_soon(template: str) -> None:
    began = time.process_time()
    with pytest.raises(WorkloadError):
        form(template + "{{ messages[0].content }}").text([MORE])
    # The bound on steps is a second or two of work; unbounded, these take hours or all memory.
    assert time.process_time() - began < 30
