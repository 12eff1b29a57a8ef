"""Whether the webhook answers as its configuration says: TLS at its address, with a certificate that is trusted there.

Nothing is sent through the connection. A Service is reached by its cluster IP, which only works inside the cluster's
network: from elsewhere nothing can be said but whether it has endpoints.
"""

import asyncio
import base64
import binascii
import os
import ssl
from typing import Final
from urllib.parse import urlsplit

import msgspec

from instaslice.doctor.installation import Answer
from instaslice.doctor.installation_kinds import ServiceReference, WebhookAddress
from instaslice.kube.client import Client, Selector
from instaslice.kube.config import trusting
from instaslice.kube.errors import KubeError, NotFound
from instaslice.kube.meta import ApiStruct, Key, ObjectMeta
from instaslice.kube.resource import Resource

CONNECT_SECONDS: Final = 3.0


class ServiceSpec(ApiStruct, frozen=True):
    cluster_ip: str = msgspec.field(name="clusterIP", default="")


class Service(ApiStruct, frozen=True):
    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()


class EndpointConditions(ApiStruct, frozen=True):
    ready: bool | None = None


class Endpoint(ApiStruct, frozen=True):
    conditions: EndpointConditions = EndpointConditions()


class EndpointSlice(ApiStruct, frozen=True):
    metadata: ObjectMeta
    endpoints: list[Endpoint] | None = None


SERVICES = Resource(Service, "Service", "services")
ENDPOINT_SLICES = Resource(EndpointSlice, "EndpointSlice", "endpointslices", group="discovery.k8s.io")


async def call(client: Client, config: WebhookAddress) -> Answer:
    """Connect to the webhook at the address of its configuration."""
    try:
        trusted = base64.b64decode(config.ca_bundle, validate=True).decode()
        context = trusting(cadata=trusted or None)
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError):
        return Answer()  # the bundle itself is a finding
    if config.service is not None:
        return await _call_service(client, config.service, context)
    try:
        address = urlsplit(config.url)
        host, port = address.hostname or "", address.port or 443
        return await _connect(host, port, host, context)
    except (OSError, TimeoutError) as error:
        return Answer(failed=f"{config.url} does not answer ({_why(error)}); does the webhook run?")
    except ValueError as error:  # the API server accepts more than can be an address
        return Answer(failed=f"its url {config.url} is no address ({error}); correct it")


async def _call_service(client: Client, service: ServiceReference, context: ssl.SSLContext) -> Answer:
    where = f"service {service.namespace}/{service.name}"
    try:
        found = await client.get(SERVICES, Key(service.namespace, service.name))
    except NotFound:
        return Answer(failed=f"its {where} does not exist; create it")
    except KubeError as error:
        why = f"{error.status} {error.reason}" if error.status else error.message
        return Answer(unknown=f"{where} may not be read ({why}); grant `get` on services")
    if not await _has_endpoint(client, service):
        return Answer(failed=f"its {where} has no ready endpoint; does the webhook run?")
    address = found.spec.cluster_ip
    try:
        return await _connect(address, service.port, f"{service.name}.{service.namespace}.svc", context)
    except (OSError, TimeoutError) as error:
        return Answer(
            unknown=f"{where} cannot be reached from here ({_why(error)}); run the doctor inside the cluster's network"
        )


async def _has_endpoint(client: Client, service: ServiceReference) -> bool:
    """True also where it may not be read."""
    selector = Selector(service.namespace, labels=f"kubernetes.io/service-name={service.name}")
    try:
        slices = await client.list(ENDPOINT_SLICES, selector)
    except KubeError:
        return True
    # Not said is ready, as in Kubernetes.
    return any(endpoint.conditions.ready is not False for each in slices for endpoint in each.endpoints or ())


async def _connect(host: str, port: int, name: str, context: ssl.SSLContext) -> Answer:
    """Raises OSError or TimeoutError where there is no connection."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        return Answer(
            failed=f"the certificate at {host}:{port} is not one that the caBundle trusts for {name} "
            f"({error.verify_message}); restart the webhook, which writes its authority there, or see whether "
            "cert-manager's cainjector runs, which does so with certManager.enabled"
        )
    except ssl.SSLError as error:
        return Answer(failed=f"{host}:{port} does not speak TLS ({error.reason}); does something else listen there?")
    writer.close()
    return Answer()


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no connection within {CONNECT_SECONDS:.0f} s"
    number = getattr(error, "errno", None)
    # asyncio's own text is a call and its arguments.
    return os.strerror(number) if isinstance(number, int) and number > 0 else str(error)
