"""Stand-in for NVIDIA's device plugin, as the program of a pod: it serves `nvidia.com/gpu`.

Arguments: the ids of its devices. It serves on a socket of the name of NVIDIA's, registers once, as
that does (k8s-device-plugin v0.20.0, cmd/nvidia-device-plugin/main.go), and runs until SIGTERM. Of
this project it imports the messages alone, which the plugin's image has.
"""

from __future__ import annotations

import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from plugin.pb import deviceplugin_v1beta1_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path("/var/lib/kubelet/device-plugins")
SOCKET = "nvidia-gpu.sock"


def main() -> None:
    """Serve, register, and wait for the end."""
    ids, is_over = sys.argv[1:], threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    server = grpc.server(ThreadPoolExecutor(max_workers=4))

    def options(*_: object) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions()

    def list_and_watch(*_: object) -> Iterator[pb.ListAndWatchResponse]:
        yield pb.ListAndWatchResponse(devices=[pb.Device(ID=one, health="Healthy") for one in ids])
        is_over.wait()

    def allocate(request: pb.AllocateRequest, *_: object) -> pb.AllocateResponse:
        answers = [
            pb.ContainerAllocateResponse(
                envs={"NVIDIA_VISIBLE_DEVICES": ",".join(sorted(one.devices_ids))}
            )
            for one in request.container_requests
        ]
        return pb.AllocateResponse(container_responses=answers)

    def written(message: Any) -> bytes:
        return bytes(message.SerializeToString())

    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "GetDevicePluginOptions": unary(options, pb.Empty.FromString, written),
        "Allocate": unary(allocate, pb.AllocateRequest.FromString, written),
        "ListAndWatch": stream(list_and_watch, pb.Empty.FromString, written),
    }
    service = grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers)
    server.add_generic_rpc_handlers((service,))
    (FOLDER / SOCKET).unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{FOLDER / SOCKET}")
    server.start()
    with grpc.insecure_channel(f"unix:{FOLDER / 'kubelet.sock'}") as channel:
        register = channel.unary_unary(
            "/v1beta1.Registration/Register", written, pb.Empty.FromString
        )
        register(
            pb.RegisterRequest(version="v1beta1", endpoint=SOCKET, resource_name="nvidia.com/gpu"),
            timeout=10,
        )
    is_over.wait()
    server.stop(grace=None).wait()


if __name__ == "__main__":
    main()
