"""XML from strangers: what is dangerous or broken is refused with a sentence."""

from __future__ import annotations

import pytest

from topology.errors import ImportFormatError
from topology.importers.xml.safe_xml import MAX_DEPTH, find_attribute, parse_xml

BOMB = """<?xml version="1.0"?>
<!DOCTYPE t [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<t>&b;</t>"""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("<t><u></t>", id="wrong nesting"),
        pytest.param("<t>", id="cut off"),
        pytest.param("<t>&x;</t>", id="unknown entity"),
        pytest.param("<t a='\ud800'/>", id="a lone surrogate"),
        pytest.param(BOMB, id="entity bomb"),
        pytest.param(
            '<!DOCTYPE t [<!ENTITY e SYSTEM "file:///etc/hostname">]><t>&e;</t>',
            id="external entity",
        ),
        pytest.param("<t>" * (MAX_DEPTH + 1), id="too deep"),
    ],
)
def test_refused(text, check_message):
    """Only the documented error comes out, and it names the document."""
    with pytest.raises(ImportFormatError) as caught:
        parse_xml(text, "sample")
    check_message(caught.value)
    assert str(caught.value).startswith("sample")


def test_external_dtd_is_named_but_not_loaded():
    """Every hwloc 1 and 2 file names hwloc.dtd."""
    root = parse_xml('<!DOCTYPE t SYSTEM "no-such.dtd"><t a=" 1 " b=""><u>x</u></t>', "sample")
    assert root[0].text == "x"
    assert find_attribute(root, "a") == "1"
    assert find_attribute(root, "b") is None
    assert find_attribute(root, "c") is None


def test_byte_order_mark_and_declared_encoding_do_not_matter():
    """The text is decoded already; a file that says latin-1 stays readable."""
    text = '\ufeff\n<?xml version="1.0" encoding="ISO-8859-1"?><t a="ä"/>'
    assert parse_xml(text, "sample").get("a") == "ä"
