"""The files of the page and their protection, without a browser."""

import posixpath
import re
from collections.abc import Iterator
from contextlib import closing
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.lab import Lab, a_node
from ullage.server.app import make_app
from ullage.service.access_tokens import page_key
from ullage.web.pages import cluster_pages, pages
from ullage.wire.overview import ServerBody

TOKEN = "correct-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
TYPES = {"css": "text/css", "js": "text/javascript", "html": "text/html", "svg": "image/svg+xml"}
STATIC = Path(str(files("ullage.web") / "static"))
ASSETS = sorted(str(asset.relative_to(STATIC)) for asset in STATIC.rglob("*.*"))
SHEETS = [name for name in ASSETS if name.endswith(".css")]
SVG = "http://www.w3.org/2000/svg"
"""A name, not an address: elements of SVG need it."""
DOCUMENTS = ("/", "/enter")
SERVER = ServerBody(version="1", epoch=1, started_at=0.0, home="home", storage="memory://", isolation="none", policy={})


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starlette]:
    with Lab(a_node(gpus=2)) as lab:
        routes = pages(page_key)
        folder = tmp_path_factory.mktemp("logs")
        yield make_app(lab.service, SERVER, {}, TOKEN, {"localhost"}, folder, lambda: None, routes)


@pytest.fixture
def client(app: Starlette) -> Iterator[TestClient]:
    with closing(TestClient(app, base_url="http://localhost")) as client:
        yield client


@pytest.fixture
def reader(client: TestClient) -> TestClient:
    """A client that has the key of the page and no token."""
    client.headers["Authorization"] = f"Page {client.post('/v1/admit', headers=BEARER).json()['key']}"
    return client


class References(HTMLParser):
    """Everything a document loads, and everything in it that a strict policy forbids."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self._open = ""
        self.feed(document)

    def handle_starttag(self, tag, attrs):
        self._open = tag
        for name, value in attrs:
            if name in {"src", "href", "action"}:
                self.addresses.append(value)
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")

    def handle_data(self, data):
        if self._open in {"script", "style"} and data.strip():
            self.inline.append(data)

    def handle_endtag(self, tag):
        self._open = ""


def read(client: TestClient, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return response.text


@pytest.mark.parametrize("name", ASSETS)
def test_every_asset_has_its_type_and_the_policy(reader, name):
    response = reader.get(f"/static/{name}")
    assert response.status_code == 200
    assert response.headers["content-type"].split(";")[0] == TYPES[name.rpartition(".")[2]]
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", [*DOCUMENTS, "/static/page.js"])
def test_the_content_policy_allows_only_this_server(reader, path):
    policy = reader.get(path).headers["content-security-policy"]
    assert policy.split("; ")[0] == "default-src 'self'"
    assert "unsafe" not in policy
    assert reader.get(path).headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "name",
    [
        "no.js",
        "index",
        "index.html.bak",
        "..%2fpages.py",
        "..%2fstatic%2fpage.js",
        "%2e%2e%2f%2e%2e%2f__init__.py",
        "..%5cpages.py",
        "%2fetc%2fpasswd",
        "page.js%00.html",
        "views",
        "views/",
        "views%2f..%2fpage.js",
        "x" * 5000 + ".js",
        "",
    ],
)
def test_no_other_file_can_be_asked_for(reader, name):
    assert reader.get(f"/static/{name}").status_code == 404


@pytest.mark.parametrize("path", DOCUMENTS)
def test_documents_load_only_local_assets_that_exist(reader, path):
    addresses = References(read(reader, path)).addresses
    addresses = [address for address in addresses if not address.startswith("#")]
    assert len(addresses) >= 3
    for address in addresses:
        assert re.fullmatch(r"/static/[a-z]+\.[a-z]+", address)
        assert reader.get(address).status_code == 200


@pytest.mark.parametrize("path", DOCUMENTS)
def test_documents_have_no_inline_script_or_style(reader, path):
    assert References(read(reader, path)).inline == []


@pytest.mark.parametrize("name", [name for name in ASSETS if name.endswith(".js")])
def test_scripts_import_only_each_other_and_never_write_markup(reader, name):
    script = read(reader, f"/static/{name}")
    for imported in re.findall(r"""\bfrom\s+["'](.*?)["']""", script):
        assert posixpath.normpath(posixpath.join(posixpath.dirname(name), imported)) in ASSETS
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|://"
    assert not re.search(markup, script.replace(SVG, ""))
    assert script.count("\n") < 200


@pytest.mark.parametrize("name", SHEETS)
def test_style_sheets_load_nothing(reader, name):
    assert not re.search(r"@import|url\(", read(reader, f"/static/{name}"))


def test_the_files_of_the_page_need_no_token_and_its_data_does(client):
    for document in DOCUMENTS:
        addresses = [each for each in References(read(client, document)).addresses if each.startswith("/")]
        assert {client.get(address).status_code for address in addresses} == {200}
    for path in ("/v1/live", "/v1/overview", "/v1/nodes", "/metrics"):
        assert client.get(path).status_code == 401


def test_the_key_is_derived_from_the_token_and_is_no_cookie(client):
    answer = client.post("/v1/admit", headers=BEARER)
    assert TOKEN not in answer.text
    assert "set-cookie" not in answer.headers
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}])
def test_no_key_without_the_token(client, headers):
    response = client.post("/v1/admit", headers=headers)
    assert response.status_code == 401
    assert page_key(TOKEN) not in response.text


@pytest.mark.parametrize("path", ["/", "/static/page.js", "/v1/overview", "/v1/sessions", "/metrics"])
def test_the_key_opens_reading(reader, path):
    assert reader.get(path).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/sessions"),
        ("POST", "/v1/shutdown"),
        ("POST", "/v1/admit"),
        ("PUT", "/v1/queues/q"),
        ("DELETE", "/v1/applications/function"),
        ("POST", "/v1/nodes/n1/cordon"),
    ],
)
def test_the_key_changes_nothing(reader, method, path):
    assert reader.request(method, path, json={}).status_code == 401


@pytest.mark.parametrize("value", ["", "Page", f"Page {page_key('another-token')}", f"Bearer {page_key(TOKEN)}"])
def test_a_wrong_key_opens_nothing(client, value):
    assert client.get("/v1/overview", headers={"Authorization": value}).status_code == 401


def test_a_browser_without_a_key_is_led_to_the_entrance(client):
    assert client.get("/", headers={"Accept": "text/html"}).status_code == 200
    assert 'location.replace("/enter")' in read(client, "/static/page.js")


def test_the_page_of_a_cluster_loads_relative_addresses_only():
    with closing(TestClient(Starlette(routes=list(cluster_pages())), base_url="http://page")) as client:
        document = read(client, "/")
        found = References(document)
        assert len(found.addresses) >= 4
        assert found.inline == []
        for address in found.addresses:
            assert re.fullmatch(r"static/[a-z]+\.[a-z]+", address)
            assert client.get(f"/{address}").status_code == 200
        assert re.findall(r'fetch\("(.*?)"', read(client, "/static/cluster.js")) == ["v1/overview"]
        assert client.get("/favicon.ico").url.path == "/static/icon.svg"
        assert client.get("/enter").status_code == client.get("/v1/admit").status_code == 404
