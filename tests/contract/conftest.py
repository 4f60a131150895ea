import pytest

pytest.register_assert_rewrite("sinks.testing")
