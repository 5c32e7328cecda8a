"""The loop over Pods: look, decide, carry out."""
