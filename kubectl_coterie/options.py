"""The commands of `kubectl coterie` and their options.

Flags that kubectl has mean the same here. It loads nothing that reaches a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.cli.program import (
    EXTENDER_URL,
    Parser,
    add_command,
    add_completion_command,
    program_parser,
)

if TYPE_CHECKING:
    from typing import NoReturn

    from topology.cli.program import Commands

__all__ = ["make_parser"]


_ABOUT = """\
See GPU placement on a cluster: what runs where, what is free, why a pod waits, what is lost.

It uses your kubeconfig and your rights, as kubectl does, and changes nothing. What the extender
knows is read through a port-forward to its pod, which ends with the command; `audit` and
`topology` need the node plugin alone."""
_EXIT_CODES = "0 done; 1 an error, or a check that failed."


class _Parser(Parser):
    """Ends with 1 for wrong usage too, as kubectl does."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End with an exit code."""
        super().exit(min(status, 1), message)


def make_parser() -> Parser:
    """Make the parser; `command` of what it reads names the command."""
    root = program_parser("kubectl-coterie", _ABOUT, exit_codes=_EXIT_CODES, kind=_Parser)
    commands = root.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_explain(commands)
    _add_nodes(commands)
    _add_pods(commands)
    _add_groups(commands)
    _add_topology(commands)
    _add_capacity(commands)
    _add_what_if(commands)
    _add_audit(commands)
    _add_check(commands)
    _add_ui(commands)
    _add_support_bundle(commands)
    add_completion_command(commands, root.prog)
    return root


def _add_explain(commands: Commands) -> None:
    explain = add_command(
        commands,
        "explain",
        "say why a pod waits, or why it has its GPUs",
        more="POD is a pod of the cluster; FILE is a manifest of a pod, Job, Deployment and so on.",
    )
    explain.add_argument("pod", metavar="POD", nargs="?", help="A pod, in the namespace of -n.")
    _add_file(explain)
    _add_output(explain, "json|yaml")
    explain.add_argument(
        "--nodes",
        action="store_true",
        help="List every node with its set, or why it has none; for a pod without a node.",
    )
    _add_cluster(explain)


def _add_nodes(commands: Commands) -> None:
    nodes = add_command(commands, "nodes", "list GPU nodes: what is free, and the best free sets")
    nodes.add_argument("names", metavar="NODE", nargs="*", help="Only these nodes.")
    _add_list(nodes)
    nodes.add_argument("--machine", metavar="TYPE", help="Only nodes of this machine type.")
    nodes.add_argument("--unhealthy", action="store_true", help="Only nodes with unhealthy GPUs.")
    _add_cluster(nodes)


def _add_pods(commands: Commands) -> None:
    pods = add_command(
        commands, "pods", "list pods with GPUs: their sets and GB/s, or why they wait"
    )
    pods.add_argument("names", metavar="POD", nargs="*", help="Only these pods.")
    _add_list(pods)
    pods.add_argument("--node", metavar="NODE", help="Only pods on this node.")
    pods.add_argument("--pending", action="store_true", help="Only pods that wait.")
    _add_cluster(pods, is_namespaced=True)


def _add_groups(commands: Commands) -> None:
    groups = add_command(
        commands, "groups", "list groups of pods: who is here, where, GB/s, or why they wait"
    )
    groups.add_argument("names", metavar="GROUP", nargs="*", help="Only these groups.")
    _add_list(groups, selected="groups with a pod that has these labels")
    groups.add_argument("--node", metavar="NODE", help="Only groups with a member on this node.")
    groups.add_argument("--waiting", action="store_true", help="Only groups that wait.")
    _add_cluster(groups, is_namespaced=True)


def _add_topology(commands: Commands) -> None:
    topology = add_command(commands, "topology", "show a node's GPUs, links and pods, or draw them")
    topology.add_argument("node", metavar="NODE", help="A node.")
    _add_output(topology, "json|yaml|svg|png")
    topology.add_argument(
        "--matrix", action="store_true", help="Only the matrix of links, with its legend."
    )
    _add_cluster(topology)


def _add_capacity(commands: Commands) -> None:
    capacity = add_command(
        commands, "capacity", "count the sets of 2, 4 and 8 that fit now, by machine type"
    )
    _add_list(capacity, selected="")
    capacity.add_argument(
        "--history",
        metavar="HOURS",
        nargs="?",
        type=int,
        const=6,
        help="Show mean free GPUs and efficiency over the last hours, at most 168 (default 6).",
    )
    _add_cluster(capacity)


def _add_what_if(commands: Commands) -> None:
    what_if = add_command(
        commands,
        "what-if",
        "say where pods would go, after nodes were drained or added",
        more="Nothing is changed. At least one of -f, --drain and --add is needed.",
    )
    _add_file(what_if)
    what_if.add_argument(
        "--replicas", metavar="N", type=int, help="How many of the pod (default: the manifest's)."
    )
    what_if.add_argument(
        "--drain",
        metavar="NODE",
        action="append",
        default=[],
        help="Without this node; repeatable.",
    )
    what_if.add_argument(
        "--add",
        metavar="MACHINE[=N]",
        action="append",
        default=[],
        help="With N more nodes of a machine type; repeatable.",
    )
    _add_output(what_if, "json|yaml")
    _add_cluster(what_if)


def _add_audit(commands: Commands) -> None:
    audit = add_command(
        commands,
        "audit",
        "say what the pods that run now lose by their GPUs, under any scheduler",
        more="It needs the node plugin as a reporter, and no extender.",
    )
    _add_output(audit, "json")
    _add_cluster(audit)


def _add_check(commands: Commands) -> None:
    check = add_command(
        commands,
        "check",
        "check the installation: versions, plugins, certificates, policies, settings",
        more="It exits with 1 where a check failed, and says what to do.",
    )
    _add_output(check, "json|yaml")
    _add_cluster(check)


def _add_ui(commands: Commands) -> None:
    ui = add_command(commands, "ui", "open the page of the cluster in a browser, until ctrl-C")
    ui.add_argument(
        "--port", metavar="PORT", type=int, default=0, help="Local port (default: free)."
    )
    ui.add_argument("--no-browser", action="store_true", help="Only print the address.")
    _add_cluster(ui)


def _add_support_bundle(commands: Commands) -> None:
    bundle = add_command(
        commands,
        "support-bundle",
        "collect logs, state, metrics and settings into one archive",
        more="It holds no secret and no environment of users' pods.",
    )
    bundle.add_argument(
        "out", metavar="OUT", nargs="?", help="Archive, .tar.gz (default: a name with the time)."
    )
    bundle.add_argument(
        "--tail",
        metavar="LINES",
        type=int,
        default=2000,
        help="Lines of each log, the last ones (default 2000).",
    )
    _add_cluster(bundle)


def _add_file(command: Parser) -> None:
    command.add_argument(
        "--filename", "-f", metavar="FILE", help="A manifest, YAML or JSON; - reads standard input."
    )


def _add_output(command: Parser, forms: str) -> None:
    command.add_argument(
        "--output",
        "-o",
        metavar=forms,
        choices=forms.split("|"),
        default="",
        help="Form of the output (default: for people).",
    )


def _add_list(command: Parser, *, selected: str = "objects with these labels") -> None:
    """The flags of lists; `selected` is what a selector chooses, empty where there is none."""
    _add_output(command, "wide|json|yaml|name")
    command.add_argument("--watch", "-w", action="store_true", help="Go on with what changes.")
    if selected:
        command.add_argument("--selector", "-l", metavar="LABELS", help=f"Only {selected}.")
    command.add_argument("--sort-by", metavar="COLUMN", help="Sort by a column of the table.")
    command.add_argument("--no-headers", action="store_true", help="Leave out the header.")


def _add_cluster(command: Parser, *, is_namespaced: bool = False) -> None:
    """The flags of `kubectl_coterie.cluster.ClusterOptions`."""
    group = command.add_argument_group("cluster")
    group.add_argument("--namespace", "-n", metavar="NAMESPACE", help="Namespace of pods.")
    if is_namespaced:
        group.add_argument(
            "--all-namespaces", "-A", action="store_true", help="Pods of all namespaces."
        )
    group.add_argument("--kubeconfig", metavar="FILE", help="As for kubectl.")
    group.add_argument("--context", metavar="NAME", help="As for kubectl.")
    group.add_argument("--as", dest="as_user", metavar="USER", help="As for kubectl.")
    group.add_argument(
        "--as-group",
        dest="as_groups",
        metavar="GROUP",
        action="append",
        default=[],
        help="As for kubectl; repeatable.",
    )
    group.add_argument(
        "--request-timeout",
        metavar="SECONDS",
        type=float,
        default=30.0,
        help="Seconds that a request may take (default 30).",
    )
    group.add_argument(
        "--extender-namespace",
        metavar="NAMESPACE",
        help="Where the extender runs (default: it is looked for).",
    )
    group.add_argument(
        "--extender-pod",
        metavar="NAMESPACE/NAME",
        help="The extender's pod, which is not looked for.",
    )
    group.add_argument(
        "--extender-url",
        metavar="URL",
        help=f"A read API that needs no port-forward (default: the variable {EXTENDER_URL}).",
    )
