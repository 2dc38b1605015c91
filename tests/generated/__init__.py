"""Cases made up by the machine, for comparing the product with the reference."""
