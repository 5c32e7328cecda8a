"""What tests of hook calls need."""
