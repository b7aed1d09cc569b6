"""The page: complete by itself, and every name is text."""

from dataclasses import replace
from html.parser import HTMLParser

from tests.kubectl_lists import kube_list, node, pod
from topology.audit import audit, audit_html, read_cluster
from topology.audit.page import MAX_ROWS
from topology.recordings import load_recording

VOID = {"meta"}


class Reader(HTMLParser):
    """Tags, attributes and texts, with a check that tags close."""

    def __init__(self):
        super().__init__()
        self.tags, self.texts, self.attributes, self._open = [], [], [], []

    def handle_starttag(self, tag, attrs):
        """Count a tag and remember that it is open."""
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        """Close the last one."""
        assert self._open.pop() == tag

    def handle_data(self, data):
        """Keep a text."""
        self.texts.append(data)

    def close(self):
        """All tags are closed."""
        super().close()
        assert self._open == []


def read(report):
    """Parse a page."""
    reader = Reader()
    reader.feed(audit_html(report))
    reader.close()
    return reader


def report_of(nodes, pods):
    """Audit some lists."""
    return audit(read_cluster(kube_list(*nodes), kube_list(*pods)))


def test_names_are_text():
    """A pod or a model named like a script is shown, and does not run."""
    evil = "<script>alert('x')</script>"
    topology = load_recording("dgx-1-v100")
    gpus = tuple(replace(gpu, model=f"{evil}&") for gpu in topology.gpus)
    nodes = [node('n"1', replace(topology, gpus=gpus)), node(f"{evil}2", None)]
    page = read(report_of(nodes, [pod(evil, 'n"1', plan=(0, 5)), pod("q", f"{evil}2")]))
    assert "script" not in page.tags
    assert f"ml/{evil}" in page.texts
    assert any(text.startswith(f"8x {evil}&") for text in page.texts)


def test_it_needs_nothing_else():
    """It is attached to mails and opened where there is no network."""
    page = read(report_of([node("n1")], [pod("p", "n1", plan=(0, 5))]))
    assert {"script", "link", "img", "iframe"}.isdisjoint(page.tags)
    assert not [value for name, value in page.attributes if name in {"src", "href"}]
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes
    assert any("prefers-color-scheme: dark" in text for text in page.texts)


def test_all_tables():
    """What was found of each kind, and the bounds."""
    nodes = [
        node("a", "dgx-1-v100-dead-link"),
        node("b", "8x-t4"),
        node("c", None),
        node("d", "8x-mi300x", allocatable={"amd.com/gpu": 8}),
    ]
    nodes[3]["status"]["capacity"] = {"amd.com/gpu": 8}
    pods = [
        pod("p", "a", plan=(0, 5)),
        pod("q", "a", 1, plan=(1,)),
        pod("r", "c"),
        pod("s", "d", plan=(0, 1), resource="amd.com/gpu"),
    ]
    report = report_of(nodes, pods)
    texts = read(report).texts
    assert report.headline in texts
    for note in report.notes:
        assert note in texts
    headings = {
        "Machine types",
        "Containers with two or more GPUs, the largest loss first",
        "Pods that may be on faster GPUs than they use",
        "GPUs with links down",
        "Containers that are in no figure",
        "Nodes that are not covered",
    }
    assert headings <= set(texts)
    assert "Unhealthy GPUs" not in texts
    assert "6.0 (12 %)" in texts
    assert "–" in texts


def test_what_hinders_the_audit_has_tables():
    """Nodes that take no pods, GPUs in MIG mode, pods with claims, and counts that are not all."""
    cordoned = node("a")
    cordoned["spec"]["unschedulable"] = True
    split = node("b", allocatable={"nvidia.com/gpu": 7, "nvidia.com/mig-1g.5gb": 7})
    split["status"]["capacity"] = split["status"]["allocatable"]
    claims = pod("claims", "a", 0, spec={"resourceClaims": [{"name": "gpu"}]})
    texts = read(report_of([cordoned, split, node("c")], [claims, pod("p", "c")])).texts
    for expected in (
        "Nodes that take no pods, whose free GPUs do not count as free",
        "Nodes where some free GPUs are in MIG mode, not known which",
        "Pods with resource claims",
        "ml/claims",
        "7+?",
    ):
        assert expected in texts
    assert any("2 are covered" in text and "where that is known" in text for text in texts)
    assert not any(
        "+?" in text for text in read(report_of([node("a")], [])).texts if "GPUs" not in text
    )


def test_long_tables_are_cut():
    """Beside the JSON, which has all."""
    report = report_of([node("n1")], [pod("p", "n1")])
    (one,) = report.not_judged
    page = read(replace(report, not_judged=(one,) * (MAX_ROWS + 2)))
    assert "… and 2 more in the JSON" in page.texts
