"""A real Kubernetes on this machine, for `instaslice up`, the tests and the benchmarks.

cluster      all of it together: up, down, status
components   every pinned version
binaries     where the programs come from: a folder, the cache, a build, a download
build, golang   programs built from pinned Go modules, and the Go to build them with
download     official release binaries
debian       programs from Debian packages
progress     shows how long a build or download still takes
layout       the directories of a cluster
ports        free ports, kept apart between clusters
pki          certificates, tokens and kubeconfigs
process      starts, finds and ends the programs of a cluster
control_plane   the command lines of etcd, the API server, the scheduler, the controller-manager, kwok
objects      what is put into the API server: roles and nodes
nodes        emulated GPU nodes
operator     InstaSlice itself: webhook, controller, agent, as processes beside the control plane
helm         Helm, for the chart
kueue        Kueue, as a process beside the control plane
realnode     a real kubelet with containerd, in namespaces of its own
network, forwarder, cgroups   the bridge of a real node, the way from it to the API server, and the cgroup
images       container images without a registry
system       commands of the machine
errors       what can go wrong
"""
