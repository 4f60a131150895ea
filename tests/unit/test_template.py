"""Templates: what is understood, what is refused when it is read, and what a message may lack."""

from __future__ import annotations

from uuid import UUID

import pytest
from pydantic import BaseModel, ValidationError

from sinks.template import Template, TemplateError
from sinks.testing import message


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("orders", "orders"),
        ("{kind}", "order.created"),
        ("{sink}.{kind}", "events.order.created"),
        ("{key}", "42"),
        ("{message_id}", "00000000-0000-0000-0000-000000000007"),
        ("{header.queue}", "mail"),
        ("{header.queue:default}", "mail"),
        ("{header.missing:default}", "default"),
        ("{header.missing:a:b}", "a:b"),
        ("x{header.missing:}y", "xy"),
        ("{header.a.b-c}", "dotted"),
        ("{header.number}-{header.yes}", "7-true"),
        ("{header.none:default}", "default"),
        ("{{{kind}}}", "{order.created}"),
        ("{{kind}}", "{kind}"),
    ],
)
def test_name_is_made_from_the_message(template: str, name: str) -> None:
    headers = {"queue": "mail", "a.b-c": "dotted", "number": 7, "yes": True, "none": None}
    one = message(1, kind="order.created", key="42", headers=headers, message_id=UUID(int=7))
    assert Template(template).render(one, "events") == name


def test_key_may_have_a_default() -> None:
    assert Template("{key:none}").render(message(1), "events") == "none"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("", "a template that is not empty"),
        ("{kid}", "there is no {kid}"),
        ("{}", "there is no {}"),
        ("{header.}", "there is no {header.}"),
        ("{kind:default}", "there is no {kind:default}"),
        ("{ kind }", "there is no { kind }"),
        ("{kind", "braces"),
        ("kind}", "braces"),
        ("{a{b}}", "braces"),
    ],
)
def test_bad_template_is_refused_when_it_is_read(template: str, expected: str) -> None:
    with pytest.raises(ValueError, match="template") as caught:
        Template(template)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{key}", "key is missing, and {key} has no default"),
        ("{header.queue}", 'header "queue" is missing, and {header.queue} has no default'),
        ("{header.object}", 'header "object" is not a text'),
        ("{header.empty}", "gives an empty name"),
        ("{header.queue:}", "gives an empty name"),
    ],
)
def test_message_that_lacks_something_is_named_without_its_data(template: str, reason: str) -> None:
    one = message(1, headers={"object": {"secret": 1}, "empty": ""})
    with pytest.raises(TemplateError) as caught:
        Template(template).render(one, "events")
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)


class Options(BaseModel):
    queue: Template = Template("{header.queue:default}")


def test_pydantic_reads_checks_and_writes_it() -> None:
    assert Options(queue="{kind}").queue == Template("{kind}")  # type: ignore[arg-type]
    assert Options.model_validate_json('{"queue": "{kind}"}').model_dump() == {"queue": "{kind}"}
    assert Options(queue=Template("{key}")).model_dump_json() == '{"queue":"{key}"}'
    with pytest.raises(ValidationError, match="there is no"):
        Options.model_validate({"queue": "{kid}"})
    with pytest.raises(ValidationError):
        Options.model_validate({"queue": 7})


def test_template_is_a_value() -> None:
    assert len({Template("a"), Template("a"), Template("b")}) == 2
    assert (str(Template("{kind}")), repr(Template("{kind}"))) == ("{kind}", "Template('{kind}')")
