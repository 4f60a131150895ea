"""Validates parts of the configuration with pydantic and turns what is wrong into lines for people."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from relay.config.sources import Sources
from relay.config.tree import MISSING, KeyPath, find, nearest, put

M = TypeVar("M", bound=BaseModel)

# pydantic's error types, by their beginning, where its own words are too technical.
_EXPECTED: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string_type": "a string",
    "string_too_short": "a string of at least {min_length} character(s)",
    "dict_type": "a table",
    "model": "a table",
    "list_type": "a list",
    "tuple_type": "a list",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}


class Checker:
    """Builds models from the sources. A model that cannot be built is None, and its problems are noted there."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    def at(self, *path: str | int) -> Any:
        """The value at a path; None where there is none."""
        value = find(self.sources.tree, path)
        return None if value is MISSING else value

    def shape(self, model: type[BaseModel]) -> None:
        """Check the sections. What is no table where one belongs is noted once, and set to None."""
        try:
            model.model_validate(self.sources.tree)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            self._note(model, (), errors, ())
            for details in errors:
                put(self.sources.tree, details["loc"], None)

    def model(
        self, model: type[M], path: KeyPath, *, only: Collection[str] | None = None, besides: Collection[str] = ()
    ) -> M | None:
        """The model built from the table at `path`.

        Args:
            only: the keys to build it from; else all.
            besides: keys of this table that belong to another model.
        """
        written = find(self.sources.tree, path)
        if written is None:
            return None
        table = {
            key: value
            for key, value in (written if written is not MISSING else {}).items()
            if key not in besides and (only is None or key in only)
        }
        try:
            return model.model_validate(table)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        if self._took_text(model, path, errors):
            return self.model(model, path, only=only, besides=besides)
        self._note(model, path, errors, besides)
        return None

    def _took_text(self, model: type[BaseModel], path: KeyPath, errors: list[ErrorDetails]) -> bool:
        """Whether a variable's value was a number only by its looks: RELAY_SINKS__EMAILS__QUEUE=2024 is a string."""
        places = {self._place(model, path, error) for error in errors if error["type"] == "string_type"}
        texts = {place: text for place in places if (text := self.sources.written(place)) is not None}
        for place, text in texts.items():
            put(self.sources.tree, place, text)
        # Text is a string: this cannot go on for ever.
        return bool(texts)

    def _note(
        self, model: type[BaseModel], path: KeyPath, errors: list[ErrorDetails], besides: Collection[str]
    ) -> None:
        expected: dict[KeyPath, list[str]] = {}
        defaults: dict[KeyPath, str] = {}
        for error in errors:
            loc, place = error["loc"], self._place(model, path, error)
            if error["type"] == "extra_forbidden":
                self._note_unknown(place, [*_fields(model, loc[:-1]), *(besides if len(loc) == 1 else ())])
                continue
            # A union has an error for each of its members: what any of them takes is right.
            expected.setdefault(place, []).append(_expected(model, error))
            if error["type"] != "missing" and find(self.sources.tree, place) is MISSING:
                defaults[place] = f"{json.dumps(error['input'], default=str)} (the default)"
        for place, words in expected.items():
            self.sources.problem(place, " or ".join(filter(None, words)) or "another value", defaults.get(place))

    def _place(self, model: type[BaseModel], path: KeyPath, error: ErrorDetails) -> KeyPath:
        """Where in the file the error is."""
        loc = error["loc"]
        if error["type"] not in ("missing", "extra_forbidden"):
            # pydantic adds the names of a union's members to the path; no file has such keys.
            while len(loc) > 1 and self.at(*path, *loc) is None and loc[-1] not in _fields(model, loc[:-1]):
                loc = loc[:-1]
        return path + loc

    def _note_unknown(self, path: KeyPath, known: list[str]) -> None:
        key, variable = str(path[-1]), self.sources.variable(path)
        if variable and variable.endswith(key.upper()):
            # Told in the spelling in which it was written.
            stem = variable.removesuffix(key.upper())
            key, known = variable, [stem + word.upper() for word in known]
        self.sources.problem(path, f"a known key ({nearest(key, known)})", f'"{key}"')


def _expected(model: type[BaseModel], error: ErrorDetails) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "is_instance_of":
        return ""  # An object of a sink's own, which no file can hold: the union's other member says what can.
    if kind == "value_error":
        return str(context["error"]).removeprefix("expected ")
    if kind == "missing":
        field = _fields(model, error["loc"][:-1]).get(str(error["loc"][-1]))
        return (field and field.description) or "a value"
    words = next((words for beginning, words in _EXPECTED.items() if kind.startswith(beginning)), None)
    return words.format(**context) if words else error["msg"].removeprefix("Input should be ")


def _fields(model: type[BaseModel], loc: KeyPath) -> Mapping[str, FieldInfo]:
    """The fields of the model at `loc` inside `model`; none where that is no model."""
    for part in loc:
        field = model.model_fields.get(str(part))
        if field is None or not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            return {}
        model = field.annotation
    return model.model_fields
