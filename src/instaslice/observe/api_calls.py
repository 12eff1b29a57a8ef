"""Counts the requests of our Kubernetes client. Implements `kube.observer.Observer`."""

from prometheus_client import CollectorRegistry

from instaslice.observe import registry as registries
from instaslice.observe.metrics import API_REQUESTS, WATCH_RESTARTS


class ApiCalls:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = registries.counter(registry, API_REQUESTS)
        self._restarts = registries.counter(registry, WATCH_RESTARTS)

    def answered(self, verb: str, resource: str, code: str) -> None:
        self._requests.labels(verb, resource, code).inc()

    def watch_ended(self, resource: str, reason: str) -> None:
        self._restarts.labels(resource, reason).inc()
