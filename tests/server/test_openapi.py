"""The OpenAPI document is valid, complete and true, and the page `/docs` shows all of it."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import httpx2
import msgspec
import pytest

from tests.system.live_server import LiveServer
from tests.web.test_pages import References
from ullage.server.app import FRONTS
from ullage.server.examples import EXAMPLES
from ullage.server.openapi import TAGS
from ullage.server.routes import endpoints_of

Document: TypeAlias = dict[str, Any]


@pytest.fixture
def document(http: httpx2.Client) -> Document:
    found: Document = http.get("/v1/openapi.json").json()
    return found


def operations(document: Document) -> list[tuple[str, str, Document]]:
    return [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_a_validator_finds_no_fault_in_the_openapi_document(document: Document) -> None:
    validator = pytest.importorskip(
        "openapi_spec_validator", reason="openapi-spec-validator is in the lock, and not installed here"
    )
    assert list(validator.OpenAPIV31SpecValidator(document).iter_errors()) == []


def test_the_openapi_document_names_every_route_and_its_schemas(document: Document) -> None:
    assert document["openapi"].startswith("3.1")
    assert {"/v1/sessions", "/v1/sessions/{session}/why", "/v1/live"} <= set(document["paths"])
    text = msgspec.json.encode(document).decode()
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= set(document["components"]["schemas"])


def test_each_operation_has_an_id_of_its_own_a_tag_and_a_description(document: Document) -> None:
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    tags = {tag["name"] for tag in document["tags"]}
    for operation in operations:
        assert set(operation["tags"]) <= tags, operation
        assert operation["tags"], operation
        assert operation["description"].startswith(operation["summary"]), operation
        assert all(each["description"] for each in operation["parameters"]), operation


def test_the_openapi_document_has_patterns_and_bounds(document: Document) -> None:
    paths = document["paths"]
    assert not [path for path in paths if ":" in path]
    task = paths["/v1/sessions/{session}/tasks/{task}"]["get"]["parameters"]
    by_name = {each["name"]: each["schema"] for each in task}
    assert by_name["task"] == {"type": "integer", "minimum": 1, "maximum": 10**15 - 1}
    assert re.fullmatch(by_name["session"]["pattern"], "a-b.c_1")
    assert not re.fullmatch(by_name["session"]["pattern"], "../etc")
    for operations in paths.values():
        for operation in operations.values():
            for each in operation["parameters"]:
                constraints = {"pattern", "minimum", "enum", "items"}
                assert constraints & set(each["schema"]) or each["name"] in ("owner", "domain", "search", "resreq"), (
                    each
                )


def test_every_tag_is_described_and_used(document: Document) -> None:
    assert {tag["name"]: tag["description"] for tag in document["tags"]} == TAGS
    assert {endpoint.tag for endpoint in endpoints_of(*FRONTS)} == set(TAGS)


def test_each_answer_is_described_and_each_error_has_a_code(document: Document) -> None:
    errors = document["components"]["responses"]
    for method, path, operation in operations(document):
        for status, answer in operation["responses"].items():
            assert answer == {"$ref": f"#/components/responses/{status}"} or answer["description"], (method, path)
        assert {"400", "401", "403"} <= set(operation["responses"]), (method, path)
        assert ("404" in operation["responses"]) >= ("{" in path), (method, path)
    assert errors["409"]["content"]["application/json"]["examples"]["already-exists"]
    assert all(error["content"]["application/json"]["examples"] for error in errors.values())


def test_the_key_of_the_page_is_named_where_it_suffices_and_only_there(document: Document) -> None:
    for method, path, operation in operations(document):
        assert ({"page": []} in operation.get("security", [])) == (method == "get"), (method, path)
    schemes = document["components"]["securitySchemes"]
    assert {
        name for _, _, operation in operations(document) for each in operation.get("security", []) for name in each
    } <= set(schemes)


PATHS = {"name": "example", "namespace": "default", "session": "s"}


def test_each_example_is_accepted_by_a_server(http: httpx2.Client, document: Document) -> None:
    created = http.post("/v1/sessions", json={"id": "s", "application": "function", "resreq": "cpu=1,mem=256m"})
    assert created.status_code == 201, created.text
    sent = set()
    for method, path, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        for name, example in content.get("examples", {}).items():
            answer = http.request(method, path.format(**PATHS), json=example["value"])
            assert answer.is_success, (path, name, answer.text)
            sent.add((operation["operationId"], name))
    assert sent == {(operation, name) for operation, examples in EXAMPLES.items() for name in examples}


def test_the_reference_page_needs_no_token_and_shows_every_operation_and_schema(
    server: LiveServer, document: Document
) -> None:
    with httpx2.Client(base_url=server.url, timeout=60) as stranger:
        answer = stranger.get("/docs")
        assert answer.status_code == 200
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        page = References(answer.text)
        assert page.inline == []
        local = {address for address in page.addresses if not address.startswith("#")}
        assert local == {"/", "/static/icon.svg", "/static/reference.css", "/v1/openapi.json"}
        assert stranger.get("/static/reference.css").status_code == 200
    anchors = set(re.findall(r"id='([^']+)'", answer.text))
    assert {operation["operationId"] for _, _, operation in operations(document)} <= anchors
    assert set(document["components"]["schemas"]) | set(TAGS) <= anchors
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= anchors
    assert answer.text.count("<details") == answer.text.count("</details>")
