"""No secret in what a person may see."""

from __future__ import annotations

import pytest

from relay.config.masking import MASK, mask_url, mask_value, mask_wrong, secret_name


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://relay:s3cret@db/app", "postgresql://relay:***@db/app"),
        ("redis://:s3cret@redis:6379/0", "redis://:***@redis:6379/0"),
        ("postgresql://relay:s3@cr/et s3?c#ret@db/app", "postgresql://relay:***@db/app"),
        (
            "postgresql://db/app?sslmode=require&password=s3cret&user=u",
            "postgresql://db/app?sslmode=require&password=***&user=u",
        ),
        ("host=db password=s3cr&et dbname=app", "host=db password=*** dbname=app"),
        (r"host=db password = 's3 cr\'et' dbname=app", "host=db password = *** dbname=app"),
        (r"host=db password=s3\ cret dbname=app", "host=db password=*** dbname=app"),
        ("host=db sslpassword=s3cret", "host=db sslpassword=***"),
        ('username="u" password="s3 cret";', 'username="u" password=***;'),
        ("cannot reach redis://u:s3cret@redis: refused", "cannot reach redis://u:***@redis: refused"),
        ("postgres//bob:s3cret@x", "postgres//bob:***@x"),
        ("postgres:/bob:s3cret@x", "postgres:***@x"),
        ("redis//:s3cret@h", "redis//:***@h"),
        ("password:s3cret", "password:***"),
        ("postgresql://relay@db:5433/app", "postgresql://relay@db:5433/app"),
        ("redis://redis:6379/0", "redis://redis:6379/0"),
        ("shop.jobs:send_receipt", "shop.jobs:send_receipt"),
        ("a=b", "a=b"),
    ],
)
def test_passwords_in_text(text: str, masked: str) -> None:
    assert mask_url(text) == masked


@pytest.mark.parametrize(
    "name", ["password", "DB_PASS", "sasl.password", "aws_secret_access_key", "ssl.key.pem", "api_token", "credentials"]
)
def test_names_of_secrets(name: str) -> None:
    assert secret_name(name)
    assert mask_value(["client", name], "s3cret") == "***"


@pytest.mark.parametrize("name", ["bootstrap.servers", "url", "queue", "socket_timeout", "linger.ms", "key_converter"])
def test_other_names(name: str) -> None:
    assert not secret_name(name)


def test_values_at_any_depth() -> None:
    client = {
        "a": {"password": "x", "n": 5},
        "urls": ["redis://:x@h", {"token": 7}],
        "secret": {"of": ["x"]},
        "key": True,
    }
    assert mask_value(["client"], client) == {
        "a": {"password": "***", "n": 5},
        "urls": ["redis://:***@h", {"token": "***"}],
        "secret": {"of": ["***"]},
        "key": True,
    }


def test_wrong_options_of_a_client_may_be_mistyped_secrets() -> None:
    """Names, switches and files are shown: they tell what is wrong."""
    wrong = {
        "pasword": "hunter2",
        "pasw": 12345,
        "keepalive": True,
        "ssl.ca.location": "/etc/ca.pem",
        "nested": {"pwrd": "hunter2"},
    }
    shown = mask_wrong(["sinks", "a", "client"], wrong)
    assert shown == {
        "pasword": MASK,
        "pasw": MASK,
        "keepalive": True,
        "ssl.ca.location": "/etc/ca.pem",
        "nested": {"pwrd": MASK},
    }
    assert mask_wrong(["sinks", "a", "client", "pasword"], "hunter2") == MASK
