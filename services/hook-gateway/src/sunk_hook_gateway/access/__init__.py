"""The caller, by its token. Pure."""
