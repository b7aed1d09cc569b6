"""A control plane of its own: etcd, kube-apiserver, and on demand the programs around them.

Runs an API server on a free loopback port, makes a kubeconfig for any user, and holds the handles
to kill and restart each program. All state lies in temporary folders. It must end whatever it
started, however the test ends.

The API server stores JSON and nothing compacts etcd, so that a checker can read every revision of
every object from etcd itself.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import httpx

from tests.cluster.control.client_tls import client_context
from tests.cluster.control.credentials import Authority, KeyPair, kubeconfig, signing_key
from tests.cluster.control.extender_process import ExtenderProcess, extender_command
from tests.cluster.control.processes import Program, free_port
from tests.cluster.control.scheduler import Scheduler, completed_config
from tests.cluster.programs.versions import api_server_flags

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.cluster.programs.build import Binaries

__all__ = ["MASTERS", "CommandFailed", "ControlPlane"]

P = TypeVar("P", bound=Program)

MASTERS = "system:masters"
"""The group that may do everything."""

_LOOPBACK = "127.0.0.1"
_SERVICE = ("10.0.0.1", "kubernetes.default.svc")
"""How pods call the API server: the first address of the Services' range, and the name."""
_PROBE_TIMEOUT_S = 2.0
_TOKEN_LIFE_S = 7 * 24 * 3600
_CONTROLLERS = (
    "*",
    # Nodes that the API made have no kubelet: these would find them dead.
    "-node-lifecycle-controller",
    "-taint-eviction-controller",
)


class CommandFailed(Exception):
    """kubectl or the API server said no; the message is what it said."""


class ControlPlane:
    """One API server over one etcd. A context manager; `start` and `stop` do the same.

    With `pod_address`, an address of this machine that pods reach, it is the endpoint of the
    Service `kubernetes`, and pods have accounts: then run the controller manager, too.
    """

    def __init__(
        self,
        binaries: Binaries,
        folder: Path,
        *,
        api_server_flags: Sequence[str] = (),
        pod_address: str | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.binaries = binaries
        self.folder = folder
        self._pod_address = pod_address
        self.authority = Authority("test cluster")
        """Signs the certificates of users and of servers."""
        self._files = self._write_files()
        self._api_server_port, self._etcd_port = free_port(), free_port()
        self.url = f"https://{_LOOPBACK}:{self._api_server_port}"
        self.etcd_url = f"http://{_LOOPBACK}:{self._etcd_port}"
        self.admin = self._write_kubeconfig("admin", self.authority.client("admin", [MASTERS]))
        """Kubeconfig of a user who may do everything."""
        self.client = self._admin_client()
        """The same user, for a request or two; `api.open_api` is for many at a time."""
        self._data = Path(tempfile.mkdtemp(prefix="coterie-etcd-"))
        self.etcd = self._program(
            "etcd", str(binaries.etcd), self._etcd_flags(), f"{self.etcd_url}/health"
        )
        self.api_server = self._program(
            "kube-apiserver",
            str(binaries.kube_apiserver),
            [*self._api_server_flags(), *api_server_flags],
            f"{self.url}/readyz",
        )
        self._others: list[Program] = []

    def __enter__(self) -> Self:
        """Start; what had been started ends where the rest does not come up."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Start etcd and the API server; returns when the API server is ready."""
        self.etcd.start()
        self.start_api_server()

    def stop(self) -> None:
        """End every program, the last started first, and drop etcd's data; logs stay."""
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self._data, ignore_errors=True)
            stack.callback(self.client.close)
            for program in (self.etcd, self.api_server, *self._others):
                stack.callback(program.stop)

    def start_api_server(self) -> None:
        """Start it again, on the same port over the same etcd; returns when it is ready."""
        self.api_server.start()

    def kill_api_server(self) -> None:
        """SIGKILL."""
        self.api_server.kill()

    def kubeconfig(self, user: str, *groups: str) -> Path:
        """Write a kubeconfig for a user of these groups, who has a certificate."""
        name = "-".join((user, *groups)).replace(":", "-")
        return self._write_kubeconfig(name, self.authority.client(user, groups))

    def service_account(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig with a token of a service account, which must be there."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_LIFE_S},
        }
        answer = self.client.post(path, json=body)
        if answer.is_error:
            msg = f"token for {namespace}/{name}: {answer.status_code}: {answer.text[:500]}"
            raise CommandFailed(msg)
        return self._write_kubeconfig(f"{namespace}-{name}", answer.json()["status"]["token"])

    def kubectl(self, *arguments: str, stdin: str = "", kubeconfig: Path | None = None) -> str:
        """Run kubectl, by default as admin; its standard output. Raises `CommandFailed`."""
        done = subprocess.run(
            [self.binaries.kubectl, "--kubeconfig", kubeconfig or self.admin, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            env={"HOME": str(self.folder)},  # kubectl caches there what the server offers
        )
        if done.returncode != 0:
            msg = f"kubectl {' '.join(arguments)}: {done.stderr or done.stdout}"
            raise CommandFailed(msg)
        return done.stdout

    def start_scheduler(
        self,
        config: str | Mapping[str, object],
        *,
        name: str = "kube-scheduler",
        flags: Sequence[str] = (),
    ) -> Scheduler:
        """Start kube-scheduler with a KubeSchedulerConfiguration, as text or as values.

        `name` distinguishes several of them; it names files. Leader election is off unless `flags`
        turn it on. Returns when its caches are synced.
        """
        user = self.kubeconfig("system:kube-scheduler")
        file = self.folder / f"{name}.json"
        file.write_text(completed_config(config, user), encoding="utf-8")
        url = f"https://{_LOOPBACK}:{(port := free_port())}"
        scheduler = Scheduler(
            name=name,
            command=[
                *(str(self.binaries.kube_scheduler), "--config", str(file)),
                *self._serving_flags(port, user),
                *("--leader-elect=false", *flags),
            ],
            log=self.folder / f"{name}.log",
            is_ready=partial(self._answers, f"{url}/readyz"),
            url=url,
            client=self.client,
        )
        return self._started(scheduler)

    def start_controller_manager(self, *controllers: str, flags: Sequence[str] = ()) -> Program:
        """Start kube-controller-manager; by default with all but those that look after nodes."""
        user = self.kubeconfig("system:kube-controller-manager")
        port = free_port()
        program = self._program(
            "kube-controller-manager",
            str(self.binaries.kube_controller_manager),
            [
                *("--kubeconfig", str(user), "--leader-elect=false"),
                *self._serving_flags(port, user),
                *("--controllers", ",".join(controllers or _CONTROLLERS)),
                "--use-service-account-credentials=true",
                *("--root-ca-file", str(self._files / "ca.crt")),
                *("--service-account-private-key-file", str(self._files / "tokens.key")),
                *flags,
            ],
            f"https://{_LOOPBACK}:{port}/healthz",
        )
        return self._started(program)

    def start_extender(
        self,
        kubeconfig: Path,
        *flags: str,
        name: str = "extender",
        port: int | None = None,
        health_url: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ExtenderProcess:
        """Start `python -m extender serve` as that user; returns when `/readyz` says so.

        `health_url` is where its probes are, if not where kube-scheduler calls it.
        """
        url = f"http://{_LOOPBACK}:{(port := port or free_port())}"
        health_url = health_url or url
        extender = ExtenderProcess(
            name=name,
            command=extender_command(kubeconfig, port, flags),
            log=self.folder / f"{name}.log",
            is_ready=partial(self._answers, f"{health_url}/readyz"),
            environment=environment or {},
            url=url,
            health_url=health_url,
        )
        return self._started(extender)

    def start_program(
        self,
        name: str,
        command: Sequence[str],
        ready_url: str | None = None,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Start any other program that this control plane shall end; awaits a 200 from that URL."""
        program = self._program(name, command[0], command[1:], ready_url)
        program.environment = environment or {}
        return self._started(program)

    def _program(
        self, name: str, path: str, flags: Sequence[str], ready_url: str | None
    ) -> Program:
        return Program(
            name=name,
            command=[path, *flags],
            log=self.folder / f"{name}.log",
            is_ready=partial(self._answers, ready_url) if ready_url else lambda: True,
        )

    def _started(self, program: P) -> P:
        self._others.append(program)
        program.start()
        return program

    def _answers(self, url: str) -> bool:
        try:
            return self.client.get(url, timeout=_PROBE_TIMEOUT_S).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def _write_files(self) -> Path:
        files = self.folder / "pki"
        files.mkdir()
        (files / "ca.crt").write_bytes(self.authority.certificate)
        # A separate authority: its certificates may impersonate any user.
        (files / "front-proxy-ca.crt").write_bytes(Authority("front proxy").certificate)
        (files / "tokens.key").write_bytes(signing_key())
        for_pods = (self._pod_address, *_SERVICE) if self._pod_address else ()
        self.authority.server("localhost", _LOOPBACK, *for_pods).write(files, "server")
        self.authority.client("admin", [MASTERS]).write(files, "admin")
        return files

    def _admin_client(self) -> httpx.Client:
        context = client_context(self._files, "admin")
        return httpx.Client(base_url=self.url, verify=context, timeout=60, trust_env=False)

    def _write_kubeconfig(self, name: str, user: KeyPair | str) -> Path:
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(kubeconfig(self.url, self.authority.certificate, user), encoding="utf-8")
        path.chmod(0o600)
        return path

    def _serving_flags(self, port: int, user: Path) -> list[str]:
        """Serve health and metrics, and let the API server decide who may read them."""
        return [
            *("--bind-address", _LOOPBACK, "--secure-port", str(port)),
            *("--tls-cert-file", str(self._files / "server.crt")),
            *("--tls-private-key-file", str(self._files / "server.key")),
            *("--client-ca-file", str(self._files / "ca.crt")),
            *("--authentication-kubeconfig", str(user), "--authorization-kubeconfig", str(user)),
        ]

    def _etcd_flags(self) -> list[str]:
        return [
            *("--data-dir", str(self._data)),
            *("--listen-client-urls", self.etcd_url, "--advertise-client-urls", self.etcd_url),
            *("--listen-peer-urls", f"http://{_LOOPBACK}:0"),
            "--unsafe-no-fsync",
            *("--quota-backend-bytes", str(8 << 30)),
            *("--log-level", "warn"),
        ]

    def _api_server_flags(self) -> list[str]:
        files = self._files
        return [
            *("--etcd-servers", self.etcd_url),
            "--storage-media-type=application/json",
            "--etcd-compaction-interval=0",
            *("--secure-port", str(self._api_server_port), *self._reachability_flags()),
            *("--tls-cert-file", str(files / "server.crt")),
            *("--tls-private-key-file", str(files / "server.key")),
            *("--client-ca-file", str(files / "ca.crt")),
            *("--requestheader-client-ca-file", str(files / "front-proxy-ca.crt")),
            *("--requestheader-allowed-names", "front-proxy-client"),
            *("--requestheader-username-headers", "X-Remote-User"),
            *("--requestheader-group-headers", "X-Remote-Group"),
            *("--requestheader-extra-headers-prefix", "X-Remote-Extra-"),
            *("--authorization-mode", "Node,RBAC"),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-account-key-file", str(files / "tokens.key")),
            *("--service-account-signing-key-file", str(files / "tokens.key")),
            *("--service-cluster-ip-range", "10.0.0.0/24"),
            "--allow-privileged=true",
            *api_server_flags(self.binaries.minor),
        ]

    def _reachability_flags(self) -> list[str]:
        """Who reaches it, and so which admission plugins must be off, as no controller is there.

        ServiceAccount wants a `default` account in every namespace, which a controller makes;
        TaintNodesByCondition marks new nodes not ready until a controller has looked.
        """
        if self._pod_address:
            return [
                *("--bind-address", "0.0.0.0", "--advertise-address", self._pod_address),  # noqa: S104 - the test's own network
                "--disable-admission-plugins=TaintNodesByCondition",
                # Logs are read through the API server; names of nodes are in no DNS.
                "--kubelet-preferred-address-types=InternalIP",
                *("--kubelet-client-certificate", str(self._files / "admin.crt")),
                *("--kubelet-client-key", str(self._files / "admin.key")),
            ]
        return [
            # Loopback is no address to advertise, and a machine may have no other: this one is
            # from RFC 5737, and no event reports it.
            *("--bind-address", _LOOPBACK, "--advertise-address", "192.0.2.1"),
            *("--endpoint-reconciler-type", "none"),
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        ]
