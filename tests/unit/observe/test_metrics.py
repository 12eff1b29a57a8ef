"""Every metric is described, documented and bounded, and alerts and dashboard ask for nothing else."""

import json
import re
from pathlib import Path

import promql_parser
import pytest
import yaml

from instaslice.api.instaslice import SliceState
from instaslice.api.reasons import PodReason
from instaslice.controller.cluster_metrics import GPU_STATES, NODE_STATES, UNKNOWN
from instaslice.controller.quarantine import ObjectKind
from instaslice.controller.state_times import ALLOCATION_STATES, TIMED
from instaslice.drivers import errors as driver_errors
from instaslice.kube.watch import END_REASONS
from instaslice.observe import metrics, reference
from instaslice.observe.metrics import LABELS, METRICS, Bound, Component, Kind
from instaslice.placement.room import MemoryState
from instaslice.webhook.server import RESULTS

ROOT = Path(__file__).parents[3]
FILES = ROOT / "charts" / "instaslice" / "files"
PAGE = ROOT / "docs" / "metrics.md"
BY_NAME = {each.name: each for each in METRICS}

UNITS = ("_seconds", "_bytes", "_total", "_info")
COUNTS = {
    "instaslice_allocations", "instaslice_waiting_pods", "instaslice_queue_length", "instaslice_work_queue_length",
    "instaslice_gpus", "instaslice_gpus_with_room", "instaslice_slices_held", "instaslice_nodes",
    "instaslice_foreign_slices", "instaslice_failed_placements", "instaslice_lost_pods", "instaslice_set_aside_objects",
    "instaslice_slices",
}  # fmt: skip
"""Gauges that count things, so that the name of the thing is the unit."""
YES_OR_NO = {"instaslice_leader", "instaslice_gpu_healthy", "instaslice_node_ready"}
UNBOUNDED = {"namespace", "pod", "container", "uid", "mig_uuid", "name"}
"""Labels with a value for every pod that there ever was."""
PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
"""What prometheus-client has of every process."""
OTHERS = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE"}

VALUES = {
    (metrics.ALLOCATIONS.name, "state"): set(ALLOCATION_STATES),
    (metrics.STATE_SECONDS.name, "state"): set(TIMED),
    (metrics.STATE_OLDEST.name, "state"): set(TIMED),
    (metrics.WAITING_PODS.name, "reason"): {*PodReason, UNKNOWN},
    (metrics.GPUS.name, "state"): set(GPU_STATES.values()),
    (metrics.MEMORY.name, "state"): set(MemoryState),
    (metrics.NODES.name, "state"): set(NODE_STATES),
    (metrics.SET_ASIDE.name, "kind"): set(ObjectKind),
    (metrics.SLICES.name, "state"): set(SliceState),
    (metrics.WATCH_RESTARTS.name, "reason"): set(END_REASONS),
    (metrics.ADMISSIONS.name, "result"): set(RESULTS),
    (metrics.OPERATION_SECONDS.name, "operation"): {"create", "destroy", "list"},
    (metrics.OPERATION_ERRORS.name, "operation"): {"create", "destroy", "list"},
    (metrics.OPERATION_ERRORS.name, "reason"): {
        name for name, each in vars(driver_errors).items() if isinstance(each, type)
    },
}
"""What the labels that a query selects by can say."""


def each_metric(metrics=METRICS):
    return pytest.mark.parametrize("metric", metrics, ids=lambda metric: metric.name)


@each_metric()
def test_a_metric_has_a_name_and_a_sentence_that_say_what_it_is(metric):
    assert re.fullmatch(r"instaslice(_[a-z]+)+", metric.name)
    assert metric.help.endswith(".") and len(metric.help) > 20
    assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
    assert (metric.kind is Kind.INFO) == metric.name.endswith("_info")
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(metric.buckets)
    if metric.kind is Kind.GAUGE:
        assert metric.name.endswith(UNITS) or metric.name in COUNTS | YES_OR_NO


@each_metric([each for each in METRICS if each is not metrics.SLICE])
def test_the_values_of_its_labels_are_limited(metric):
    assert not set(metric.labels) & UNBOUNDED
    for label in metric.labels:
        bound, text = LABELS[label]
        assert text
        # What a node has is for the agent to say: in the controller it would be the whole cluster.
        assert bound is not Bound.NODE or metric.components == (Component.AGENT,)


def test_the_one_exception_is_limited_by_what_exists_on_the_node():
    assert metrics.SLICE.components == (Component.AGENT,)
    assert all(LABELS[label][0] is Bound.NODE for label in metrics.SLICE.labels)


def test_every_label_is_used():
    assert {label for each in METRICS for label in each.labels} == LABELS.keys()


def test_names_are_unique():
    assert len(BY_NAME) == len(METRICS)


def test_the_page_has_the_metrics_that_there_are():
    text = PAGE.read_text()
    assert reference.updated(text) == text, "run `make generate`"
    assert set(re.findall(r"^\| `(instaslice_\w+)`", text, re.MULTILINE)) == BY_NAME.keys()


def test_a_page_without_its_marks_is_an_error():
    with pytest.raises(ValueError, match="put them back"):
        reference.updated("# Metrics\n")


# Queries --------------------------------------------------------------------------------------------------------------


def rules():
    return [rule for group in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]


def panels():
    return json.loads((FILES / "dashboard.json").read_text())["panels"]


def documented():
    """The queries of the page."""
    return re.findall(r"^```promql\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def queries():
    found = [(f"alert {rule['alert']}", rule["expr"]) for rule in rules()]
    for panel in panels():
        found += [(f"panel {panel['title']}", target["expr"]) for target in panel.get("targets", ())]
    found += [(f"page: {text.splitlines()[0]}", text) for text in documented()]
    return [pytest.param(text.replace("$__rate_interval", "5m"), id=name) for name, text in found]


def selectors(expression):
    """Every selector of a query: what it selects and by which labels."""
    stack, found = [promql_parser.parse(expression)], []
    while stack:
        node = stack.pop()
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
            continue
        for part in ("expr", "lhs", "rhs", "vector_selector", "param"):
            stack += [child] if (child := getattr(node, part, None)) is not None else []
        stack += getattr(node, "args", None) or []
    return found


def named(selector):
    """The metric that a series belongs to: histograms have three each."""
    base = re.sub(r"_(bucket|sum|count)$", "", selector.name)
    return BY_NAME.get(selector.name) or (BY_NAME[base] if BY_NAME.get(base, metrics.BUILD).buckets else None)


def test_how_selectors_are_found():
    query = 'sum by (a) (rate(x{b="c"}[5m])) / on (a) group_left (d) max(y) > 0 or histogram_quantile(0.9, z_bucket)'
    assert sorted(each.name for each in selectors(query)) == ["x", "y", "z_bucket"]


@pytest.mark.parametrize("query", queries())
def test_a_query_asks_for_what_exists(query):
    found = selectors(query)
    assert found
    for selector in found:
        if selector.name in PROCESS | OTHERS:
            continue
        metric = named(selector)
        assert metric, f"{selector.name} does not exist"
        for matcher in selector.matchers.matchers:
            if matcher.name == "__name__":
                continue
            assert matcher.name in metric.labels
            words = set(re.split(r"\|", matcher.value))
            possible = VALUES.get((metric.name, matcher.name))
            assert possible is None or words <= {str(each) for each in possible}, f"{matcher.name}={matcher.value}"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule):
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["summary"] and rule["annotations"]["description"]
    assert f"`{rule['alert']}`" in PAGE.read_text(), "say in docs/metrics.md what to do"
    used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    kept = re.search(r"by \(([\w, ]+)\)", rule["expr"])
    possible = set(re.split(r", ", kept[1])) if kept else {
        label for each in selectors(rule["expr"]) for label in BY_NAME[each.name].labels
    }  # fmt: skip
    assert used <= possible


def test_the_panels_of_the_board_do_not_overlap():
    taken = set()
    for panel in panels():
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        assert grid["x"] + grid["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels()}) == len(panels())
