"""What is to be done about it: drains, Extra, records, jobs. Pure."""
