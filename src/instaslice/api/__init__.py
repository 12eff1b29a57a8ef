"""Our Kubernetes types and names: what users, the webhook, the controller and the agent have in common.

names       every name of ours that appears in Kubernetes objects
bounds      how long a string and how large a number in our objects may be
instaslice  the Instaslice object of a node: what is allocated (spec) and what exists (status)
memory_terms  how a pod asks for GPU memory: the quantity, and which slice is right for it
agent_presence  whether the agent of a node runs, while nothing is ordered there
reasons     the reasons of our conditions and Events
pods        how we read a pod: its gate, our annotations, what its containers hold together
slice_requests  what each container asks for, read and checked
memory_requests  the GPU memory that each asks for, alone or beside slices
container_requests  both together, and how the container is written then
largest_node    what the largest node could hold
future_pods     pods as the webhook will admit them, from the template of their owner
geometries  a GPU model as it is in a status, and back
node_resources  what GPUs could hold at most
nvidia_labels   node labels of a static MIG layout, as NVIDIA writes them
snapshot    everything a cluster says at one moment: lists of one revision
live_snapshot  the same, kept current by watches
summary     what `kubectl get instaslices` prints, from a status
roles       what each of our processes may do, as RBAC rules
errors      why a pod is rejected
writing     how the two writers of an Instaslice object limit their load on the API server
schema      a struct as a structural schema
crd         the definition of the Instaslice object, from its structs; `make generate` writes it into the chart
"""
