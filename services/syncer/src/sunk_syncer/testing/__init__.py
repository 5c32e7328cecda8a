"""What tests of the syncer need."""
