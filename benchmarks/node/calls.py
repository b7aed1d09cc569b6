"""How long the kubelet waits for the plugin: its own calls, made as the kubelet makes them.

Measures milliseconds from a call on the plugin's socket to its answer, for calls where the plugin
must read from the kubelet which pod waits, and for those where it need not. The pods that the
plugin then reads are those of the real kubelet.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import grpc

from plugin.pb import deviceplugin_v1beta1_pb2 as pb

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["time_calls"]

_SERVICE = "/v1beta1.DevicePlugin/"
_SIZES = (1, 2, 4, 8)
_TIMEOUT_S = 5.0


def time_calls(socket: Path, ids: list[str], n_calls: int) -> tuple[list[float], list[float]]:
    """Seconds of GetPreferredAllocation, and of the Allocate of its answer.

    Sizes in turn, from random halves of the devices: no answer comes from a cache.
    """
    chance = random.Random(1)
    preferred: list[float] = []
    allocate: list[float] = []
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        prefer = channel.unary_unary(
            _SERVICE + "GetPreferredAllocation",
            request_serializer=pb.PreferredAllocationRequest.SerializeToString,
            response_deserializer=pb.PreferredAllocationResponse.FromString,
        )
        allocator = channel.unary_unary(
            _SERVICE + "Allocate",
            request_serializer=pb.AllocateRequest.SerializeToString,
            response_deserializer=pb.AllocateResponse.FromString,
        )
        for number in range(n_calls):
            size = _SIZES[number % len(_SIZES)]
            available = chance.sample(ids, chance.randint(max(size, len(ids) // 2), len(ids)))
            wanted = pb.ContainerPreferredAllocationRequest(
                available_deviceIDs=available, allocation_size=size
            )
            begun_s = time.perf_counter()
            answer = prefer(
                pb.PreferredAllocationRequest(container_requests=[wanted]), timeout=_TIMEOUT_S
            )
            preferred.append(time.perf_counter() - begun_s)
            chosen = answer.container_responses[0].deviceIDs
            request = pb.AllocateRequest(
                container_requests=[pb.ContainerAllocateRequest(devices_ids=chosen)]
            )
            begun_s = time.perf_counter()
            allocator(request, timeout=_TIMEOUT_S)
            allocate.append(time.perf_counter() - begun_s)
    return preferred, allocate
