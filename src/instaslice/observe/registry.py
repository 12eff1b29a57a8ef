"""Gives our metrics to prometheus-client: those that are read from a process's state at a scrape, and those counted.

Reading costs nothing between scrapes and cannot drift from the state; counting is for what leaves no trace in it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from instaslice import __version__
from instaslice.observe.metrics import BUILD, Component, Kind, Metric

Samples = Mapping[tuple[str, ...], float]
"""Values of the labels, in the order of the metric → value."""
Reading = tuple[Metric, Samples]
Read = Callable[[], Iterable[Reading]]
"""Reads a part of the state; called once for each scrape, on the event loop, so it is bounded."""


def new(component: Component) -> CollectorRegistry:
    """A registry with what every process has: its version, and its CPU, memory and files."""
    # When each series began: a second series for each, which nothing of ours uses.
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it untyped
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    read_from(registry, lambda: [(BUILD, {(__version__, component.value): 1})])
    return registry


def read_from(registry: CollectorRegistry, read: Read) -> None:
    """Have metrics read at each scrape."""
    registry.register(_Reader(read))


def counter(registry: CollectorRegistry, metric: Metric) -> Counter:
    return Counter(metric.name, metric.help, metric.labels, registry=registry)


def histogram(registry: CollectorRegistry, metric: Metric) -> Histogram:
    return Histogram(metric.name, metric.help, metric.labels, buckets=metric.buckets, registry=registry)


class _Reader(Collector):
    def __init__(self, read: Read) -> None:
        self._read = read

    def collect(self) -> Iterator[Family]:
        for metric, samples in self._read():
            yield _family(metric, samples)


def _family(metric: Metric, samples: Samples) -> Family:
    match metric.kind:
        case Kind.COUNTER:
            counted = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
            for labels, value in samples.items():
                counted.add_metric(labels, value)
            return counted
        case Kind.INFO:
            info = InfoMetricFamily(metric.name.removesuffix("_info"), metric.help)
            for labels in samples:
                info.add_metric((), dict(zip(metric.labels, labels, strict=True)))
            return info
    gauge = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples.items():
        gauge.add_metric(labels, value)
    return gauge
