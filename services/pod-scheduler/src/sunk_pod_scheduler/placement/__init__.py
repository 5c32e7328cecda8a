"""One Pod and its placeholder job: what is seen of them, and the next step. Pure."""
