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
    ("text", "message"),
    [
        pytest.param("", "no pair and no set, expected one at least", id="empty"),
        pytest.param("{}", "no pair and no set, expected one at least", id="empty object"),
        pytest.param("a,b,c", "line 1 is 'a,b,c', expected GPU indices, then GB/s", id="header"),
        pytest.param("0,42.2", "line 1 is '0,42.2', expected GPU indices", id="one GPU"),
        pytest.param("0,1,fast", "line 1 ends with 'fast', expected GB/s", id="no number"),
        pytest.param("0,1,nan", "line 1 ends with 'nan', expected GB/s", id="not a number"),
        pytest.param("0,1,0", "0.0 GB/s, expected a positive number", id="zero"),
        pytest.param("0,1,42200000000", "line 1 ends with '42200000000'", id="bytes per second"),
        pytest.param(
            '{"pairs": [[0, 1, 1e300]]}',
            "1e+300 GB/s, expected a positive number, 0.001..",
            id="huge",
        ),
        pytest.param("0,0,5", "expected at least 2 different GPUs", id="a GPU with itself"),
        pytest.param("0,1,5\n1,0,6", "measured pair (0, 1) is given twice", id="twice"),
        pytest.param("{", "measurement: not JSON", id="broken JSON"),
        pytest.param('{"a":' * 100_000, "measurement: not JSON", id="deep JSON"),
        pytest.param('{"pair": []}', "measurement has 'pair', expected one of: pairs", id="key"),
        pytest.param('{"pairs": [[0, 1]]}', "measurement.pairs[0] is [0, 1]", id="short pair"),
        pytest.param('{"sets": [[0, 1]]}', "measurement.sets[0][0] is 0, expected", id="bad set"),
        pytest.param(
            '{"pairs": [[0, 1, 1]], "message_bytes": 0}', "message_bytes is 0", id="bytes"
        ),
    ],
)
def test_what_is_wrong_is_said(text, message):
    """One sentence with the place, the value and the expectation."""
    with pytest.raises(ImportFormatError) as caught:
        parse_measurement(text)
    assert message in str(caught.value)


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
    """The agent reads the file that `measure` wrote: nothing may change on the way."""
    measurement = Measurement(
        pairs=tuple(MeasuredPair(a, b, figure) for (a, b), figure in pairs.items()),
        sets=tuple(MeasuredSet(gpus, figure) for gpus, figure in sets.items()),
        message_bytes=message_bytes,
        nccl_version=text,
        date=text,
        source=text,
    )
    assert parse_measurement(write_measurement(measurement)) == measurement
