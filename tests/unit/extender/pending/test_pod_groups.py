"""Groups of pods with the same candidate nodes."""

from __future__ import annotations

import json

from extender.pending.pod_groups import MAX_CANDIDATES, CandidateGroup
from extender.protocol import messages, parse_pod
from tests.unit.extender.pods import GPU, pod

VIEWPOINT = parse_pod(messages.decode(messages.WirePod, json.dumps(pod(2)).encode()), (GPU,))


def test_two_groups_become_one_with_the_latest_of_both():
    """A pod that was filtered in between must still be requeued for the later event."""
    group, other = CandidateGroup(VIEWPOINT, 0), CandidateGroup(VIEWPOINT, 0)
    group.add_candidates(["x", *(f"n{i}" for i in range(MAX_CANDIDATES - 1))], 100.0)
    other.add_candidates(["x", "old"], 50.0)
    group.take_over(other)
    assert len(group.candidates) == MAX_CANDIDATES
    assert "old" not in group.candidates
    assert (group.candidates["x"].first_s, group.candidates["x"].last_s) == (50.0, 100.0)
