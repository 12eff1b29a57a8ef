"""Where kube-scheduler would bind a pod, as far as this depends on more than the node. Pure: no network, no clock.

    filters          all filters together, and what they say of a pod on each node
    volumes          claims and their volumes: bound, to be bound on first use, to be provisioned
    volume_limits    how many volumes CSI drivers may attach to a node
    storage          claims, volumes, classes and drivers, indexed
    pod_affinity     required affinity and anti-affinity between pods, in both directions
    topology_spread  DoNotSchedule constraints
    disks            in-line volumes that only one pod of a node may write to
    host_ports       ports of the node
    exclusive_use    what disks and host ports have in common: one user at a time
    preferences      scores for the nodes that a pod prefers
    assigned_pods    the pods that filters count: bound, or with slices reserved on a node
    label_selector   compiled label selectors
    groups           maps of objects in groups
    refused_nodes    nodes to which the scheduler did not bind a pod of the same owner

Each filter works like a plugin of kube-scheduler: `pre_filter` computes a verdict once per pod; its `refusal` says why
a node is ruled out. The rules are those of VolumeBinding, VolumeZone, NodeVolumeLimits, VolumeRestrictions,
InterPodAffinity, PodTopologySpread and NodePorts, from the source of Kubernetes 1.37 and checked against the running
program. Former in-tree cloud volumes are not translated to their CSI drivers.
"""
