"""A real Kubernetes on this machine: what `instaslice up`, the tests and the benchmarks stand on.

components   every pinned version
binaries     where the programs come from: a folder, the cache, a build, a download
pki          certificates and kubeconfigs
layout       one directory a cluster, and what is where in it
process      starting, finding again and ending the programs of a cluster
plane        the command lines of etcd, the API server, the scheduler, the controller-manager, kwok
objects      what is put into the API server: roles, and the emulated GPU nodes of `nodes`
realnode     a real kubelet with containerd, in namespaces of its own; its `network` and `cgroups`
operator     InstaSlice itself: webhook, controller, agent, as processes beside the control plane
kueue        Kueue, as a process beside the control plane
cluster      all of it together: up, down, status
"""
