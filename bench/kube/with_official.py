"""The official client on the stream of `run.py`: its Watch, objects decoded to its models as it does by default."""

import sys

from kubernetes import client, config, watch
from tally import Tally

tally = Tally(int(sys.argv[3]), int(sys.argv[4]))
config.load_kube_config(sys.argv[1])
core = client.CoreV1Api()
client.VersionApi().get_code()
tally.begin()
for _ in watch.Watch().stream(core.list_namespaced_pod, sys.argv[2]):
    tally.count()
