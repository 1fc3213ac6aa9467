"""The page `/docs`: the reference of the HTTP API, written from its OpenAPI document, without a script."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ullage.web.pages import HEADERS

Document = dict[str, Any]

_HEAD = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>HTTP API · Ullage</title>
    <link rel="icon" href="/static/icon.svg" type="image/svg+xml">
    <link rel="stylesheet" href="/static/reference.css">
  </head>
  <body>
"""


def reference(describe: Callable[[], Document]) -> Route:
    """Return the route of the page. `describe` returns the OpenAPI document; it is called once, in a thread."""

    @cache
    def written() -> bytes:
        return page(describe()).encode()

    async def respond(_: Request) -> Response:
        return Response(await asyncio.to_thread(written), media_type="text/html", headers=HEADERS)

    return Route("/docs", respond)


def page(document: Document) -> str:
    """Return the document as HTML: the operations by tag, then the schemas."""
    operations = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    components = document["components"]
    anchors = ["access", "errors", *(tag["name"] for tag in document["tags"]), "schemas"]
    return "".join(
        [
            _HEAD,
            f"<nav><a href='/'>Ullage</a>{''.join(_link(anchor, f'#{anchor}') for anchor in anchors)}</nav>",
            f"<main><h1>HTTP API</h1><p>{_text(document['info']['description'])}</p>",
            "<p><a href='/v1/openapi.json'>/v1/openapi.json</a> is the same for programs; it needs the token.</p>",
            *_schemes(components["securitySchemes"]),
            *_errors(components["responses"]),
            *(_tag(tag, [each for each in operations if tag["name"] in each[2]["tags"]]) for tag in document["tags"]),
            "<h2 id='schemas'>schemas</h2>",
            *(_schema(name, schema) for name, schema in components["schemas"].items()),
            "</main></body></html>",
        ]
    )


def _schemes(schemes: Document) -> Iterator[str]:
    yield "<h2 id='access'>access</h2><dl>"
    for name, scheme in schemes.items():
        yield f"<dt>{escape(name)}</dt><dd>{_text(scheme['description'])}</dd>"
    yield "</dl>"


def _errors(responses: Document) -> Iterator[str]:
    yield "<h2 id='errors'>errors</h2>"
    rows = (
        (
            f"<code id='error-{status}'>{status}</code>",
            _text(response["description"]),
            ", ".join(f"<code>{code}</code>" for code in response["content"]["application/json"]["examples"]),
        )
        for status, response in responses.items()
    )
    yield _table(("status", "meaning", "general codes"), rows)


def _tag(tag: Document, operations: Iterable[tuple[str, str, Document]]) -> str:
    shown = "".join(_operation(method, path, operation) for method, path, operation in operations)
    return f"<h2 id='{escape(tag['name'])}'>{escape(tag['name'])}</h2><p>{_text(tag['description'])}</p>{shown}"


def _operation(method: str, path: str, operation: Document) -> str:
    parts = [
        f"<details id='{escape(operation['operationId'])}'><summary><b>{method}</b> <code>{escape(path)}</code>",
        f"<span>{_text(operation['summary'])}</span></summary><p>{_text(operation['description'])}</p>",
    ]
    if operation["parameters"]:
        parts.append(_parameters(operation["parameters"]))
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]
        needed = "" if operation["requestBody"]["required"] else " (may be left out)"
        parts.append(f"<h3>body{needed}</h3><p>{_type(content['schema'])}</p>")
        for example in content.get("examples", {}).values():
            shown = escape(json.dumps(example["value"], indent=2), quote=False)
            parts.append(f"<p>{_text(example['summary'])}:</p><pre>{shown}</pre>")
    answers = sorted(operation["responses"].items())
    rows = ((f"<code>{status}</code>", _answer(answer)) for status, answer in answers if "$ref" not in answer)
    errors = ", ".join(_link(status, f"#error-{status}") for status, answer in answers if "$ref" in answer)
    parts += ["<h3>answers</h3>", _table(("status", "answer"), rows), f"<p>errors: {errors}</p></details>"]
    return "".join(parts)


def _parameters(parameters: Iterable[Document]) -> str:
    rows = (
        (f"<code>{escape(each['name'])}</code>", each["in"], _type(each["schema"]), _text(each["description"]))
        for each in parameters
    )
    return _table(("parameter", "in", "type", "meaning"), rows)


def _answer(answer: Document) -> str:
    kinds = [_type(content["schema"]) for content in answer.get("content", {}).values()]
    return f"{', '.join(kinds)} {_text(answer['description'])}".strip()


def _schema(name: str, schema: Document) -> str:
    head = f"<details id='{escape(name)}'><summary><code>{escape(name)}</code></summary>"
    required = set(schema.get("required", ()))
    rows = (
        (f"<code>{escape(field)}</code>", _type(kind), "required" if field in required else _default(kind))
        for field, kind in schema.get("properties", {}).items()
    )
    fields = _table(("field", "type", "default"), rows) if schema.get("properties") else f"<p>{_type(schema)}</p>"
    return f"{head}<p>{_text(schema.get('description', ''))}</p>{fields}</details>"


def _default(schema: Document) -> str:
    return f"<code>{escape(json.dumps(schema['default']))}</code>" if "default" in schema else "-"


def _type(schema: Document) -> str:
    """Return a type as a reader names it, with links to schemas."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _link(name, f"#{name}")
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(_type(each) for each in schema[key])
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map to {_type(schema['additionalProperties'])}"
    return escape(str(schema.get("type", "any value")))


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _text(text: str) -> str:
    """Return a sentence with its code between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def _link(name: str, target: str) -> str:
    return f"<a href='{escape(target)}'>{escape(name)}</a>"
