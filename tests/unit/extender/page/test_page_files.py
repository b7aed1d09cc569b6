"""The page's files over HTTP: headers, tags, and that they load nothing from elsewhere."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest

from kubectl_coterie.text import group_limit, limit
from tests.unit.extender.engines import engine
from tests.unit.extender.read_api.served import ServedReads
from topology.groups import GroupLimit
from topology.value import Limit


@pytest.fixture
def served() -> ServedReads:
    """An extender with one node."""
    return ServedReads(engine({"machine": "dgx-1-v100", "count": 1}))


@pytest.mark.parametrize("path", ["/ui/", "/ui/main.js", "/ui/style.css", "/ui/views/node.js"])
def test_each_file_confines_the_browser(served, path):
    """Whatever is served under /ui/ has the policy, its type and a tag."""
    response = served.call(path)
    assert response.status_code == 200
    policy = response.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"} < {
        *policy
    }
    assert {"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} < {*policy}
    assert "unsafe" not in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["content-type"].startswith("text/")
    again = served.call(path, if_none_match=response.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")


def test_the_page_is_on_both_applications(served):
    """On the main port as on `read_port`, where `/` and `/ui` lead to it."""
    for app in (served.app, served.read_app):
        assert b"<title>Coterie</title>" in served.call("/ui/", app=app).content
        for path in ("/", "/ui"):
            response = served.call(path, app=app)
            assert (response.status_code, response.headers["location"]) == (307, "ui/")


@pytest.mark.parametrize("path", ["/ui/no.js", "/ui/../routes.py", "/ui/%2e%2e/routes.py"])
def test_only_the_files_of_the_page_are_served(served, path):
    """A path leads nowhere else, not even to the route's own source."""
    assert served.call(path).status_code == 404


def test_the_page_changes_nothing(served):
    """No method but GET and HEAD."""
    assert served.call("/ui/", method="HEAD").status_code == 200
    for method in ("POST", "PUT", "DELETE"):
        assert served.call("/ui/", method=method).status_code == 405


def test_files_name_no_other_host():
    """Nothing is loaded from elsewhere, and no markup is made of text."""
    folder = files("extender.page") / "static"
    rooms = ("groups", "tiles", "views")
    found = [*folder.iterdir(), *(one for room in rooms for one in (folder / room).iterdir())]
    texts = [one.read_text(encoding="utf-8") for one in found if one.is_file()]
    assert len(texts) > 12
    for text in texts:
        assert set(re.findall(r"https?://[^\"' ]+", text)) <= {"http://www.w3.org/2000/svg"}
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)


def test_limits_have_the_words_of_kubectl():
    """One fact had three names, and a reader looked for three things."""
    text = files("extender.page").joinpath("static/words.js").read_text(encoding="utf-8")
    tables = re.findall(r"const (\w+) = (\{\n.*?\n\});", text, re.DOTALL)
    found = {name: json.loads(re.sub(r",\n\}", "\n}", table)) for name, table in tables}
    sets = [one.name.lower() for one in Limit]
    assert found["LIMITS"] == {name: limit(name) for name in sets}
    groups = found["GROUP_LIMITS"]
    assert groups == {name: group_limit({"limited_by": name}) for name in groups}
    assert {one.value for one in GroupLimit} - {"nothing"} == groups.keys()
