"""What admins ask for, without HTTP: jobs, aliases, versions here and in an object store, and their JSON."""
