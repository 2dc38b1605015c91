"""Numbers, always beside the limit of the machine they were measured on."""
