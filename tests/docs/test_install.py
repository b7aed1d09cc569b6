"""docs/install.md: what is built is what is deployed; docs/migrate.md lists before it waits."""

from __future__ import annotations

import re

import yaml

from tests.docs.markdown import ROOT, blocks

PATH = ROOT / "docs" / "install.md"
MIGRATE = (ROOT / "docs" / "migrate.md").read_text(encoding="utf-8")


def test_the_images_that_are_pushed_are_those_that_are_deployed():
    """Built under one name and deployed under another, no pod starts."""
    (script,) = [one.text for one in blocks(PATH) if "docker build" in one.text]
    built = re.findall(r"--tag (\S+)", script)
    deployed = [
        f"{image['newName']}:{image['newTag']}"
        for one in blocks(PATH)
        if one.language == "yaml"
        for image in yaml.safe_load(one.text).get("images", ())
        if not image["name"].endswith("kube-scheduler")
    ]
    assert built == re.findall(r"docker push (\S+)", script)
    assert set(built) == set(deployed)


def test_what_is_waited_for_is_listed_first():
    """`kubectl wait --for=delete` succeeds at once where nothing matches."""
    waits = r"kubectl -n (\S+) wait pod --for=delete.*\\\n(.*)\n"
    lists = r"kubectl -n (\S+) get pods \\\n(.*)\n"
    found = [(match.start(), match.groups()) for match in re.finditer(waits, MIGRATE)]
    assert len(found) == len({what for _, what in found})
    listed = {match.groups(): match.start() for match in re.finditer(lists, MIGRATE)}
    assert [what for at, what in found if listed.get(what, at) >= at] == []
    assert len(found) == MIGRATE.count(" wait pod --for=delete ")
