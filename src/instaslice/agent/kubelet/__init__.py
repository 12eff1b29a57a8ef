"""What serves the kubelet of a real node: device plugins, CDI files, and which container holds which device.

node_devices        all devices of a node: who holds which id, the CDI files, what is advertised
device_ids          which device id stands for which slice: pure
device_holders      who holds which device id, kept in a file over restarts
pod_resources       which container holds which device id, from the kubelet
cdi_files           the CDI files of one node
cdi                 what a container gets for a slice, as one CDI file
wiring              what a container needs to use a slice
advertised_devices  one device plugin for each profile and one for GPU memory
device_plugin       one resource as a device plugin
registration        keeps the device plugins registered with the kubelet
paths               where the kubelet, the runtime and the agent keep their files
services            the gRPC methods of the kubelet's APIs

The `.proto` files are ours, with the field numbers of Kubernetes and only the fields that we use; `make generate` makes
the modules `*_pb2` of them.
"""
