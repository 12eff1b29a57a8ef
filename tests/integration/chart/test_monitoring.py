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


def monitored(*settings, flags=()):
    documents = Helm().template(MONITORED[0], *settings, flags=(*PROMETHEUS, *flags))
    (endpoint,) = find(documents, "ServiceMonitor", "instaslice")["spec"]["endpoints"]
    return documents, endpoint


@pytest.mark.parametrize(
    "settings, tls",
    [
        pytest.param([], None, id="without TLS"),
        pytest.param(["metrics.auth=true"], {"insecureSkipVerify": True}, id="self-signed"),
        pytest.param(["metrics.certificateSecret=tls"], {"insecureSkipVerify": True}, id="by an unknown authority"),
    ],
)
def test_prometheus_checks_no_certificate_unless_it_is_told_how(settings, tls):
    _, endpoint = monitored(*settings)
    assert (endpoint.get("tlsConfig"), endpoint.get("scheme")) == (tls, "https" if tls else None)


def test_the_values_of_the_docs_have_prometheus_check_the_certificate(tmp_path):
    (values,) = re.findall(
        r"^```yaml\n(metrics:.*?)^```", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "values.yaml").write_text(values)
    documents, endpoint = monitored(flags=(f"--values={tmp_path / 'values.yaml'}",))
    assert endpoint["tlsConfig"] == yaml.safe_load(values)["metrics"]["serviceMonitor"]["tlsConfig"]
    assert endpoint["bearerTokenFile"]
    # The operator reads the Secret in the namespace of the ServiceMonitor; targets are reached by their addresses.
    secret = endpoint["tlsConfig"]["ca"]["secret"]["name"]
    assert secret in [each.get("secret", {}).get("secretName") for each in pod_of(documents, "agent")["volumes"]]
    service = find(documents, "Service", "instaslice-metrics")["metadata"]
    assert endpoint["tlsConfig"]["serverName"] == f"{service['name']}.{service['namespace']}.svc"
