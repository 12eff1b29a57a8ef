"""Probes, and what Prometheus and Grafana get."""

import json
import re

import pytest
import yaml
from helm import CHART, Helm, find
from rendered import PROCESSES, ROOT, expected, granted, pod_of

from instaslice.api import roles

PROMETHEUS = ("--api-versions=monitoring.coreos.com/v1",)
MONITORED = ("metrics.serviceMonitor.enabled=true", "metrics.rules.enabled=true", "metrics.dashboard.enabled=true")


def port_of(documents, component):
    (container,) = pod_of(documents, component)["containers"]
    return {each["name"]: each["containerPort"] for each in container["ports"]}["observe"], container


@pytest.mark.parametrize("component", PROCESSES)
@pytest.mark.parametrize(
    "settings, scheme",
    [
        pytest.param([], "HTTP", id="plain"),
        pytest.param(["metrics.auth=true"], "HTTPS", id="with TokenReview"),
        pytest.param(["metrics.certificateSecret=tls"], "HTTPS", id="with a certificate"),
    ],
)
def test_probes_ask_where_the_process_serves(component, settings, scheme):
    documents = Helm().template(*settings)
    port, container = port_of(documents, component)
    assert f"--observe=:{port}" in container["args"]
    for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "observe", "scheme": scheme}


def test_who_reads_metrics_needs_a_right_only_where_it_is_asked_for(plain):
    documents = Helm().template("metrics.auth=true")
    for account, role in (
        ("instaslice-agent", roles.agent()),
        ("instaslice-webhook", roles.webhook()),
        ("instaslice-controller", roles.controller()),
    ):
        assert granted(documents, account) == expected(role) | expected(roles.METRICS_AUTH)
    name = roles.METRICS_READER["metadata"]["name"]
    assert find(documents, "ClusterRole", name)["rules"] == roles.METRICS_READER["rules"]
    assert name not in {each["metadata"]["name"] for each in plain}


def test_what_prometheus_and_grafana_get():
    documents = Helm().template(*MONITORED, flags=PROMETHEUS)
    monitor = find(documents, "ServiceMonitor", "instaslice")["spec"]
    service = find(documents, "Service", "instaslice-metrics")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] in [each["name"] for each in service["spec"]["ports"]]
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    assert find(documents, "PrometheusRule", "instaslice")["spec"] == alerts
    board = find(documents, "ConfigMap", "instaslice-dashboard")
    assert json.loads(board["data"]["instaslice.json"]) == json.loads((CHART / "files" / "dashboard.json").read_text())
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_scrape_configuration_of_the_docs_finds_what_the_service_monitor_finds():
    page = (ROOT / "docs/metrics.md").read_text()
    (block,) = re.findall(r"^```yaml\n(scrape_configs:.*?)^```", page, re.MULTILINE | re.DOTALL)
    (job,) = yaml.safe_load(block)["scrape_configs"]
    documents = Helm().template(*MONITORED, "metrics.auth=true", flags=PROMETHEUS)
    (endpoint,) = find(documents, "ServiceMonitor", "instaslice")["spec"]["endpoints"]
    assert (job["honor_labels"], job["scheme"]) == (endpoint["honorLabels"], endpoint["scheme"])
    assert job["tls_config"]["insecure_skip_verify"] == endpoint["tlsConfig"]["insecureSkipVerify"]
    assert job["authorization"]["credentials_file"] == endpoint["bearerTokenFile"]
    service = find(documents, "Service", "instaslice-metrics")
    assert job["kubernetes_sd_configs"][0]["namespaces"]["names"] == [service["metadata"]["namespace"]]
    kept = {each["source_labels"][0]: each["regex"] for each in job["relabel_configs"] if "regex" in each}
    assert kept == {
        "__meta_kubernetes_service_label_app_kubernetes_io_component": "metrics",
        "__meta_kubernetes_endpointslice_port_name": endpoint["port"],
    }
    assert service["metadata"]["labels"]["app.kubernetes.io/component"] == "metrics"
    assert f"--clusterrole={roles.METRICS_READER['metadata']['name']} " in page


def test_only_monitoring_reaches_the_ports_of_metrics(plain):
    rule = find(plain, "NetworkPolicy", "instaslice-metrics")["spec"]["ingress"][0]
    (expression,) = rule["from"][0]["namespaceSelector"]["matchExpressions"]
    assert (expression["values"], rule["ports"]) == (["monitoring"], [{"protocol": "TCP", "port": "observe"}])
