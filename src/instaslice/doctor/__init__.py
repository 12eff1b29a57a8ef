"""The invariants of a cluster, checked from outside: by `instaslice doctor`, and in every integration test.

observed_cluster  what the API server holds at one moment, and what follows from it
findings          what can be wrong, each with a name and a message
requested         the slices, CPU and memory that a pod requests, and its gates
readable          the rule that every object can be understood
gpu_rules         rules about GPUs: which allocation holds which placement
pod_rules         rules about pods: each holds the slices that it requests
node_rules        rules about nodes: CPU, memory, capacity, hardware that is gone
serving           whether the nodes serve: agents that take note of what is reserved, drivers, kubelets, GPUs
installation      what an installation stands on: webhook, policies, Lease, definition, quotas
installation_kinds  the objects that it consists of
installation_rules  rules about those
definition_rules  the rule that the definition is the one of this version
renamed_rules     quotas and pods that still use the names that the webhook replaces
unreported_nodes  the rule that agents have reported their nodes
kueue_quota       what Kueue charges, as far as it covers GPU memory
queue_rules       rules about that: each slice is charged once
kind_reader       reads kinds one by one, and notes those that it may not
called_namespaces  the namespaces that the webhook is called for
observed_kueue    what Kueue holds of workloads, queues and configuration, where it is installed
kueue_rules       the rule that it can admit what asks for slices
dry_run           what the API server makes of new pods: whether it reaches the webhook, and what comes of that
examination       all rules over one state, repeated until a cluster has settled

The doctor reads pods, nodes and Instaslice objects, compares them, and looks at what they stand on. It imports nothing
that it judges, and repeats on purpose what controller and agent read from the same objects. An object that cannot be
understood is a finding of its own and does not affect the others.
"""

from instaslice.doctor.dry_run import dry_run
from instaslice.doctor.examination import Doctor, check, examine, wait_until_settled
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.installation import Installation
from instaslice.doctor.installation_rules import examine_installation
from instaslice.doctor.kueue_quota import KueueQuota
from instaslice.doctor.kueue_rules import examine_kueue
from instaslice.doctor.observed_cluster import ObservedCluster
from instaslice.doctor.observed_kueue import ObservedKueue
from instaslice.doctor.queue_rules import examine_queues
from instaslice.doctor.serving import Serving, examine_serving
from instaslice.doctor.unreported_nodes import nodes_reported, wait_until_reported

__all__ = [
    "Doctor",
    "Finding",
    "Installation",
    "Invariant",
    "KueueQuota",
    "ObservedCluster",
    "ObservedKueue",
    "Serving",
    "check",
    "dry_run",
    "examine",
    "examine_installation",
    "examine_kueue",
    "examine_queues",
    "examine_serving",
    "nodes_reported",
    "wait_until_reported",
    "wait_until_settled",
]
