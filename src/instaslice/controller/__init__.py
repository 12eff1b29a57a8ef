"""Pods and allocations: which pod gets which slices, when, and how they come back.

    controller         watches, and carries out orders; runs in the one process that leads
    dispatcher         takes in what the watches report, and serves the waiting queue; gives orders, without a network
    pod_reconciler     moves one pod along its lifecycle: reserve, ungate, release; its deadlines
    pod_queue          pods enter and leave the waiting queue, and back off
    pod_placer         where a pod would go, or why nowhere
    lifecycle          how far a pod is: waiting, creating, created, ungated, deleting, deleted, failed
    cluster_state      what is known of the cluster
    ledger             what is reserved for whom, rebuilt from the API server at start
    gpu_claims         of several nodes that report one GPU, which has it
    node_record        what the ledger knows of one node
    reservations       the allocations of a pod
    quarantine         objects that could not be handled
    deadlines          what is due later
    orders             what the dispatcher can order
    work_queues        orders that are yet to be carried out
    spec_writer        writes reservations into the Instaslice objects
    pod_condition      what a pod's condition says: why it waits
    feasible_nodes     which nodes could ever hold a pod, and why others do not take it
    condition_writer   writes it, and the Event that goes with it
    patches            the patch that removes a pod's gate
    state_times        how long pods and slices are in each state, and the log lines that say so
    cluster_metrics    the rest of what Prometheus is given, read from the state at each scrape
    explain            everything there is to say of one pod, and all pods that wait
    explanation        what can be said of a pod, and what it says by itself
    quoted_condition   what its condition says, for those who may read no more
    fleet_status       the whole fleet: who holds which slot of each GPU, what still fits, who waits
    held_slots         what takes room on a GPU
    slice_holders      who holds the slices that a pod waits for
    requests           what kube-scheduler counts for a pod: CPU, memory, storage and the rest
    pod_request        its slices and amounts, worked out once for a pod
    node_admission     whether a node's state, taints and labels let a pod in
    node_capacity      what is left on each node beside what is charged to it
    scheduling         what else kube-scheduler looks at: volumes, other pods, spread, host ports
    learning           the placement policy learns from what pods ask for, and a restart does not forget it
    taints             the taint of managed nodes
    static_mig_labels  node labels that users of static MIG layouts select by
    held_places        places on GPUs that are held for pods to come
    placement_check    Kueue's AdmissionCheck: admits a workload when its slices can be placed, and holds their places
    missing_permission  a permission that comes with a flag and was not granted
    kept_quotas        quotas on NVIDIA's names keep counting
    autoscaling        shows node autoscalers what pods wait for
    placeholders       the pods that show it
    node_shapes        the shapes of node that an autoscaler could add
    errors             Deposed: another process leads

The stock scheduler has the last word about where a pod runs, and it speaks only after we have created the slices and
pinned the pod to their node. So requests, node_admission, node_capacity and scheduling repeat rules of kube-scheduler
exactly, from its source and checked against the running program: a pod that we pin where the scheduler will not bind it
holds slices for nothing.
"""
