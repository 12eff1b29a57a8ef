"""Where kube-scheduler would bind a pod, as far as that depends on more than the node. Pure: no network, no clock.

    filters          all of them together: what the dispatcher asks
    volumes          claims and their volumes: bound, to be bound on first use, to be provisioned; limits of CSI drivers
    storage          the objects that say so
    disks            volumes that a pod names itself and that one pod of a node may write to
    pod_affinity     required affinity and anti-affinity to other pods, theirs against this one included
    topology_spread  DoNotSchedule constraints
    host_ports       ports of the node
    preferences      which of several nodes a pod would rather have
    assigned_pods    the pods that these look at: bound ones, and those that we have promised a node
    label_selector   selectors of labels
    refused_nodes    where a scheduler did not bind a pod of the same owner

Follows the plugins VolumeBinding, VolumeZone, NodeVolumeLimits, VolumeRestrictions, InterPodAffinity, PodTopologySpread
and NodePorts, from the source of Kubernetes 1.37 and checked against the running program. Left out is what only clouds'
former in-tree volumes need: they are not translated into those of their CSI drivers.
"""
