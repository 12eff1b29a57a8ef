"""What a TLS context serves, seen by a client."""

import asyncio
import ssl

from cryptography import x509


async def served(context, client=None):
    """The certificate that a new connection gets, of a client that takes any unless one is given."""
    if client is None:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
    return x509.load_der_x509_certificate(found)
