"""Local clusters of which only the record exists."""

import msgspec

from instaslice.local.cluster import PORTS, Cluster, ClusterRecord, ClusterSpec


def recorded(name, **spec):
    """A cluster of which nothing runs."""
    cluster = Cluster(name)
    cluster.layout.root.mkdir(parents=True)
    ports = dict.fromkeys(PORTS, 1)
    record = ClusterRecord(spec=ClusterSpec(**spec), ports=ports, programs={})
    cluster.layout.record.write_bytes(msgspec.json.encode(record))
    return cluster
