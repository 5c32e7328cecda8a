"""The one way by which the syncer changes Slurm nodes."""
