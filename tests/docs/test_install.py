"""What deploy/ applies is named in docs/install.md, and what removes it in the operator guide."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.docs.markdown import ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = ROOT / "docs" / "install.md"
PAGE = PATH.read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "operator-guide.md").read_text(encoding="utf-8")
MIGRATE = (ROOT / "docs" / "migrate.md").read_text(encoding="utf-8")
DEPLOY = ROOT / "deploy"
POLICIES = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")


def part(heading: str, page: str = PAGE) -> str:
    """The text of a section."""
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def applied() -> Iterator[dict[str, Any]]:
    """The objects of all files of deploy/; a list is a JSON patch."""
    chart = DEPLOY / "chart"  # its templates are no YAML, and make the same objects
    for path in sorted(set(DEPLOY.rglob("*.yaml")) - set(chart.rglob("*.yaml"))):
        found = yaml.safe_load_all(path.read_text(encoding="utf-8"))
        yield from (one for one in found if isinstance(one, dict))


def names_of(*kinds: str) -> list[str]:
    """The names of all objects of these kinds, each once."""
    return sorted({one["metadata"]["name"] for one in applied() if one.get("kind") in kinds})


@pytest.mark.parametrize("name", names_of(*POLICIES))
def test_every_policy_is_named(name):
    """Whoever has a write refused by it looks it up here."""
    assert f"\n| `{name}` |" in part("What else is applied")


def test_one_command_disables_all_policies():
    """A policy that fails closed may have to be switched off in a hurry."""
    (command,) = [one.text for one in blocks(PATH) if "admissionpolicybinding/" in one.text]
    bindings = {
        (one["kind"].lower(), one["metadata"]["name"])
        for one in applied()
        if one.get("kind") in {f"{kind}Binding" for kind in POLICIES}
    }
    assert set(re.findall(r"(\w+)/([\w-]+)", command)) == bindings


def test_every_role_that_is_bound_is_named():
    """Whoever reviews the installation must find each right, the plugin's too."""
    roles = {one["roleRef"]["name"] for one in applied() if "roleRef" in one}
    named = set(re.findall(r"`([\w:-]+)`", part("What else is applied")))
    assert roles - named == set()
    assert set(names_of("ClusterRole", "Role")) - named == set()


def test_what_the_ways_share_is_named():
    """What one way patches, because all have it under one name, is why only one can be applied."""
    (kubeadm,) = yaml.safe_load_all((DEPLOY / "kubeadm" / "kustomization.yaml").read_text("utf-8"))
    shared = {one["target"]["name"] for one in kubeadm["patches"] if "target" in one}
    assert shared
    assert shared - set(re.findall(r"`([\w-]+)`", part("Choose a way"))) == set()


def test_the_images_that_are_pushed_are_those_that_are_deployed():
    """Built under one name and deployed under another, no pod starts."""
    (script,) = [one.text for one in blocks(PATH) if "podman build" in one.text]
    built = re.findall(r"--tag (\S+)", script)
    deployed = [
        f"{image['newName']}:{image['newTag']}"
        for one in blocks(PATH)
        if one.language == "yaml"
        for image in yaml.safe_load(one.text).get("images", ())
        if not image["name"].endswith("kube-scheduler")
    ]
    assert built == re.findall(r"podman push (\S+)", script)
    assert set(built) == set(deployed)


def test_what_is_installed_is_removed():
    """Each kustomization that the page applies, but one that stands for another."""
    pattern = r"kubectl {} (?:--[\w-]+ )*-k ([\w/-]+)"
    text = "".join(one.text for one in blocks(PATH))
    folders = set(re.findall(pattern.format("apply"), text))
    removed = set(re.findall(pattern.format("delete"), part("Remove", GUIDE)))
    assert folders - removed == {"deploy/scheduler-name-v1beta1"}


def test_what_is_waited_for_is_listed_first():
    """`kubectl wait --for=delete` succeeds at once where nothing matches."""
    waits = r"kubectl -n (\S+) wait pod --for=delete.*\\\n(.*)\n"
    lists = r"kubectl -n (\S+) get pods \\\n(.*)\n"
    found = [(match.start(), match.groups()) for match in re.finditer(waits, MIGRATE)]
    assert len(found) == len({what for _, what in found})
    listed = {match.groups(): match.start() for match in re.finditer(lists, MIGRATE)}
    assert [what for at, what in found if listed.get(what, at) >= at] == []
    assert len(found) == MIGRATE.count(" wait pod --for=delete ")


def test_kyverno_gets_the_conditions_of_our_own_policy():
    """Both must send the same pods to the same scheduler."""
    (text,) = [one.text for one in blocks(PATH) if "kind: MutatingPolicy" in one.text]
    spec = yaml.safe_load(text)["spec"]
    (own,) = [one["spec"] for one in applied() if one.get("kind") == "MutatingAdmissionPolicy"]
    for key in ("matchConstraints", "matchConditions", "mutations"):
        assert spec[key] == own[key]
    required = "coterie-scheduler-name-required"
    (beside,) = [
        one["spec"]
        for one in applied()
        if one.get("kind") == "ValidatingAdmissionPolicy" and one["metadata"]["name"] == required
    ]
    assert beside["matchConditions"] == own["matchConditions"][1:]


def test_annotations_of_others_on_bindings_are_added_to_the_policy():
    """The patch must meet the variable that it means, and keep what the extender needs."""
    (text,) = [one.text for one in blocks(PATH) if "/spec/variables/" in one.text]
    (patch,) = yaml.safe_load(text)["patches"]
    check, change = yaml.safe_load(patch["patch"])
    kind, name = patch["target"]["kind"], patch["target"]["name"]
    (policy,) = [
        one for one in applied() if one.get("kind") == kind and one["metadata"]["name"] == name
    ]
    number = int(check["path"].split("/")[3])
    variable = policy["spec"]["variables"][number]
    assert (check["op"], check["path"]) == ("test", f"/spec/variables/{number}/name")
    assert (variable["name"], change["path"]) == (
        check["value"],
        f"/spec/variables/{number}/expression",
    )
    assert change["value"].replace(", 'example.com/rack'", "") == variable["expression"]
