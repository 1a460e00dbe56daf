"""What asks the servers: one checked request, a load by h2load, and a load of our own where h2load cannot."""
