"""Measured figures in a file: both formats, and what is said of a file that is not one."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.errors import ImportFormatError
from topology.model import parse_measurement, write_measurement
from topology.model.node_topology import MeasuredPair, MeasuredSet, Measurement

PAIR = (MeasuredPair(0, 1, 42.2),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("0,1,42.2", Measurement(pairs=PAIR), id="comma line"),
        pytest.param("1 0 42.2", Measurement(pairs=PAIR), id="blanks, any order"),
        pytest.param("0 1 2,42.7\n", Measurement(sets=(MeasuredSet((0, 1, 2), 42.7),)), id="a set"),
        pytest.param(
            "\ufeff# GB/s\r\n\r\n0; 1; 42.2\r\n", Measurement(pairs=PAIR), id="from Excel"
        ),
        pytest.param('{"pairs": [[1, 0, 42.2]]}', Measurement(pairs=PAIR), id="JSON pair"),
        pytest.param(
            '{"sets": [[[2, 1, 0], 42]], "message_bytes": 1024, "nccl_version": "2.21",'
            ' "date": "2025-01-02", "source": "lab"}',
            Measurement(
                sets=(MeasuredSet((0, 1, 2), 42.0),),
                message_bytes=1024,
                nccl_version="2.21",
                date="2025-01-02",
                source="lab",
            ),
            id="JSON set with all it may say",
        ),
    ],
)
def test_figures_are_read(text, expected):
    """Both formats end in one value."""
    assert parse_measurement(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{}", id="empty object"),
        pytest.param("a,b,c", id="header"),
        pytest.param("0,42.2", id="one GPU"),
        pytest.param("0,1,fast", id="no number"),
        pytest.param("0,1,nan", id="not a number"),
        pytest.param("0,1,0", id="zero"),
        pytest.param("0,1,42200000000", id="bytes per second"),
        pytest.param('{"pairs": [[0, 1, 1e300]]}', id="huge"),
        pytest.param("0,0,5", id="a GPU with itself"),
        pytest.param("0,1,5\n1,0,6", id="twice"),
        pytest.param("{", id="broken JSON"),
        pytest.param('{"a":' * 100_000, id="deep JSON"),
        pytest.param('{"pair": []}', id="key"),
        pytest.param('{"pairs": [[0, 1]]}', id="short pair"),
        pytest.param('{"sets": [[0, 1]]}', id="bad set"),
        pytest.param('{"pairs": [[0, 1, 1]], "message_bytes": 0}', id="bytes"),
    ],
)
def test_what_is_wrong_is_said(text, check_message):
    """One sentence with the place, the value and the expectation."""
    with pytest.raises(ImportFormatError) as caught:
        parse_measurement(text)
    check_message(caught.value)


@given(st.text() | st.text('{}[]",:0123456789. \n'))
def test_only_the_documented_error_comes_out(text):
    """The file is foreign."""
    with suppress(ImportFormatError):
        parse_measurement(text)


FIGURES = st.floats(1e-3, 1e6, allow_nan=False)
SETS = st.lists(st.integers(0, 15), min_size=3, max_size=8, unique=True).map(sorted).map(tuple)


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 7), st.integers(8, 15)), FIGURES, min_size=1, max_size=9
    ),
    st.dictionaries(SETS, FIGURES, max_size=4),
    st.none() | st.integers(1, 1 << 40),
    st.none() | st.text(min_size=1),
)
def test_what_is_written_is_read_back(pairs, sets, message_bytes, text):
    """The plugin reads the file that `measure` wrote: nothing may change on the way."""
    measurement = Measurement(
        pairs=tuple(MeasuredPair(a, b, figure) for (a, b), figure in pairs.items()),
        sets=tuple(MeasuredSet(gpus, figure) for gpus, figure in sets.items()),
        message_bytes=message_bytes,
        nccl_version=text,
        date=text,
        source=text,
    )
    assert parse_measurement(write_measurement(measurement)) == measurement
