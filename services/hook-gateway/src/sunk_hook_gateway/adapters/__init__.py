"""The bus, the published keys and the certificate, as the gateway needs them."""
