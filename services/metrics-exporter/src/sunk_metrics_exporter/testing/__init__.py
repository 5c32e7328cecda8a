"""What tests of the exporter need."""
