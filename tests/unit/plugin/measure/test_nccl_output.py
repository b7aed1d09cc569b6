"""The figure that a run of all_reduce_perf yields, in the forms that nccl-tests has printed."""

import pytest

from plugin.errors import MeasurementError
from plugin.measure.nccl_output import BusBandwidth, read_all_reduce

NEW = """\
NCCL version 2.21.5+cuda12.4
# nThread 1 nGpus 2 minBytes 536870912 maxBytes 1073741824 step: 2(factor) warmup iters: 5
#
#                                                              out-of-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1073741824     268435456     float     sum      -1   3108.8  345.38  681.17      0   2924.7  367.13  724.06      0
   536870912     134217728     float     sum      -1   1806.7  297.16  586.06      0   1835.9  292.43  576.74    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 633.61
"""  # noqa: E501 - as printed
OLD = """\
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1250000000     312500000     float     sum   1250.0   10.00   15.00  0e+00   1200.0   10.42   15.62  0e+00
"""  # noqa: E501 - as printed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            NEW, BusBandwidth(1073741824, 681.17, "2.21.5+cuda12.4"), id="largest size, not last"
        ),
        pytest.param(OLD, BusBandwidth(1250000000, 15.0, None), id="before there was a root"),
        pytest.param(
            NEW.replace("\n", "\r\n"), BusBandwidth(1073741824, 681.17, "2.21.5+cuda12.4"), id="CR"
        ),
    ],
)
def test_the_figure_is_the_out_of_place_one_of_the_largest_size(text, expected):
    """Columns are found by their names: they moved between versions."""
    assert read_all_reduce(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("a\nno CUDA\n\n", id="last words are repeated"),
        pytest.param("1 2 3\n", id="a row without header"),
        pytest.param("# size busbw\n", id="a header without row"),
        pytest.param("one\ntwo \n\n  \n", id="blank lines at the end"),
        pytest.param("\n", id="blank lines alone"),
        pytest.param("# size busbw #wrong\n8 1.0 3\n", id="wrong results"),
        pytest.param("# size busbw\n8 fast\n", id="no figure"),
    ],
)
def test_what_is_no_result_is_refused(text, check_message):
    """A figure that was not measured would rank sets."""
    with pytest.raises(MeasurementError) as caught:
        read_all_reduce(text)
    check_message(caught.value)
