"""What serves the kubelet of a real node: its resources, and the slice behind each device that it hands out.

node_devices        the devices of one node; calls the three below
device_holders      who holds which device id, learned from the kubelet and kept in a file
cdi_files           the CDI files of the node
advertised_devices  what is advertised: one device plugin per resource
device_ids          which id stands for which slice: pure
device_plugin       one resource, served to the kubelet
registration        keeps the device plugins registered with the kubelet
pod_resources       who holds which id, as the kubelet says
cdi                 the format of a CDI file, and the folder
wiring              what a container needs for a slice: device files, mounts
paths               where the kubelet, the runtime and the agent keep their files
services            the gRPC methods of the kubelet's APIs

The `.proto` files are ours, with the field numbers of Kubernetes and only the fields that we use; `make generate` makes
deviceplugin_pb2 and podresources_pb2 from them.
"""
