"""The kubelet's own APIs on a node, as messages: what a device plugin says, and which pod holds which device.

The `.proto` files are ours, with the field numbers of Kubernetes and only the fields that we use; `make generate` makes
the modules `*_pb2` of them.

services  the methods, so that no generated code is needed for those
"""
