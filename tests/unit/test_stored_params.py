"""What is kept of launch parameters, and which base URLs are taken (spec coordinator 5 and 9)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from schemas.base_urls import base_url
from streams.launching.stored_params import stored_params
from tests.property.json_values import VALUES

CODE = "export default () => {}"


def test_program_code_and_source_files_are_left_out() -> None:
    file = {"playPath": "a.csv", "storageKey": "k", "contentType": "text/csv", "bytes": 5}
    params = {
        "day": "2025-01-31",
        "dynamicWorkerCode": CODE,
        "contractSnapshot": {"name": "c", "sourceCode": CODE, "sourceFiles": {"a.ts": CODE}},
        "childPlayManifests": {
            "child": {"graphHash": "g", "bundledCode": CODE, "sourceCode": CODE, "sourceFiles": [CODE]}
        },
        "packagedFiles": [{**file, "inlineText": CODE}, {"playPath": "b.csv", "content": CODE}],
    }
    before = json.dumps(params)
    assert stored_params(params) == {
        "day": "2025-01-31",
        "contractSnapshot": {"name": "c"},
        "childPlayManifests": {"child": {"graphHash": "g"}},
        "packagedFiles": [
            file,
            {"playPath": "b.csv", "storageKey": None, "contentType": None, "bytes": None},
        ],
    }
    assert json.dumps(params) == before


@given(VALUES)
def test_what_has_none_of_it_is_kept_as_it_is(value: Any) -> None:
    assert stored_params(value) == value
    assert stored_params({"input": value}) == {"input": value}


@given(VALUES)
def test_odd_values_in_the_places_of_code_do_no_harm(value: Any) -> None:
    names = ("dynamicWorkerCode", "contractSnapshot", "childPlayManifests", "packagedFiles")
    assert "dynamicWorkerCode" not in stored_params(dict.fromkeys(names, value))


@pytest.mark.parametrize(
    ("given_url", "used"),
    [
        ("https://example.com", "https://example.com"),
        (" HTTP://Example.COM:80/ ", "http://example.com"),
        ("https://example.com:8443/", "https://example.com:8443"),
        ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
        ("http://[::1]:3000/", "http://[::1]:3000"),
        ("https://user@example.com", None),
        ("https://user:password@example.com", None),
        ("https://example.com/path", None),
        ("https://example.com?q=1", None),
        ("https://example.com/#f", None),
        ("https://example.com:65536", None),
        ("https://exa mple.com", None),
        ("ftp://example.com", None),
        ("//example.com", None),
        ("example.com", None),
        ("https://", None),
        ("", None),
        (None, None),
        (5, None),
    ],
)
def test_which_base_urls_are_taken(given_url: object, used: str | None) -> None:
    assert base_url(given_url) == used
