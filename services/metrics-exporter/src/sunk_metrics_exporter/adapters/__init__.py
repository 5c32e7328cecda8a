"""The bus, as the exporter needs it."""
