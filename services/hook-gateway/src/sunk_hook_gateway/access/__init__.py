"""Who is calling, by what token. Pure."""
