"""The kubelet's end of a connection to a device plugin, over real gRPC on a unix socket."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from plugin.pb import deviceplugin_v1beta1_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Client"]

LOCAL = (("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "localhost"))


@dataclass
class Client:
    """One registration's connection to its plugin (plugin/v1beta1/client.go)."""

    resource: str
    path: Path
    channel: grpc.aio.Channel | None = None
    options: pb.DevicePluginOptions | None = None
    is_closed: bool = False

    async def connect(self, dial_s: float) -> None:
        """Dial, then call GetDevicePluginOptions."""
        self.channel = grpc.aio.insecure_channel(f"unix:{self.path}", options=LOCAL)
        try:
            await asyncio.wait_for(self.channel.channel_ready(), dial_s)
        except TimeoutError:
            await self.close()
            msg = f"failed to dial device plugin: {self.path}: context deadline exceeded"
            raise ConnectionError(msg) from None
        try:
            self.options = await self.call(
                "GetDevicePluginOptions", pb.Empty(), pb.DevicePluginOptions
            )
        except grpc.aio.AioRpcError as error:
            await self.close()
            msg = f"failed to get device plugin options: {error.details()}"
            raise ConnectionError(msg) from error

    async def call(self, name, request, answer, deadline_s=None):
        """One call; the kubelet gives most of them no deadline."""
        assert self.channel is not None
        method = self.channel.unary_unary(
            f"/v1beta1.DevicePlugin/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return await method(request, timeout=deadline_s)

    async def run(self, listed: Callable[[pb.ListAndWatchResponse], None]) -> None:
        """Watch the devices until either side ends it."""
        assert self.channel is not None
        stream = self.channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=pb.Empty.SerializeToString,
            response_deserializer=pb.ListAndWatchResponse.FromString,
        )(pb.Empty())
        try:
            async for response in stream:
                listed(response)
        except grpc.aio.AioRpcError:
            pass
        except asyncio.CancelledError:
            # grpc.aio cancels a call that waits while its channel is closed.
            if not self.is_closed:
                raise

    async def close(self) -> None:
        """Hang up."""
        self.is_closed = True
        if self.channel is not None:
            await self.channel.close()
